"""What `dtrain eval` says of single classes and images: --per-class, --confusion, --predictions and
eval.tta on 1, 2 and 3 ranks, against values computed here from the table of predictions.

    python3 test_eval_tables.py BUILD/dtrain"""

import csv
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import content, events, run, write, write_config  # noqa: E402

METRICS = "loss top1 top5 balanced_accuracy macro_f1 auc average_precision sensitivity specificity"
CONFIG = {
    "model": {"name": "resnet20", "num_classes": 2, "image_size": 32},
    "data": {"source": "folder", "train": "train", "val": "val", "workers": 1, "val_resize": 32},
    "train": {"epochs": 100, "max_steps": 40, "global_batch_size": 8, "deterministic": True},
    "eval": {"every_epochs": 0, "batch_size_per_rank": 4, "metrics": METRICS.split()},
    "schedule": {"kind": "constant", "lr": 0.005, "lr_scaling": "none", "warmup_epochs": 0},
    "device": {"kind": "cpu", "threads": 1},
    "output": {"log_every": 1, "log_every_s": 0},
}


def evaluate(ranks, name, *arguments):
    """The lines of stdout, and the rows of predictions."""
    tables = ["--per-class", "--confusion", f"{name}.svg", "--predictions", f"{name}.csv"]
    done = run("eval", "--config", "config.json", "--weights", "run", *tables, *arguments, ranks=ranks)
    with open(f"{name}.csv", newline="", encoding="utf-8") as file:
        return done.stdout.splitlines(), list(csv.DictReader(file))


def make_images():
    """Two classes, 7 : 20 images to validate on; one name needs quotes."""
    run("demo-data", "all", "--images-per-class", "20", "--size", "32", "--seed", "1")
    for part in ("train", "val"):
        os.makedirs(part)
        shutil.copytree("all/ring", f"{part}/a ring, round")
        shutil.copytree("all/square", f"{part}/square")
    for i in range(7, 20):
        os.remove(f"val/a ring, round/{i:05}.jpg")
    write_config(CONFIG)


def same_on_all_ranks(name, *arguments, most=3):
    tables = []
    for ranks in (1, most):
        lines, rows = evaluate(ranks, name, *arguments)
        tables.append((lines, content(f"{name}.csv"), content(f"{name}.svg")))
    assert tables[0] == tables[1], "ranks differ"
    return lines, rows


def expect_metrics(rows):
    """From the rows; class 1, square, is the positive one."""
    pairs = [(row["label"] == "square", float(row["p_square"])) for row in rows]
    scores = [[p for label, p in pairs if label == side] for side in (False, True)]
    wins = sum((b > a) + (b == a) / 2 for a in scores[0] for b in scores[1])
    recalls = [
        sum(row["prediction"] == name for row in rows if row["label"] == name) / len(part)
        for name, part in zip(("a ring, round", "square"), scores)
    ]
    return {
        "images": len(rows),
        "top1": 100 * sum(row["prediction"] == row["label"] for row in rows) / len(rows),
        "auc": wins / len(scores[0]) / len(scores[1]),
        "specificity": 100 * recalls[0],
        "sensitivity": 100 * recalls[1],
        "balanced_accuracy": 50 * sum(recalls),
    }


def check_metrics(lines, rows):
    got = json.loads(lines[-1])
    assert "top5" not in got, got
    for key, value in expect_metrics(rows).items():
        assert abs(got[key] - value) < 2e-6, (key, value, got)
    return got


def test_two_classes():
    lines, rows = same_on_all_ranks("plain")
    got = check_metrics(lines, rows)
    files = [f"val/a ring, round/{i:05}.jpg" for i in range(7)]
    files += [f"val/square/{i:05}.jpg" for i in range(20)]
    assert [row["file"] for row in rows] == files
    for row in rows:
        p = float(row["p_a ring, round"]), float(row["p_square"])
        assert abs(sum(p) - 1) < 1e-8 and row["prediction"] == ("square" if p[1] > p[0] else
                                                                 "a ring, round"), row
    assert lines[0].split() == "precision % recall % F1 % support class".split(), lines
    assert lines[1].endswith("         7  a ring, round") and lines[2].endswith("20  square"), lines
    assert "Youden" in lines[-2], lines
    assert b"a ring, round</text>" in content("plain.svg")
    return got, rows


def check_events(got):
    """The evaluation at the end of training is the same; top5 says nothing of two classes."""
    event = events("run", "eval")[-1]
    for key in METRICS.split():
        assert key == "top5" or abs(event[key] - got[key]) < 1e-4, (key, event, got)
    assert not [e for kind in ("step", "eval", "run_end") for e in events("run", kind) if "top5" in e], "top5 of two classes"


def test_confusion_csv():
    run("eval", "--config", "config.json", "--weights", "run", "--confusion", "c.csv", ranks=2)
    with open("c.csv", newline="", encoding="utf-8") as file:
        table = list(csv.reader(file))
    assert table[0] == ["label", "a ring, round", "square"], table
    assert [sum(map(int, row[1:])) for row in table[1:]] == [7, 20], table


