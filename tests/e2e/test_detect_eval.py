"""A detector is judged in training and by `dtrain eval`: the same numbers and detections on any number
of ranks, and what follows from them: the best checkpoint, early stop, a learning rate that drops.

    python3 test_detect_eval.py BUILD/dtrain"""

import json
import os
import re
import sys

from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "faults"))

import rig as faults  # pylint: disable=wrong-import-position

# Two ranks or three do not divide the 7 images, nor do batches of 2. An epoch has 3 steps.
COMMON = {
    **faults.DETECTOR,
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
    "checkpoint.every_epochs": 1,
    "checkpoint.every_steps": 0,
}
NAMES = "ap ap50 ap75 ap_small ap_medium ap_large ar1 ar10 ar100 ar_small ar_medium ar_large".split()


def train(rig, name, sets=(), ranks=2):
    """The run folder and the log."""
    out = rig.folder(name)
    return out, rig.finish(ranks, out, sets={**COMMON, **dict(sets)}).text()


def events_of(out, kind):
    return [event for event in faults.events(out) if event["event"] == kind]


def judge(rig, weights, ranks, *options):
    """The result of `dtrain eval`, and all that it printed."""
    text = rig.finish(ranks, "", command=("eval", "--weights", weights), options=options, sets=COMMON).text()
    return json.loads(re.findall(r"^\{.*\}$", text, re.M)[-1]), text


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


def check_ranks(rig):
    """The events of a run, and the same weights judged on 1, 2 and 3 ranks."""
    out, text = train(rig, "ranks")
    evals, steps = events_of(out, "eval"), events_of(out, "step")
    for i, event in enumerate(evals):
        loss = sum(s["loss"] for s in steps[3 * i : 3 * i + 3]) / 3
        rig.check(abs(event["train_loss"] / loss - 1) < 1e-6, f"train_loss {event['train_loss']}, not {loss}")
        rig.check(event["images"] == 7 and event["detections"] > 7, f"{event}")
    rig.check(len(evals) == 2 and "top1" not in evals[0] and "loss" not in evals[0], f"{evals}")
    rig.check(re.search(r"epoch 2: train_loss \S+ ap \S+ ap50 \S+ ap75 \S+ \(7 images\)", text), text)
    seen = []
    for ranks in (1, 2, 3):
        path = os.path.join(rig.work, f"found-{ranks}.json")
        got, text = judge(rig, out, ranks, "--predictions", path, "--per-class")
        with open(path, encoding="utf-8") as file:
            seen.append((got, file.read()))
        rig.check(len(re.findall(r"^ +[123] +\d+ +\S+ +\S+  [012]$", text, re.M)) == 3, f"no table: {text}")
        rig.check(list(got) == ["images", "detections", *NAMES] and got["images"] == 7, f"{got}")
    rig.check(seen[0] == seen[1] == seen[2], f"ranks differ: {[got for got, _ in seen]}")
    check_results(json.loads(seen[0][1]), seen[0][0])
    for name in NAMES:
        told = evals[1].get(name, -1)
        rig.check(abs(told - seen[0][0][name]) < 1e-6, f"{name}: {told} in training, {seen[0][0][name]} after it")
    for option, name in (("--confusion", "c.csv"), ("--predictions", "p.csv")):
        path = os.path.join(rig.work, name)
        refused = rig.start(1, "", command=("eval", "--weights", out), options=(option, path), sets=COMMON)
        rig.check(refused.wait() == 64 and option in refused.text(), refused.text())
        rig.check(not os.path.exists(path), f"{option} left a file")


def check_early_stop(rig):
    """Weights that hardly move: the first evaluation is the best one, and after the second it ends."""
    sets = {"schedule.lr": 1e-12, "train.epochs": 5, "early_stop.patience": 1, "train.restore_best": "true"}
    out, text = train(rig, "early", sets)
    rig.check(len(events_of(out, "eval")) == 2 and "no better ap in 1 evaluations" in text, text)
    best = os.path.basename(os.path.realpath(os.path.join(out, "checkpoints", "best")))
    rig.check(best == "step-000000003" and events_of(out, "run_end")[0]["best_metric"] == "ap", f"{best}: {text}")


