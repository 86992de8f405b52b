"""dtrain predict says of single images what dtrain eval says of the same: files, a folder, a list
on standard input; an image that cannot be read does not keep the others from being predicted.

    python3 test_predict.py BUILD/dtrain"""

import csv
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import content, load, run, train, write, write_config  # noqa: E402

CONFIG = {
    "model": {"name": "resnet20", "image_size": 32},
    "data": {"source": "folder", "train": "images", "val": "images", "workers": 1},
    "train": {"epochs": 100, "max_steps": 20, "global_batch_size": 10},
    "eval": {"every_epochs": 0, "batch_size_per_rank": 8},
    "schedule": {"kind": "constant", "lr": 0.005, "lr_scaling": "none", "warmup_epochs": 0},
    "device": {"kind": "cpu", "threads": 1},
}


def expected(path):
    """Classes of an image by falling probability, as dtrain eval has them."""
    row = ROWS[path]
    pairs = [(key[2:], float(value)) for key, value in row.items() if key.startswith("p_")]
    return sorted(pairs, key=lambda pair: -pair[1])


def check(fields, path, top):
    """Class and probability in turn. Batches of another size may round differently."""
    got = list(zip(fields[::2], map(float, fields[1::2])))
    want = expected(path)[:top]
    assert len(got) == top and all(abs(a[1] - b[1]) < 1e-4 for a, b in zip(got, want)), (got, want)
    probabilities = dict(expected(path))
    assert all(abs(probabilities[name] - p) < 1e-4 for name, p in got), (got, want)


def test_one_image():
    path = "images/star/00002.jpg"
    lines = run("predict", "run", path).stdout.splitlines()
    assert len(lines) == 5, lines
    check("\t".join(lines).split("\t"), path, 5)
    lines = run("predict", "run", path, "--top", "99").stdout.splitlines()
    assert len(lines) == 10, lines


def check_table(text, paths, top):
    lines = [line.split("\t") for line in text.splitlines()]
    assert [line[0] for line in lines] == paths, (lines, paths)
    for path, *fields in lines:
        if fields or path in ROWS:
            check(fields, path, top)


def test_many():
    ring = [f"images/ring/{i:05}.jpg" for i in range(12)]
    check_table(run("predict", "run", "images/ring", "--top", "3").stdout, ring, 3)
    star = "images/star/00001.jpg"
    done = run("predict", "run", star, "-", "--top", "1", text=f"{ring[3]}\n\n{ring[1]}\r\n")
    check_table(done.stdout, [star, ring[3], ring[1]], 1)


def test_json():
    """The same as the lines, of all images in a tree of folders; -q leaves only what was asked for."""
    done = run("predict", "run", "images", "-q", "-k", "2", "--json", "all.json")
    assert len(ROWS) == 120 and done.stderr == "", done.stderr
    check_table(done.stdout, sorted(ROWS), 2)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    to_stdout = run("predict", "run", "images", "-q", "-k", "2", "--json", "-")
    assert to_stdout.stdout == content("all.json").decode() and done.stdout in to_stdout.stderr, to_stdout.said
    for image, (path, *fields) in zip(load("all.json"), lines):
        assert image["image"] == path and [c["class"] for c in image["classes"]] == fields[::2], (image, fields)
        assert all(abs(c["probability"] - float(p)) < 1e-8 for c, p in zip(image["classes"], fields[1::2])), image


def test_png():
    """The same pixels as those of a JPEG file."""
    try:
        from PIL import Image
    except ImportError:
        return
    path = "images/star/00002.jpg"
    Image.open(path).save("same.PNG")
    assert run("predict", "run", "same.PNG").stdout == run("predict", "run", path).stdout


def test_wrong_images():
    write("text.jpg", "no image")
    good = "images/ring/00001.jpg"
    done = run("predict", "run", "text.jpg", good, code=65)
    check_table(done.stdout, ["text.jpg", good], 5)
    for what in ("text.jpg: not a JPEG", "; it has no prediction\n", "1 of 2 images cannot be read"):
        assert done.stderr.count(what) == 1, (what, done.stderr)
    assert run("predict", "run", "text.jpg", code=65).stdout == ""


def test_another_folder():
    """A run finds its data from anywhere; data that have moved are named."""
    os.mkdir("elsewhere")
    os.chdir("elsewhere")
    here = run("eval", "../run").stdout
    os.rename("../images", "../moved")
    assert "/images: No such file or directory; if the data are elsewhere: --set data.val=PATH" in (
        run("eval", "../run", code=66).stderr
    )
    assert run("eval", "../run", "--set", "data.val=../moved").stdout == here
    os.rename("../moved", "../images")
    os.chdir("..")


def test_refusals():
    os.mkdir("empty")
    assert "holds no image files" in run("predict", "run", "empty", code=65).stderr
    run("predict", "run", "-", code=66)
    assert "none.jpg" in run("predict", "run", "images/ring/00001.jpg", "none.jpg", code=66).stderr
    run("predict", "nowhere", "images", code=66)
    run("predict", "run", code=64)
    run("predict", "run", "images", "--top", "0", code=64)


run("demo-data", "images", "--images-per-class", "12", "--size", "48", "--seed", "3")
write_config(CONFIG)
train("run")
run("eval", "run", "--predictions", "all.csv")
with open("all.csv", newline="", encoding="utf-8") as table:
    ROWS = {os.path.relpath(row["file"]): row for row in csv.DictReader(table)}
test_one_image()
test_many()
test_json()
test_png()
test_wrong_images()
test_another_folder()
test_refusals()
print("predict agrees with eval on", len(ROWS), "images")
