"""A detector is judged in training and by `dtrain eval`: the same numbers and detections on any number
of ranks, and what follows from them: the best checkpoint, early stop, a learning rate that drops.

    python3 test_detect_eval.py BUILD/dtrain"""

import json
import os
import re
import sys

from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import content, events, load, rig, run, sets, train, write, write_config  # noqa: E402

# Neither two ranks nor three divide the 7 images, nor do batches of 2. An epoch has 3 steps.
COMMON = {
    **rig.DETECTOR,
    "model.num_classes": 3,
    "data.synthetic_train": 18,
    "data.synthetic_val": 7,
    "data.augment": "none",
    "train.global_batch_size": 6,
    "train.max_steps": 0,
    "train.epochs": 2,
    "eval.every_epochs": 1,
    "eval.batch_size_per_rank": 2,
    "eval.score_threshold": 0.01,
    "optim.name": "adam",
    "schedule.lr": 0.001,
    "output.log_every": 1,
    "output.telemetry_s": 0,
    "checkpoint.every_steps": 0,
}
NAMES = "ap ap50 ap75 ap_small ap_medium ap_large ar1 ar10 ar100 ar_small ar_medium ar_large".split()


def judge(weights, ranks, *options, config=()):
    """The result of `dtrain eval`, the file of detections, which is the only one, and all that it printed."""
    os.mkdir("found")
    words = ["eval", "--config", "config.json", "--weights", weights, "--predictions", "found/found.json", *options]
    text = run(*words, *sets(COMMON, config), ranks=ranks).said
    assert os.listdir("found") == ["found.json"], os.listdir("found")
    os.rename("found/found.json", "found.json")
    os.rmdir("found")
    return json.loads(re.findall(r"^\{.*\}$", text, re.M)[-1]), content("found.json"), text


def check_results(results, got):
    """Of each image at most 300 detections by falling score, in images and categories that exist."""
    assert got["detections"] == len(results) > 7, got
    assert [r["image_id"] for r in results] == sorted(r["image_id"] for r in results)
    for image in range(7):
        scores = [r["score"] for r in results if r["image_id"] == image]
        assert 0 < len(scores) <= 300 and scores == sorted(scores, reverse=True), scores
    for r in results:
        x, y, w, h = r["bbox"]
        assert list(r) == ["image_id", "category_id", "bbox", "score"] and r["category_id"] in (1, 2, 3), r
        assert min(x, y, w, h) >= 0 and max(x + w, y + h) < 64.0001 and r["score"] > 0.01, r


def check_ranks():
    """The events of a run, and the same weights judged on one rank and on two."""
    text = train("ranks", COMMON, ranks=2).said
    evals, steps = events("ranks", "eval"), events("ranks", "step")
    for i, event in enumerate(evals):
        loss = sum(s["loss"] for s in steps[3 * i : 3 * i + 3]) / 3
        assert abs(event["train_loss"] / loss - 1) < 1e-6, f"train_loss {event['train_loss']}, not {loss}"
        assert event["images"] == 7 and event["detections"] > 7, event
    assert len(evals) == 2 and "top1" not in evals[0] and "loss" not in evals[0], evals
    assert re.search(r"epoch 2: train_loss \S+ ap \S+ ap50 \S+ ap75 \S+ \(7 images\)", text), text
    seen = []
    for ranks in (1, 2):
        got, found, text = judge("ranks", ranks, "--per-class")
        seen.append((got, found))
        assert len(re.findall(r"^ +[123] +\d+ +\S+ +\S+  [012]$", text, re.M)) == 3, f"no table: {text}"
        assert list(got) == ["images", "detections", *NAMES] and got["images"] == 7, got
    rows = json.loads(content("ranks/classes.json"))
    for row in rows:
        line = rf"^ +[123] +{row['objects']} +{row['ap']:.3f} +{row['ap50']:.3f}  {row['class']}$"
        assert re.search(line, text, re.M), (rows, text)
    assert len(rows) == 3, rows
    run("report", "ranks", "-o", "page.html")
    assert "<th>ap50</th>" in content("page.html").decode(), "the page has no table of classes"
    assert seen[0] == seen[1], f"ranks differ: {[got for got, _ in seen]}"
    check_results(json.loads(seen[0][1]), seen[0][0])
    for name in NAMES:
        told = evals[1].get(name, -1)
        assert abs(told - seen[0][0][name]) < 1e-6, f"{name}: {told} in training, {seen[0][0][name]} after it"
    for option, name in (("--confusion", "c.csv"), ("--predictions", "p.csv")):
        refused = run("eval", "--config", "config.json", "--weights", "ranks", option, name, *sets(COMMON), code=64)
        assert option in refused.said and not os.path.exists(name), refused.said


def check_early_stop():
    """Weights that hardly move: the first evaluation is the best one, and after the second it ends."""
    changes = {"schedule.lr": 1e-12, "train.epochs": 5, "early_stop.patience": 1, "train.restore_best": "true"}
    text = train("early", COMMON, changes).said
    assert len(events("early", "eval")) == 2 and "no better ap in 1 evaluations" in text, text
    best = os.path.basename(os.path.realpath("early/checkpoints/best"))
    assert best == "step-000000003" and events("early", "run_end")[0]["best_metric"] == "ap", f"{best}: {text}"


