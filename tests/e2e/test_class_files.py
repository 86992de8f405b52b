"""What a run of a classifier leaves of its classes and errors: classes.json, confusion.svg, errors.csv and errors.jpg
are those of `dtrain eval`, and the same on two ranks as on one; a failure to write them is a warning.

    python3 test_class_files.py BUILD/dtrain"""

import csv
import json
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import content, run, train, write, write_config  # noqa: E402

FILES = ("classes.json", "confusion.svg", "errors.csv", "errors.jpg")
ODD = 'ring, "<&>"'
CONFIG = {
    "model": {"name": "tiny", "image_size": 32},
    "data": {"source": "folder", "train": "train", "val": "val", "workers": 1, "max_bad_fraction": 0.1},
    "train": {"epochs": 2, "global_batch_size": 8, "deterministic": True},
    "eval": {"batch_size_per_rank": 4},
    "schedule": {"kind": "constant", "lr": 0.02, "lr_scaling": "none", "warmup_epochs": 0},
    "device": {"kind": "cpu", "threads": 1},
    "output": {"telemetry_s": 0},
}


def rows_of(*path):
    with open(os.path.join(*path), newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def make_images():
    """Ten classes, one with a name that needs quotes; one image that cannot be read."""
    run("demo-data", "train", "--images-per-class", "8", "--size", "32", "--seed", "1")
    run("demo-data", "val", "--images-per-class", "5", "--size", "40", "--seed", "2")
    for part in ("train", "val"):
        os.rename(f"{part}/ring", f"{part}/{ODD}")
    write("val/square/00003.jpg", "no image")
    write_config(CONFIG)


def evaluate(*options):
    """The lines on stdout; p.csv and c.csv."""
    files = ["--per-class", "--confusion", "c.csv", "--predictions", "p.csv"]
    return run("eval", "run@latest", *files, "--set", "data.val=val", *options).stdout.splitlines()


def check_errors(folder):
    """Those with the highest probability, in the order of the images where they are equal."""
    wrong = [row for row in rows_of("p.csv") if row["prediction"] not in ("", row["label"])]
    wrong.sort(key=lambda row: -float(row["p_" + row["prediction"]]))
    wanted = [(row["file"], row["label"], row["prediction"], row["p_" + row["prediction"]]) for row in wrong[:12]]
    assert [tuple(row.values()) for row in rows_of(folder, "errors.csv")] == wanted and len(wanted) == 12, wanted
    assert content(folder, "errors.jpg")[:2] == b"\xff\xd8"


def check_classes(lines):
    """Equal to the table that --per-class prints, and to the matrix."""
    run("eval", "run@latest", "--confusion", "c.svg", "--set", "data.val=val")
    assert content("run", "confusion.svg") == content("c.svg")
    matrix = {row.pop("label"): {name: int(n) for name, n in row.items()} for row in rows_of("c.csv")}
    classes = json.loads(content("run", "classes.json"))
    assert len(classes) == len(matrix) == 10 and ODD in matrix, classes
    for row, line in zip(classes, lines[1:]):
        name, shares = row["class"], [100 * row[key] for key in ("precision", "recall", "f1")]
        assert line == "%11.2f%10.2f%10.2f%10s  %s" % (*shares, row["images"], name), (line, row)
        assert row["images"] == sum(matrix[name].values()) == 5, row
        assert row["predicted"] == sum(part[name] for part in matrix.values()), row
        others = {other: n for other, n in matrix[name].items() if other != name}
        most = max(others, key=others.get)
        assert (row["confused_with"], row["confused"]) == (most if others[most] else "", others[most]), row


def train_still(folder, *changes, ranks=1):
    """The weights do not move."""
    still = ["model.initial_checkpoint=run/checkpoints/latest", "schedule.lr=1e-30", "train.max_steps=1"]
    train(folder, *still, *changes, ranks=ranks)


def check_ranks():
    for ranks in (1, 2):
        train_still(f"on{ranks}", ranks=ranks)
    for name in FILES:
        assert content("on1", name) == content("on2", name) == content("run", name), name


def check_flip():
    """The probabilities are those that are evaluated: the mean of an image and its mirror image."""
    train_still("flip", "eval.tta=flip")
    evaluate("--set", "eval.tta=flip")
    check_errors("flip")
    assert content("flip", "errors.csv") != content("run", "errors.csv")


def check_page():
    run("report", "run", "-o", "page.html")
    page = content("page.html").decode()
    assert "ring, &#34;&#60;&#38;&#62;&#34;" in page and "worst errors, newest evaluation" in page, page[-3000:]


def check_failure():
    os.makedirs("warned/classes.json/in the way")
    said = train("warned", "train.epochs=1").said
    assert len(re.findall("warning: not all tables and pictures of the evaluation: .*classes.json", said)) == 1, said
    shutil.rmtree("warned/classes.json")


make_images()
train("run", ranks=2)
check_classes(evaluate())
check_errors("run")
check_ranks()
check_flip()
check_page()
check_failure()
