"""`dtrain report` and `dtrain compare` on real runs: two that differ, and one that was killed and
resumed. The page is well-formed, needs no network, and shows what it should without its script."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import DTRAIN, content, events, run, sets, train, write, write_config  # noqa: E402

CONFIG = {
    "model": {"name": "tiny", "num_classes": 10, "image_size": 32},
    "data": {"source": "synthetic", "synthetic_train": 120, "synthetic_val": 24, "workers": 1},
    "train": {"epochs": 4, "global_batch_size": 12, "deterministic": True},
    "eval": {"batch_size_per_rank": 8},
    "schedule": {"kind": "constant", "lr_scaling": "none", "warmup_epochs": 0},
    "device": {"kind": "cpu", "threads": 1},
    "output": {"log_every": 2, "log_every_s": 0},
    "checkpoint": {"every_steps": 10},
}


def dtrain(*args, code=0):
    return run(*args, code=code).said


def kill_and_resume(folder):
    """Kills the run after step 24 or later, when a checkpoint exists, and runs it again."""
    args = ["--config", "config.json", "--out", folder, *sets("train.epochs=300")]
    with subprocess.Popen([DTRAIN, *args], stderr=subprocess.DEVNULL) as process:
        while not os.path.exists(f"{folder}/checkpoints/latest") or "\"step\":24," not in read(f"{folder}/metrics.jsonl"):
            assert process.poll() is None, "it has ended"
            time.sleep(0.01)
        assert re.search(f"^{folder} +running ", dtrain("runs", folder), re.M)
        os.kill(process.pid, signal.SIGKILL)
    assert re.search(f"^{folder} +killed .*\n    ended without a final event: SIGKILL, ", dtrain("runs", folder), re.M)
    write(f"{folder}/hang-0.txt", "dtrain: error[HANG] rank 1 is stopped\nmore")
    assert re.search(f"^{folder} +hung .*\n    .*rank 1 is stopped$", dtrain("runs", folder), re.M)
    dtrain("report", folder)
    assert "hung, " in read("report.html") and "rank 1 is stopped" in read("report.html")
    with open(f"{folder}/metrics.jsonl", "a", encoding="utf-8") as f:
        f.write('{"ts":"20')
    dtrain(*args, "--max-time", "1s", code=75)


def read(path):
    return content(path).decode()


class Balance(HTMLParser):
    """Checks that a browser's tolerance is not needed."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


def load_page(path):
    """The page as a tree; nothing in it refers to anything outside, and the script at its end is the only program."""
    text = read(path)
    balance = Balance()
    balance.feed(text)
    assert balance.open == []
    contents = text[:text.index("<script>//<![CDATA[")]
    assert not re.search(r"https?:|//|@import|url\(", re.sub(r"base64,[^\"]*|xmlns=\"[^\"]*", "", contents)), path
    root = ET.fromstring(text)
    programs = [element for element in root.iter("script") if element.get("type") != "application/json"]
    assert len(programs) == 1 and programs[0] == root.find("body")[-1] and "src" not in programs[0].attrib
    for element in root.iter():
        assert element.tag not in ("iframe", "object", "foreignObject"), element.tag
        for name, value in element.attrib.items():
            assert not name.startswith("on"), name
            assert name not in ("href", "src") or value.startswith(("data:", "#")), value[:80]
    return root


def columns_of(root):
    """The table of several runs: label -> cells."""
    rows = [["".join(cell.itertext()) for cell in row] for row in root.find(".//table[@id='runs-table']").iter("tr")]
    return {cells[0]: list(cells[1:]) for cells in zip(*rows)}


def table_after(root, title):
    """Rows of the table below a heading, label -> cells."""
    body = root.find("body/main")
    names = [element.text for element in body]
    rows = body[names.index(title) + 1].iter("tr")
    return {("".join(row[0].itertext())): ["".join(cell.itertext()) for cell in row[1:]] for row in rows}


def charts(root):
    """What the script draws: title -> data."""
    return {f.find("figcaption").text: json.loads(f.find("script").text) for f in root.iter("figure") if f.find("script") is not None}


