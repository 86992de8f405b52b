"""scripts/split_data.py: every image is in one part, groups are not split, classes have their shares; bad input is named."""

import collections
import csv
import os
import random
import subprocess
import sys
import tempfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "split_data.py")


def split(*words, code=0):
    done = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, check=False)
    assert done.returncode == code and "Traceback" not in done.stderr, (words, done.stderr)
    return done.stdout + done.stderr


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        found = [(os.path.normpath(os.path.join(os.path.dirname(path), r["path"])), r["label"]) for r in csv.DictReader(file)]
    assert all(os.path.isfile(image) for image, _ in found), path
    return found


def patient(image):
    return os.path.basename(image).split("_")[0]


def make(draw):
    """Images in class folders, and a table of them; a patient has one to six, mostly of one class."""
    table = []
    for i in range(150):
        usual = draw.choice(["a", "a", "b", "c"])
        for k in range(draw.randrange(1, 7)):
            label = usual if draw.random() < 0.8 else "c"
            path = f"set/{label}/p{i}_{k}.jpg"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8"):
                table.append((path, label, f"p{i}"))
    with open("all.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("path", "label", "patient"), *table])
    return sorted((path, label) for path, label, _ in table)


def check_folds(everything):
    total = collections.Counter(label for _, label in everything)
    for source, group in (("set", "(p[0-9]+)_"), ("all.csv", "patient")):
        split(source, "out/folds", "--k", "5", "--group", group)
        folds = [rows(f"out/folds/val-{i}.csv") for i in range(5)]
        assert sorted(sum(folds, [])) == everything
        for i, fold in enumerate(folds):
            train = rows(f"out/folds/train-{i}.csv")
            assert sorted(train + fold) == everything
            assert not {patient(image) for image, _ in train} & {patient(image) for image, _ in fold}
            counts = collections.Counter(label for _, label in fold)
            for label, n in total.items():
                assert abs(counts[label] - n / 5) <= 0.1 * n / 5 + 3, (i, label, counts, total)


def check_parts(everything):
    split("set", "out", "--val", "0.2", "--test", "0.1")
    parts = [rows(f"out/{name}.csv") for name in ("train", "val", "test")]
    assert sorted(sum(parts, [])) == everything
    assert abs(len(parts[1]) / len(everything) - 0.2) < 0.02 and abs(len(parts[2]) / len(everything) - 0.1) < 0.02
    split("set", "again", "--val", "0.2", "--test", "0.1")
    split("set", "other", "--val", "0.2", "--test", "0.1", "--seed", "2")
    assert rows("again/val.csv") == parts[1] != rows("other/val.csv")


def check_bad():
    assert "no column label: the first line names path, class" in split("bad.csv", "out", code=1)
    assert "the pattern (q) does not match" in split("set", "out", "--group", "(q)", code=1)
    assert "has no value in the column study" in split("all.csv", "out", "--group", "study", code=1)
    assert "1 groups cannot be split into 5 parts" in split("set", "out", "--k", "5", "--group", "(jpg)", code=1)
    assert "cannot use nowhere" in split("nowhere", "out", code=1)
    assert "leave images for training" in split("set", "out", "--val", "1", code=1)


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    made = make(random.Random(5))
    with open("bad.csv", "w", encoding="utf-8") as bad:
        bad.write("path,class\na,b\n")
    check_folds(made)
    check_parts(made)
    check_bad()
    os.chdir("/")