def check_plateau(rig):
    """The rate drops after epochs 2 and 3, without an evaluation. A stop in the first and a kill in the
    third change no bit."""
    sets = {
        **COMMON,
        "data.synthetic_val": 0,
        "train.epochs": 4,
        "schedule.kind": "plateau",
        "schedule.patience": 0,
        "schedule.threshold": 0.9,
    }
    whole, _ = train(rig, "whole", sets)
    rates = [event["lr"] for event in events_of(whole, "step")]
    wanted = [1e-3] * 6 + [1e-4] * 3 + [1e-5] * 3
    rig.check(all(abs(a / b - 1) < 1e-9 for a, b in zip(rates, wanted)) and len(rates) == 12, f"rates: {rates}")
    parts, _ = train(rig, "parts", {**sets, "train.max_steps": 2})
    killed = rig.start(2, parts, sets={**sets, "checkpoint.every_steps": 7}, env={"DTRAIN_FAULT": "kill@8:1"})
    rig.check(killed.wait() != 0, killed.text())
    last = rig.finish(2, parts, sets=sets).text()
    rig.check("checkpoints/step-000000007" in last or "checkpoints/step-000000006" in last, last)
    rig.check(faults.state_of(whole) == faults.state_of(parts), "a run in parts differs")


def write_images(folder):
    """Seven images in two formats, the last one broken, with boxes of the categories 3 and 7 and a crowd."""
    os.makedirs(folder)
    images, boxes = [], []
    for i in range(7):
        width, height = ((120, 90), (60, 100))[i % 2]
        name = f"{i}.png"
        Image.effect_noise((width, height), 90).convert("RGB").save(os.path.join(folder, name))
        images.append({"id": 50 - i, "file_name": name, "width": width, "height": height})
        for k in range(1 + i % 3):
            box = [10 * k + 0.5, 5 * k, 30 + i, 40.25]
            boxes.append({"id": len(boxes) + 1, "image_id": 50 - i, "category_id": (3, 7)[(i + k) % 2], "bbox": box})
            boxes[-1].update(area=box[2] * box[3], iscrowd=int(i == 2 and k == 1))
    with open(os.path.join(folder, "6.png"), "wb") as file:
        file.write(b"no image")
    categories = [{"id": 7, "name": "cat"}, {"id": 3, "name": "dog"}]
    with open(os.path.join(folder, "boxes.json"), "w", encoding="utf-8") as file:
        json.dump({"images": images, "annotations": boxes, "categories": categories}, file)


def check_files(rig):
    """Boxes from a file, on two canvases: what is written is judged alike by `dtrain coco-eval`."""
    folder = os.path.join(rig.work, "files")
    write_images(folder)
    truths = os.path.join(folder, "boxes.json")
    sets = {
        **COMMON,
        "data.source": "coco",
        "data.train": truths,
        "data.train_images": folder,
        "data.val": truths,
        "data.val_images": folder,
        "data.max_bad_fraction": 0.2,
        "model.canvases": '["96x64", "64x96"]',
        "model.num_classes": 2,
        "train.global_batch_size": 2,
        "train.epochs": 3,
        "eval.score_threshold": 0.001,
    }
    out, _ = train(rig, "canvases", sets, ranks=1)
    rig.check(os.path.getsize(os.path.join(out, "detections.jpg")) > 1000, "no picture of what was found")
    found, judged = os.path.join(rig.work, "files.json"), os.path.join(rig.work, "judged.json")
    results = []
    for ranks in (1, 3):
        command = ("eval", "--weights", out)
        text = rig.finish(ranks, "", command=command, options=("--predictions", found), sets=sets).text()
        with open(found, encoding="utf-8") as file:
            results.append((json.loads(re.findall(r"^\{.*\}$", text, re.M)[-1]), file.read()))
    rig.check(results[0] == results[1], f"ranks differ: {results[0][0]}, {results[1][0]}")
    faults.run(rig.program, "coco-eval", truths, found, "--json", judged)
    with open(judged, encoding="utf-8") as file:
        wanted = json.load(file)
    got, boxes = results[0][0], json.loads(results[0][1])
    rig.check(all(abs(got[name] - wanted[name]) < 1e-12 for name in NAMES), f"{got}, coco-eval: {wanted}")
    rig.check(got["images"] == 7 and got["ar100"] > 0, f"{got}")
    rig.check({b["image_id"] for b in boxes} == set(range(45, 51)), "images: the broken one has no detections")
    rig.check({b["category_id"] for b in boxes} == {3, 7}, "categories")
    right = max(b["bbox"][0] + b["bbox"][2] for b in boxes)
    rig.check(96 < right < 120.001, f"boxes are not in pixels of the images: they end at {right}")


def campaign(rig):
    check_ranks(rig)
    check_files(rig)
    check_early_stop(rig)
    check_plateau(rig)


if __name__ == "__main__":
    faults.main(campaign, __doc__)