def check_picture():
    """With a name in .svg: the first charts, as an image that is XML by itself."""
    dtrain("report", "fast", "slow", "-o", "two.svg")
    root = ET.parse("two.svg").getroot()
    drawn = [svg.get("aria-label") for svg in root.iter("{http://www.w3.org/2000/svg}svg") if svg is not root]
    assert len(drawn) == 2, drawn
    titles = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text") if text.get("style")]
    assert titles == ["Loss", "Accuracy"], titles
    dtrain("report", "fast", "slow", "--svg", "charts")
    assert {"Loss.svg", "Learning-rate.svg"} <= set(os.listdir("charts")), os.listdir("charts")
    for name in os.listdir("charts"):
        ET.parse(f"charts/{name}")
        assert "var(" not in read(f"charts/{name}"), name


def check_two():
    dtrain("report", "fast", "slow/metrics.jsonl", "-o", "two.html")
    root = load_page("two.html")
    results = columns_of(root)
    assert results["run"] == ["fast", "slow"], results
    assert results["trained"] == ["40 steps, 4 epochs"] * 2, results
    assert all(cell.startswith("finished") for cell in results["status"]), results
    best = max(events("fast", "eval"), key=lambda line: line["top1"])
    assert results["best top1"][0] == f"{best['top1']:.2f} %, epoch {best['epoch']}", (results, best)
    assert results["schedule.lr"] == ["0.02", "0.001"] and not any(key.startswith("train.") for key in results), results
    assert table_after(root, "Environment")["device"][0].startswith("cpu"), "device"
    for title in ("Loss", "Accuracy", "Learning rate", "Throughput", "Waits", "Step time"):
        assert any(one["y"] for one in charts(root)[title]["series"]), title
    dots = [len(one["y"]) for one in charts(root)["Accuracy"]["series"] if one["dots"]]
    assert dots == [4, 4], dots
    static = [len(chart.findall("{*}g")) for chart in root.findall(".//noscript/figure/{*}svg/{*}svg")]
    assert static == [8, 8], static  # of each run training and validation, with their keys
    seconds = [div.get("title") for div in root.find(".//div[@class='bars']")]
    assert [text.split(":")[0] for text in seconds] == ["fast", "slow"] and "waiting for data" in seconds[0], seconds
    kinds = {img.attrib["src"].split(";")[0] for img in root.iter("img")}
    assert kinds == {"data:image/png", "data:image/jpeg", "data:image/svg+xml"}, kinds
    text = dtrain("compare", "fast", "slow")
    assert re.search(r"^schedule\.lr +0\.02 +0\.001$", text, re.M), text
    assert max(map(len, text.splitlines())) <= 80, text
    assert "ENVIRONMENT" in text and "best top1" in text, text
    os.mkdir("empty")
    skipped = dtrain("compare", "fast", "empty", "slow")
    assert "skipping empty, in which no run has begun" in skipped and text in skipped, skipped
    name = "<b>" + "ä" * 40
    os.mkdir(name)
    shutil.copy("slow/metrics.jsonl", name)
    text = dtrain("compare", name, "fast")
    assert "?" not in text and max(map(len, text.splitlines())) <= 80, text
    assert re.search(r" <b>ä+  fast\n +ä+ +\n", text), text


def check_classes():
    """The table of classes.json, whatever the names are; a damaged one is skipped."""
    dtrain("report", "fast", "-o", "classes.html")
    classes = json.loads(read("fast/classes.json"))
    table = load_page("classes.html").find(".//table[@id='classes-0']")
    head, *rows = [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]
    assert head == list(classes[0]) and len(rows) == 10, head
    for row, entry in zip(rows, classes):
        assert row == [value if isinstance(value, str) else f"{value:.4g}" for value in entry.values()], (row, entry)
    shutil.copytree("fast", "odd")
    write("odd/classes.json", json.dumps([{"class": "</td><b>&", "f1": None}]))
    dtrain("report", "odd", "-o", "odd.html")
    assert "</td><b>&" in "".join(load_page("odd.html").itertext())
    for broken in ("", "[", "[{}]", "[1]", "3", "[[]]"):
        write("odd/classes.json", broken)
        said = dtrain("report", "odd", "-o", "odd.html")
        load_page("odd.html")
        assert ("odd/classes.json" in said) == (len(broken) < 2 and broken != "3"), (broken, said)