def test_bad_image():
    """It keeps its row, without a prediction."""
    shutil.copytree("val", "val_bad")
    write("val_bad/square/00003.jpg", "no image")
    sets = ["--set", "data.val=val_bad", "--set", "data.max_bad_fraction=0.1"]
    _, rows = same_on_all_ranks("bad", *sets)
    assert len(rows) == 27 and rows[10] == {
        "file": "val_bad/square/00003.jpg", "label": "square", "prediction": "",
        "p_a ring, round": "", "p_square": ""}, rows[10]


def test_flip(plain):
    """The mean of the probabilities of an image and its mirror. Mirrored JPEG files decode to
    mirrored pixels, give or take rounding."""
    for folder, _, names in os.walk("val"):
        os.makedirs(folder.replace("val", "mirrored", 1), exist_ok=True)
        for name in names:
            path = os.path.join(folder, name)
            out = path.replace("val", "mirrored", 1)
            subprocess.run(["jpegtran", "-perfect", "-flip", "horizontal", "-outfile", out, path],
                           check=True)
    _, mirrored = evaluate(1, "mirrored", "--set", "data.val=mirrored")
    lines, rows = same_on_all_ranks("flip", "--set", "eval.tta=flip", most=2)
    got = check_metrics(lines, rows)
    p, q, mean = ([float(row["p_square"]) for row in table] for table in (plain, mirrored, rows))
    assert max(abs(a - b) for a, b in zip(p, q)) > 0.01, "mirrored images look the same"
    worst = max(abs((a + b) / 2 - c) for a, b, c in zip(p, q, mean))
    assert worst < 0.01, worst
    loss = json.loads(lines[-1])["loss"]
    assert loss > 0 and got["images"] == 27


def test_one_class():
    """Sensitivity and specificity are recalls: one of them, the AUC and no more are undefined."""
    shutil.copytree("val", "val_one")
    for name in os.listdir("val_one/a ring, round"):
        os.remove(f"val_one/a ring, round/{name}")
    done = run("eval", "run", "--set", "data.val=val_one", ranks=2)
    got = json.loads(done.stdout)
    assert "sensitivity" in got and "balanced_accuracy" in got, got
    assert got["average_precision"] == 1, got
    assert "auc" not in got and "specificity" not in got, got
    for name in ("auc", "specificity"):
        assert f"{name} is undefined and omitted" in done.stderr, done.stderr


def write_on_full_disk(call, ranks=1):
    """Whether a call failed: one message, nothing half-written, the old file stays."""
    write("full.csv", "old\n")
    done = run("eval", "--config", "config.json", "--weights", "run", "--predictions", "full.csv", code=None,
               ranks=ranks, env={"DTRAIN_FAULT": f"enospc@io:{call}"})
    assert not [name for name in os.listdir() if name.startswith(".tmp")], call
    if "error[" not in done.stderr:
        assert done.returncode == 0, done.stderr
        return False
    assert done.returncode in (73, 74), (call, done.stderr)
    assert done.stderr.count("error[") == 1 and done.stdout == "", (call, done.stderr)
    assert content("full.csv") == b"old\n" or "sync folder" in done.stderr, (call, done.stderr)
    return True


def test_full_disk():
    """Every third call."""
    for ranks, least in (1, 8), (2, 3):
        n = next(call for call in range(1, 99, 3) if not write_on_full_disk(call, ranks))
        assert least <= n < 32, n


def test_refusals():
    base = ["eval", "--config", "config.json", "--weights", "run"]
    done = run(*base, "--confusion", "c.png", ranks=2, code=64)
    assert ".csv or .svg" in done.stderr, done.stderr
    write("kept.csv", "old\n")
    run(*base[:-1], "nowhere", "--predictions", "kept.csv", ranks=2, code=66)
    run(*base, "--predictions", "none/p.csv", code=73)
    assert content("kept.csv") == b"old\n"
    assert not [name for name in os.listdir() if name.startswith(".tmp")], os.listdir()
    ten = ["--set", "model.num_classes=10", "--set", "data.train=all", "--set", "data.val=all"]
    done = run("train", "--config", "config.json", "--out", "no", *ten, code=78, ranks=2)
    assert "eval.metrics: auc is defined for two classes" in done.stderr, done.stderr
    assert done.stderr.count("error[") == 1, done.stderr
    done = run("train", "--config", "config.json", "--out", "no", "--set", "early_stop.metric=top5", code=78)
    assert "early_stop.metric: top5 needs at least 6" in done.stderr, done.stderr


make_images()
run("train", "--config", "config.json", "--out", "run")
result, predictions = test_two_classes()
check_events(result)
test_confusion_csv()
test_bad_image()
test_flip(predictions)
test_one_class()
test_full_disk()
test_refusals()
print(result)