def check_plateau():
    """The rate drops after epochs 2 and 3, without an evaluation, on all ranks: their weights are compared after every
    epoch. A stop in the first and a kill in the third change no bit, and what follows is in the right epoch."""
    changes = COMMON, {
        "data.synthetic_train": 12,
        "data.synthetic_val": 0,
        "train.epochs": 4,
        "train.ema_decay": 0.9,
        "train.replica_check_every": 2,
        "schedule.kind": "plateau",
        "schedule.patience": 0,
        "schedule.threshold": 0.9,
    }
    train("whole", *changes, ranks=2)
    rates = [step["lr"] for step in events("whole", "step")]
    wanted = [1e-3] * 4 + [1e-4] * 2 + [1e-5] * 2
    assert all(abs(a / b - 1) < 1e-9 for a, b in zip(rates, wanted)) and len(rates) == 8, rates
    train("parts", *changes, "train.max_steps=1", ranks=2)
    killed = train("parts", *changes, "checkpoint.every_steps=4", ranks=2, env={"DTRAIN_FAULT": "kill@5:1"}, code=None)
    assert killed.returncode != 0, killed.said
    n_before = len(events("parts", "step"))
    train("parts", *changes, ranks=2)
    first = events("parts", "run_start")[-1]["start_step"]
    places = [(s["step"], s["epoch"]) for s in events("parts", "step")[n_before:]]
    assert first >= 1 and places == [(i + 1, i // 2 + 1) for i in range(first, 8)], (first, places)
    assert rig.state_of("whole") == rig.state_of("parts"), "a run in parts differs"


def write_images(folder):
    """Seven images in two formats, the last one broken, with boxes of the categories 3 and 7 and a crowd. Their ids are
    texts. Three more rows are of no use."""
    os.makedirs(folder)
    images, boxes = [], []
    for i in range(7):
        width, height = ((120, 90), (60, 100))[i % 2]
        name = f"{i}.png"
        Image.effect_noise((width, height), 90).convert("RGB").save(os.path.join(folder, name))
        images.append({"id": f'"{50 - i}\\', "file_name": name, "width": width, "height": height})
        for k in range(1 + i % 3):
            box = [10 * k + 0.5, 5 * k, 30 + i, 40.25]
            boxes.append({"id": len(boxes) + 1, "image_id": images[-1]["id"], "category_id": (3, 7)[(i + k) % 2]})
            boxes[-1].update(bbox=box, area=box[2] * box[3], iscrowd=int(i == 2 and k == 1))
    write(os.path.join(folder, "6.png"), b"no image")
    categories = [{"id": 7, "name": "cat"}, {"id": 3, "name": "dog"}]
    write(os.path.join(folder, "image_info.json"), {"images": images, "categories": categories})
    boxes[:0] = {**boxes[0], "id": 90, "area": None}, {**boxes[0], "id": 91, "image_id": "gone"}
    images = [{"file_name": "/a.png", "width": 9, "height": 9, "id": "slash"}, *images]
    boxes.append({**boxes[2], "id": 92, "image_id": "slash"})
    return write(os.path.join(folder, "boxes.json"), {"images": images, "annotations": boxes, "categories": categories})


def check_files():
    """Boxes from a file, on two canvases: what is written is judged alike by `dtrain coco-eval`."""
    truths = write_images("files")
    files = {
        "data.source": "coco",
        "data.train": truths,
        "data.train_images": "files",
        "data.val": truths,
        "data.val_images": "files",
        "data.max_bad_fraction": 0.2,
        "model.canvases": '["96x64", "64x96"]',
        "model.num_classes": 2,
        "train.global_batch_size": 2,
        "train.epochs": 3,
        "eval.score_threshold": 0.001,
    }
    train("canvases", COMMON, files)
    assert os.path.getsize("canvases/detections.jpg") > 1000, "no picture of what was found"
    results = [judge("canvases", ranks, config=files) for ranks in (3, 1)]
    assert results[0][:2] == results[1][:2], f"ranks differ: {results[0][0]}, {results[1][0]}"
    said = run("coco-eval", truths, "found.json", "--json", "judged.json", "--set", "data.max_bad_fraction=0.2").said
    assert "boxes.json: 2 of" in said and "boxes.json:1:" in said, said  # that it lacks an image is no fault there
    assert results[0][2].count("boxes.json: 3 of 24 images and annotations cannot be used and are skipped") == 1, results[0][2]
    refused = run("coco-eval", truths, "found.json", code=65).said
    assert "data.max_bad_fraction allows at most 0.1 % of them (0)" in refused and "annotations.area" in refused, refused
    got, boxes, wanted = results[0][0], json.loads(results[0][1]), load("judged.json")
    assert all(abs(got[name] - wanted[name]) < 1e-12 for name in NAMES), f"{got}, coco-eval: {wanted}"
    assert got["images"] == 7 and got["ar100"] > 0, got
    wanted = {f'"{i}\\' for i in range(45, 51)}
    assert {b["image_id"] for b in boxes} == wanted, "images: the broken one has no detections"
    assert {b["category_id"] for b in boxes} == {3, 7}, "categories"
    right = max(b["bbox"][0] + b["bbox"][2] for b in boxes)
    assert 96 < right < 120.001, f"boxes are not in pixels of the images: they end at {right}"
    bare = {**files, "data.val": "files/image_info.json"}
    got, found, _ = judge("canvases", 1, config=bare)
    assert found == results[0][1] and got["ap"] == -1, (got, "images without annotations")
    words = "eval", "--config", "config.json", "--weights", "canvases", *sets(COMMON, bare)
    assert 'the outermost object has no "annotations"' in run(*words, code=65).said


write_config(rig.SETTINGS)
check_ranks()
check_files()
check_early_stop()
check_plateau()