def check_resumed():
    dtrain("report", "killed", "-o", "killed.html")
    root = load_page("killed.html")
    results = table_after(root, "Results")
    assert results["restarts, warnings"][0].startswith("1, "), results
    assert results["status"][0].startswith("STOPPED: --max-time"), results
    warned = results["restarts, warnings"][0].split(", ")[1]
    notes = str(table_after(root, f"{warned} warning{'s' * (warned != '1')}, 1 restart"))
    assert notes.count("the run had been killed") == 1, notes
    assert "restart from step" in json.loads(root.find(".//script[@id='runs']").text)[0]["notes"][0][3]
    for chart in root.findall(".//noscript/figure/{*}svg/{*}svg"):
        assert "restart from step" in chart.find("{*}path[@class='mark']/{*}title").text
    steps = charts(root)["Learning rate"]["series"][0]["step"]  # as differences
    assert min(steps) > 0, "repeated steps are drawn twice"


def check_list():
    text = dtrain("runs", ".")
    assert re.search(r"^run +state +epoch +best +images/s +age$", text, re.M), text
    assert re.search(r"^fast +finished +4.0/4 +top1 [\d.]+ +[\d.e+]+ +\d", text, re.M), text
    assert re.search(r"^killed +stopped .*\n    --max-time", text, re.M) and "empty" not in text, text
    assert "no run has begun in empty" in dtrain("runs", "empty", code=66)


def check_part():
    """A run that train.max_steps ends inside an epoch: that evaluation is reported, and the best is the same everywhere."""
    said = train("part", "schedule.lr=0.02", "train.max_steps=25").said
    assert re.findall(r" \* (.*?):", said) == ["epoch 1", "epoch 2", "step 25"], said
    evals = events("part", "eval")
    assert [event.get("reported_only", False) for event in evals] == [False, False, True], evals
    best, (end,) = max(event["top1"] for event in evals[:2]), events("part", "run_end")
    assert end["best"] == best and f" top1 {best:.2f} " in dtrain("runs", "part"), end
    dtrain("report", "part", "slow", "-o", "part.html")
    assert columns_of(load_page("part.html"))["best top1"][0].startswith(f"{best:.2f} %, "), best


def check_links():
    """What others have put into a run folder brings nothing else into the page."""
    secret, picture = write("secret", "root:x:0:0"), content("fast", "samples.png")
    rows = json.dumps([{"class": "secret"}])
    cases = [("samples.png", secret), ("errors.jpg", picture), ("confusion.svg", "<svg ><script/></svg>")]
    cases += [("confusion.svg", f"<svg {how}></svg>") for how in ("onload ='x()'", "><a href='x'/", "><!ENTITY a")]
    for name, what in [*cases, ("samples.png", content(secret)), ("classes.json", write("rows", rows))]:
        shutil.rmtree("links", ignore_errors=True)
        write("links/metrics.jsonl", read("fast/metrics.jsonl"))
        if what in (secret, "rows"):
            os.symlink(f"../{what}", f"links/{name}")
        else:
            write(f"links/{name}", what)
        assert f"skipped: {os.getcwd()}/links/{name} is " in dtrain("report", "links"), (name, what)
        page = read("report.html")
        assert 'id="pictures"' not in page and 'id="classes"' not in page, (name, what)
    os.symlink("../fast/metrics.jsonl", "links/other")
    dtrain("report", "links/other")  # named by the user
    os.replace("links/other", "links/metrics.jsonl")
    assert "metrics.jsonl is a link" in dtrain("report", "links", code=77)


def check_refused():
    assert "RUN" in dtrain("report", code=64)
    assert "RUN" in dtrain("compare", "fast", code=64)
    assert "nowhere" in dtrain("report", "nowhere", code=66)
    assert "is a folder of runs; " in dtrain("report", ".", code=66)
    assert "nowhere" in dtrain("report", "fast", "-o", "nowhere/a.html", code=73)
    lines = read("fast/metrics.jsonl").splitlines(keepends=True)
    write("broken/metrics.jsonl", "".join(lines[:3] + ["}{\n"] + lines[3:]))
    for args in ("report", "broken"), ("compare", "broken", "fast"):
        assert dtrain(*args).count("broken/metrics.jsonl:4:1:") == 1


write_config(CONFIG)
train("fast", "schedule.lr=0.02")
train("slow", "schedule.lr=0.001")
if not os.path.exists("fast/samples.png"):
    dtrain("samples", "--config", "config.json", "-n", "8", "-o", "fast/samples.png")
kill_and_resume("killed")
check_two()
check_classes()
check_picture()
check_resumed()
check_list()
check_part()
check_links()
check_refused()
