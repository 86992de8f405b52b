"""What a detector shows: pictures of validation images in the run folder, in TensorBoard and in the report, and
`dtrain predict`: lines and pictures of detections, and what it refuses.

    python3 test_detect_pictures.py BUILD/dtrain"""

import glob
import os
import subprocess
import sys

import numpy as np
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "faults"))

import rig as faults  # pylint: disable=wrong-import-position

COMMON = {
    **faults.DETECTOR,
    "model.num_classes": 3,
    "data.synthetic_train": 6,
    "data.synthetic_val": 6,
    "train.global_batch_size": 6,
    "train.max_steps": 0,
    "train.epochs": 2,
    "eval.every_epochs": 1,
    "eval.batch_size_per_rank": 2,
    "eval.score_threshold": 0.01,
    "output.telemetry_s": 0,
    "output.sinks": '["console","jsonl","tensorboard"]',
}


def read(path):
    with open(path, "rb") as file:
        return file.read()


def call(rig, *arguments, code=0):
    """What it printed, on stdout and on stderr."""
    done = subprocess.run([rig.program, *arguments], capture_output=True, text=True, timeout=100, check=False)
    rig.check(done.returncode == code, f"{arguments}: exit code {done.returncode}: {done.stderr}")
    return done.stdout, done.stderr


def check_training(rig):
    out = rig.folder("run")
    rig.finish(1, out, sets=COMMON)
    events = [event for event in faults.events(out) if event["event"] in ("detections", "eval")]
    rig.check([event["event"] for event in events] == ["eval", "detections"] * 2, f"{events}")
    path = os.path.join(out, "detections.jpg")
    size = Image.open(path).size
    rig.check(size == (events[3]["width"], events[3]["height"]), f"{size}, but {events[3]}")
    (records,) = glob.glob(f"{out}/tensorboard/*")
    rig.check(read(records).count(b"\x0a\x0adetections") == 2, "not two pictures in TensorBoard")
    rig.check(read(path) in read(records), "the newest picture is not in TensorBoard")
    page = os.path.join(rig.work, "page.html")
    call(rig, "report", out, "-o", page)
    text = read(page).decode()
    for wanted in ("validation images, newest evaluation", "Average precision (COCO)", "best ap"):
        rig.check(wanted in text, f"no {wanted!r} on the page")
    return out


def predict(rig, out, *arguments, code=0):
    """Lines of detections as lists, and the log."""
    text, log = call(rig, "predict", out, *arguments, code=code)
    lines = [line.split("\t") for line in text.splitlines()]
    return [[line[0], line[1], *map(float, line[2:])] for line in lines], log


def check_lines(rig, out, folder):
    """By falling score, inside the images; --top and --min-score take the first of them."""
    lines, _ = predict(rig, out, folder, "--min-score", "0")
    names = [os.path.join(folder, name) for name in ("a.jpg", "b.png", "c.jpg")]
    rig.check([name for name in names if any(line[0] == name for line in lines)] == names, f"{lines}")
    rig.check([line[0] for line in lines] == sorted(line[0] for line in lines), "not in the order of the images")
    for name in names:
        own = [line for line in lines if line[0] == name]
        width, height = Image.open(name).size
        rig.check(own == sorted(own, key=lambda line: -line[2]), f"{name}: {own}")
        for _, label, score, x1, y1, x2, y2 in own:
            inside = 0 <= x1 <= x2 <= width + 0.01 and 0 <= y1 <= y2 <= height + 0.01
            rig.check(inside and label in "012" and 0.01 < score < 1, f"{name}: {own}")
    level = sorted(line[2] for line in lines)[len(lines) // 2]
    few, _ = predict(rig, out, folder, "--min-score", f"{level * 0.9999999}")
    rig.check(few == [line for line in lines if line[2] >= level], f"above {level}: {few}")
    top, _ = predict(rig, out, folder, "--min-score", "0", "--top", "2")
    rig.check(top == [line for name in names for line in [l for l in lines if l[0] == name][:2]], f"{top}")


def check_pictures(rig, out, folder):
    """Of the images' sizes; where nothing is found the pixels are the same."""
    boxes = os.path.join(rig.work, "boxes")
    lines, _ = predict(rig, out, folder, "--min-score", "0", "--top", "1", "-o", boxes)
    rig.check(sorted(os.listdir(boxes)) == ["a.jpg", "b.png", "c.jpg"], f"{os.listdir(boxes)}")
    for name, _, _, x1, y1, x2, y2 in lines:
        image = np.asarray(Image.open(name).convert("RGB")).astype(int)
        picture = np.asarray(Image.open(os.path.join(boxes, os.path.basename(name)))).astype(int)
        changed = np.abs(picture - image).max(2) > 60
        rows, columns = map(round, ((y1 + y2) / 2, (x1 + x2) / 2))
        edges = changed[rows, min(round(x1), image.shape[1] - 1)], changed[min(round(y2), image.shape[0]) - 1, columns]
        rig.check(picture.shape == image.shape and all(edges), f"{name}: no frame at {x1, y1, x2, y2}")
    same, _ = predict(rig, out, folder, "--min-score", "1", "-o", boxes)
    rig.check(same == [], f"{same}")
    image, picture = (np.asarray(Image.open(f"{where}/b.png").convert("RGB")) for where in (folder, boxes))
    rig.check((image == picture).all(), "pixels differ without a box")


def check_refusals(rig, out, folder):
    before = read(os.path.join(folder, "a.jpg"))
    _, text = predict(rig, out, folder, "-o", folder, code=64)
    rig.check("could be replaced" in text and read(os.path.join(folder, "a.jpg")) == before, text)
    other = os.path.join(rig.work, "other")
    os.mkdir(other)
    Image.open(os.path.join(folder, "a.jpg")).save(os.path.join(other, "a.jpg"))
    _, text = predict(rig, out, folder, other, "-o", os.path.join(rig.work, "boxes2"), code=64)
    rig.check("two of the pictures would be called a.jpg" in text, text)
    with open(os.path.join(other, "bad.jpg"), "w", encoding="utf-8") as file:
        file.write("no image")
    lines, text = predict(rig, out, other, "--min-score", "0", "-o", os.path.join(rig.work, "boxes3"), code=65)
    rig.check(lines and "1 of 2 images cannot be read" in text, text)
    rig.check(os.listdir(os.path.join(rig.work, "boxes3")) == ["a.jpg"], "a picture of a bad image")
    _, text = predict(rig, out, other, "--min-score", "2", code=64)
    rig.check("is not a number from 0 to 1" in text, text)


def make_images(rig):
    folder = os.path.join(rig.work, "images")
    os.mkdir(folder)
    random = np.random.default_rng(1)
    for name, height, width in (("a.jpg", 60, 90), ("b.png", 120, 70), ("c.jpg", 64, 64)):
        rough = random.integers(80, 120, (4, 4, 3), dtype=np.uint8)  # darker than any frame
        Image.fromarray(rough).resize((width, height), Image.BILINEAR).save(os.path.join(folder, name))
    return folder


def campaign(rig):
    out = check_training(rig)
    folder = make_images(rig)
    check_lines(rig, out, folder)
    check_pictures(rig, out, folder)
    check_refusals(rig, out, folder)


if __name__ == "__main__":
    faults.main(campaign, __doc__)
