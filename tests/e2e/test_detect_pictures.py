"""What a detector shows: pictures of validation images in the run folder, in TensorBoard and in the report, and
`dtrain predict`: lines and pictures of detections, and what it refuses.

    python3 test_detect_pictures.py BUILD/dtrain"""

import glob
import os
import subprocess
import sys

from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import TESTS, content, events, load, np, rig, run, train, write, write_config  # noqa: E402

COMMON = {
    **rig.DETECTOR,
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


def check_training():
    train("run", COMMON)
    kinds = [event["event"] for event in rig.events("run") if event["event"] in ("detections", "eval")]
    assert kinds == ["eval", "detections"] * 2, kinds
    size, last = Image.open("run/detections.jpg").size, events("run", "detections")[1]
    assert size == (last["width"], last["height"]), f"{size}, but {last}"
    (records,) = glob.glob("run/tensorboard/*")
    assert content(records).count(b"\x0a\x0adetections") == 2, "not two pictures in TensorBoard"
    assert content("run/detections.jpg") in content(records), "the newest picture is not in TensorBoard"
    run("report", "run", "-o", "page.html")
    text = content("page.html").decode()
    for wanted in ("validation images, newest evaluation", "Average precision (COCO)", "best ap"):
        assert wanted in text, f"no {wanted!r} on the page"


def predict(*arguments, code=0):
    """Lines of detections as lists, and the log."""
    done = run("predict", "run", *arguments, code=code)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    return [[line[0], line[1], *map(float, line[2:])] for line in lines], done.stderr


def check_lines(folder):
    """By falling score, inside the images; --top and --min-score take the first of them."""
    lines, _ = predict(folder, "--min-score", "0")
    names = [os.path.join(folder, name) for name in ("a.jpg", "b.png", "c.jpg")]
    assert [name for name in names if any(line[0] == name for line in lines)] == names, f"{lines}"
    assert [line[0] for line in lines] == sorted(line[0] for line in lines), "not in the order of the images"
    for name in names:
        own = [line for line in lines if line[0] == name]
        width, height = Image.open(name).size
        assert own == sorted(own, key=lambda line: -line[2]), f"{name}: {own}"
        for _, label, score, x1, y1, x2, y2 in own:
            inside = 0 <= x1 <= x2 <= width + 0.01 and 0 <= y1 <= y2 <= height + 0.01
            assert inside and label in "012" and 0.01 < score < 1, f"{name}: {own}"
    level = sorted(line[2] for line in lines)[len(lines) // 2]
    few, _ = predict(folder, "--min-score", f"{level * 0.9999999}", "--json", "few.json")
    found = [(i["image"], d["class"], d["score"], d["box"]) for i in load("few.json") for d in i["detections"]]
    assert [list(f[:2]) for f in found] == [line[:2] for line in few], found
    for (_, _, score, box), line in zip(found, few):
        assert np.allclose([score, *box], line[2:], rtol=1e-6, atol=0.006), (score, box, line)
    assert few == [line for line in lines if line[2] >= level], f"above {level}: {few}"
    top, _ = predict(folder, "--min-score", "0", "--top", "2")
    assert top == [line for name in names for line in [l for l in lines if l[0] == name][:2]], f"{top}"


def check_pictures(folder):
    """Of the images' sizes; where nothing is found the pixels are the same."""
    boxes = "boxes"
    lines, _ = predict(folder, "--min-score", "0", "--top", "1", "-o", boxes)
    assert sorted(os.listdir(boxes)) == ["a.jpg", "b.png", "c.jpg"], f"{os.listdir(boxes)}"
    for name, _, _, x1, y1, x2, y2 in lines:
        image = np.asarray(Image.open(name).convert("RGB")).astype(int)
        picture = np.asarray(Image.open(os.path.join(boxes, os.path.basename(name)))).astype(int)
        changed = np.abs(picture - image).max(2) > 60
        rows, columns = map(round, ((y1 + y2) / 2, (x1 + x2) / 2))
        edges = changed[rows, min(round(x1), image.shape[1] - 1)], changed[min(round(y2), image.shape[0]) - 1, columns]
        assert picture.shape == image.shape and all(edges), f"{name}: no frame at {x1, y1, x2, y2}"
    same, _ = predict(folder, "--min-score", "1", "-o", boxes)
    assert same == [], f"{same}"
    image, picture = (np.asarray(Image.open(f"{where}/b.png").convert("RGB")) for where in (folder, boxes))
    assert (image == picture).all(), "pixels differ without a box"


def check_yolo(folder):
    """The lines of YOLO's files are those printed; to_coco.py reads them back."""
    lines, _ = predict(folder, "--min-score", "0", "--top", "2", "-o", "yolo/images", "--yolo")
    os.rename("yolo/images/labels", "yolo/labels")
    found = []
    for path in sorted(glob.glob("yolo/labels/*.txt")):
        (name,) = glob.glob(os.path.join(folder, os.path.basename(path)[:-3] + "*"))
        width, height = Image.open(name).size
        for label, x, y, w, h in (map(float, line.split()) for line in content(path).decode().splitlines()):
            corners = [(x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height]
            found.append([name, int(label), *corners])
    assert len(found) == len(lines) > 3, (found, lines)
    for ours, line in zip(found, lines):
        assert ours[:2] == [line[0], int(line[1])] and np.allclose(ours[2:], line[3:], atol=0.01), (ours, line)
    write("yolo/data.yaml", "train: images\nnames: [a, b, c]\n")
    subprocess.run([sys.executable, f"{TESTS}/../scripts/to_coco.py", "yolo/data.yaml", "yolo.json"], check=True)
    assert len(load("yolo.json")["annotations"]) == len(lines)
    _, text = predict(folder, "--yolo", code=64)
    assert "--yolo needs a folder" in text, text


def check_refusals(folder):
    before = content(os.path.join(folder, "a.jpg"))
    _, text = predict(folder, "-o", folder, code=64)
    assert "could be replaced" in text and content(os.path.join(folder, "a.jpg")) == before, text
    other = "other"
    os.mkdir(other)
    Image.open(os.path.join(folder, "a.jpg")).save(os.path.join(other, "a.jpg"))
    _, text = predict(folder, other, "-o", "boxes2", code=64)
    assert "two of the files would be called a.jpg" in text, text
    write("other/bad.jpg", "no image")
    lines, text = predict(other, "--min-score", "0", "-o", "boxes3", code=65)
    assert lines and "1 of 2 images cannot be read" in text, text
    assert os.listdir("boxes3") == ["a.jpg"], "a picture of a bad image"
    _, text = predict(other, "--min-score", "2", code=64)
    assert "is not a number from 0 to 1" in text, text


def make_images(folder):
    os.mkdir(folder)
    random = np.random.default_rng(1)
    for name, height, width in (("a.jpg", 60, 90), ("b.png", 120, 70), ("c.jpg", 64, 64)):
        rough = random.integers(80, 120, (4, 4, 3), dtype=np.uint8)  # darker than any frame
        Image.fromarray(rough).resize((width, height), Image.BILINEAR).save(os.path.join(folder, name))


write_config(rig.SETTINGS)
check_training()
make_images("images")
check_lines("images")
check_pictures("images")
check_yolo("images")
check_refusals("images")
