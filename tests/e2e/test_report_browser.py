"""The page of `dtrain report` in headless Chromium: charts, tables and pictures answer to pointer and keys as they
should, with the values of metrics.jsonl; on a phone, in the dark, in print and without script; whatever the texts of
the runs contain, nothing breaks out of them, and the console stays silent."""

import base64
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile

SUPPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")
sys.path.insert(0, SUPPORT)
from browser import BROWSER, Browser  # noqa: E402

DTRAIN = os.path.realpath(sys.argv[1])
SCALING = os.path.realpath(os.path.join(SUPPORT, "..", "..", "scripts", "scaling_report.py"))
EVIL = "</title><script>console.error(1)</script><img src=x onerror='console.error(2)'/>\x1b]0;\u00e9"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
N_CHARTS = 8  # 7 topics with curves, and telemetry
RUNS = {"a": 0.002, "<b>": 0.004, "same": 0.002, "wild": -0.03, "e": 0.003, "f": 0.001}


def write_run(name, rate, epochs=8):
    """Epochs of 100 steps, restarted after half of them, with a warning. Returns the loss of each step event."""
    events, start, losses = [], {"config": {"schedule": {"lr": rate}, "model": {"name": EVIL}}, "device": EVIL}, {}
    start |= {"global_batch_size": 64, "steps_per_epoch": 100, "hosts": {EVIL: 2}, "libraries": [EVIL] * 20}
    half = 50 * epochs
    for first, last in ((0, half + 50), (half, 100 * epochs)):
        events.append({"event": "run_start", "start_step": first, **start})
        events.append({"event": "warning", "text": EVIL})
        for step in range(first + 10, last + 1, 10):
            loss, wait = 2.3 * math.exp(-step * rate) + 0.05 * math.sin(step), {"data_wait_s": 0.001, "comm_s": 0.01}
            accuracy = {"loss": loss, "top1": max(0, 100 - 40 * loss), "top5": max(0, 100 - 20 * loss)}
            losses[step] = loss
            place = {"event": "step", "step": step, "epoch": (step - 1) // 100 + 1, "images_per_s": 640 + step % 70}
            events.append({**place, "lr": abs(rate), "step_s": 0.1, **accuracy, **wait})
            if step % 100 == 0:
                events.append({"event": "eval", "step": step, "epoch": step // 100, **accuracy})
                events.append({"event": "telemetry", "step": step, "gpu0_power_w": 600 + step / 10})
    os.makedirs(name)
    with open(f"{name}/metrics.jsonl", "w", encoding="utf-8") as f:
        for i, event in enumerate(events):
            f.write(json.dumps({"ts": f"2026-01-31T12:{i // 60:02}:{i % 60:02}.000Z", **event}) + "\n")
    return losses


def report(*runs):
    subprocess.run([DTRAIN, "report", *runs, "-o", "page.html"], check=True, capture_output=True)


def show(browser, path="page.html", width=1280):
    browser.resize(width)
    browser.show(path)
    assert not browser.complaints(), browser.complaints()
    with open(f"{SUPPORT}/report_probe.js", encoding="utf-8") as probe:
        browser.run(probe.read())


def near(text, value):
    return abs(float(text) - value) <= 2e-5 * abs(value) + 1e-7


def smooth(values, weight):
    """TensorBoard's: an exponential moving average, divided by what a constant 1 would have become."""
    last, all_of_them = 0, []
    for n, value in enumerate(values, 1):
        last = last * weight + (1 - weight) * value
        all_of_them.append(last / (1 - weight**n))
    return all_of_them


def hover(browser, title, x):
    browser.mouse("mouseMoved", *browser.run(f"pixel({title!r}, {x})"))
    return browser.run("tip()")


def check_hover(browser, losses):
    """The tooltip has the values of the file at that step, smoothed ones too; the crosshair is in all charts."""
    rows = hover(browser, "Loss", 3.2)
    assert [row[0] for row in rows] == ["training", "validation"], rows
    assert near(rows[0][1], losses[320]) and rows[0][3] == "step 320, epoch 3.2", rows
    assert near(rows[1][1], losses[300]) and rows[1][3] == "step 300, epoch 3", rows
    assert browser.run('$(".cross").length') == N_CHARTS
    browser.run('set($("input[type=range]")[0], 0.6)')
    rows = hover(browser, "Loss", 3.2)
    expected = smooth([losses[step] for step in sorted(losses)], 0.6)[sorted(losses).index(320)]
    assert near(rows[0][1], expected) and near(rows[0][2].split()[1], losses[320]), (rows, expected)
    browser.run('set($("input[type=range]")[0], 0)')
    axes = {"step": (320, "step"), "relative": (40, "relative time, seconds"), "wall": (1769860840, "wall time (UTC)")}
    for axis, (x, title) in axes.items():
        browser.run(f'set($("select")[0], "{axis}")')
        assert browser.run('chart("Loss").note.textContent') == f"loss over {title}"
        assert len(hover(browser, "Loss", x)) == 2
    assert "12:00:30" in browser.run('labels("Loss")')
    browser.run('set($("select")[0], "epoch")')


def check_zoom(browser):
    """By dragging, in all charts; the wheel moves; a double click shows all."""
    (x0, y), (x1, _) = browser.run('pixel("Loss", 2)'), browser.run('pixel("Loss", 4)')
    browser.mouse("mousePressed", x0, y, button="left", clickCount=1)
    browser.mouse("mouseMoved", x1, y, button="left")
    assert browser.run('$(".box").length') == 1
    browser.mouse("mouseReleased", x1, y, button="left", clickCount=1)
    for title in ("Loss", "Throughput"):
        low, high = browser.run(f"[chart({title!r}).x0, chart({title!r}).x1]")
        assert abs(low - 2) < 0.05 and abs(high - 4) < 0.05, (title, low, high)
        assert "3" in browser.run(f"labels({title!r})") and "8" not in browser.run(f"labels({title!r})")
    browser.mouse("mouseWheel", x0, y, deltaX=100, deltaY=0)
    browser.run("new Promise((done) => setTimeout(done, 300))")
    assert browser.run('chart("Loss").x0') > low + 0.1
    browser.mouse("mousePressed", x0, y, button="left", clickCount=2)
    browser.mouse("mouseReleased", x0, y, button="left", clickCount=2)
    assert browser.run('[chart("Loss").x0, chart("Loss").x1]') == [0, 8]


def check_keys(browser):
    """Everything can be reached with Tab, in the order of the page; arrows read the values of a chart."""
    show(browser)
    met = []
    while ["body", ""] not in met:
        browser.press("Tab")
        met.append(browser.run("focused()"))
    names = [name for name, _ in met]
    assert names.index("a") < names.index("select") < names.index("svg"), met
    assert ["button", "log"] in met and names.count("svg") == N_CHARTS, met
    browser.run('chart("Loss").svg.focus()')
    browser.press("ArrowRight")
    browser.press("ArrowRight")
    assert browser.run("tip()")[0][3] == "step 20, epoch 0.2"
    browser.press("+")
    assert browser.run('chart("Loss").x1 - chart("Loss").x0') == 4
    browser.press("+", modifiers=2)  # that of the browser
    assert browser.run('chart("Loss").x1 - chart("Loss").x0') == 4
    browser.press("Escape")
    assert browser.run('chart("Loss").x1') == 8 and browser.run("tip()") == []
    assert browser.run("nameless()") == [] and browser.run("twice()") == []


def check_looks(browser):
    """Narrow and wide, light and dark; log says so; with one run, and after all of that, nothing on the console."""
    for scheme in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        assert browser.run("faint()") == [], scheme
    browser.run('$("button.log", chart("Loss").figure)[0].click()')
    assert browser.run('chart("Loss").note.textContent') == "loss (logarithmic) over epoch"
    for width in (390, 1280):
        browser.resize(width)
        assert browser.run("document.documentElement.scrollWidth") <= width
    for method in ("Page.captureScreenshot", "Page.printToPDF"):
        assert len(base64.b64decode(browser.call(method)["data"])) > 10000, method


def check_runs(browser, losses):
    """Legends, a diverged run, equal runs."""
    texts = browser.run('$(".legend button", chart("Loss").figure).map((one) => one.textContent)')
    assert "same, training = a" in texts and "<b>, validation" in texts, texts
    note = browser.run('chart("Loss").note.textContent')
    assert "wild, training: outside, up to" in note and "\u25b2 a" not in note, note
    assert browser.run('chart("Loss").y1') < 5
    browser.run('named("input", "ignore outliers").click()')
    assert browser.run('chart("Loss").y1') > 1e9
    for width in (1280, 390):
        browser.resize(width)
        assert len(hover(browser, "Loss", 5)) == 12 == 2 * len(RUNS)
        assert browser.run("hiddenTip()") == [0, 0], width
    browser.resize(1280)
    browser.run('legend("Loss", "<b>, training").click()')
    rows = hover(browser, "Loss", 5)
    assert [row[0] for row in rows] == ["<b>, training", "<b>, validation"], rows
    assert near(rows[0][1], losses["<b>"][500]), rows
    assert browser.run('chart("Accuracy").shown.length') == 2
    browser.run('legend("Loss", "<b>, training").click()')
    assert browser.run('chart("Accuracy").shown.length') == 2 * len(RUNS)
    browser.run('$("i", legend("Loss", "<b>, training"))[0].click()')
    assert browser.run('chart("Accuracy").shown.length') == 2 * len(RUNS) - 2


def check_table(browser):
    names = '$(".runs tbody tr").filter((row) => !row.hidden).map((row) => row.cells[0].textContent)'
    browser.run('named(".runs th button", "schedule.lr").click()')
    assert browser.run(names) == sorted(RUNS, key=lambda name: RUNS[name]), browser.run(names)
    browser.run('set($("input[type=search]")[0], "wild")')
    assert browser.run(names) == ["wild"]
    browser.run('named("details input", "status").click()')
    browser.run('Object.defineProperty(navigator, "clipboard", {value: {writeText: (text) => window.copied = text}})')
    browser.run('named("button", "copy as CSV").click()')
    head, row = browser.run("window.copied").splitlines()
    assert head.startswith("run,trained,best loss") and "status" not in head, head
    assert row.startswith('wild,"800 steps, 8 epochs",'), row
    assert browser.run('$(".parallel .curve").length') == len(RUNS)


def check_pictures(browser):
    """They enlarge on click and by key."""
    browser.run('$(".enlarge")[0].focus()')
    browser.press("Enter")
    assert browser.run('$("dialog[open] img").length') == 1
    browser.press("Escape")
    browser.run("new Promise((done) => setTimeout(done, 100))")
    assert browser.run('$("dialog").length') == 0


def check_scaling(browser):
    """Intervals, the ideal line and the marks of ranks that share a CPU are there with the script too."""
    os.mkdir("scaled")
    for ranks, rates in ((1, (100, 104, 99)), (2, (190, 150, 199))):
        for i, rate in enumerate(rates):
            with open(f"scaled/weak-np{ranks}-{i}.json", "w", encoding="utf-8") as file:
                json.dump({"images_per_s": rate, "step_median_s": 1 / rate, "ranks_per_cpu": ranks}, file)
    subprocess.run([SCALING, "scaled"], check=True, capture_output=True)
    show(browser, "scaled/scaling.html")
    rows = hover(browser, "Throughput of all ranks", 2)
    assert rows == [["weak", "190", "", "2 ranks"], ["ideal", "200", "", "2 ranks"]], rows
    assert browser.run('$(".mark", chart("Throughput of all ranks").svg).length') == 1
    assert browser.run('$(".note").some((one) => one.textContent === "images/s over ranks")')
    assert browser.run("faint()") == [] == browser.run("nameless()") and not browser.complaints()


def check_without_script(browser):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.show("page.html")
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.run('[...document.querySelectorAll("figure > svg > svg > text[style]")].map((one) => one.textContent)') == ["Loss", "Accuracy"]
    assert browser.run('[...document.querySelectorAll("figure:has(> script)")].map((one) => one.checkVisibility())') == [False] * N_CHARTS
    assert browser.run('document.querySelectorAll(".tools, .tip").length') == 0
    lengths = '[...document.querySelectorAll("path.curve:not([d$=h24])")].map((path) => path.getTotalLength())'
    assert min(browser.run(lengths)) > 50


if not BROWSER:
    print("skipped: no Chromium (apt-get install chromium-headless-shell)")
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    LOSSES = {name: write_run(name, rate) for name, rate in RUNS.items()}
    with open("evil.html", "w", encoding="utf-8") as file:
        file.write(f"<title>{EVIL}")
    with open("a/samples.png", "wb") as file:
        file.write(base64.b64decode(PIXEL))
    with contextlib.closing(Browser()) as chromium:
        chromium.show("evil.html")
        assert len(chromium.complaints()) >= 2  # the texts do harm where they are not escaped
        report("a")
        show(chromium)
        check_hover(chromium, LOSSES["a"])
        check_zoom(chromium)
        check_keys(chromium)
        check_pictures(chromium)
        check_looks(chromium)
        assert not chromium.complaints(), chromium.complaints()
        check_scaling(chromium)
        check_without_script(chromium)
        report(*RUNS)
        show(chromium)
        check_runs(chromium, LOSSES)
        check_table(chromium)
        assert not chromium.complaints(), chromium.complaints()
