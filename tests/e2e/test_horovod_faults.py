"""The faults of the RetinaNet on Keras and Horovod that dtrain replaces (the list is in tests/README.md)
do not occur: epochs, clipping, rates, resumes and evaluations of a detector on several ranks.

    python3 test_horovod_faults.py BUILD/dtrain"""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "faults"))

import rig as faults  # pylint: disable=wrong-import-position

COMMON = {
    **faults.DETECTOR,
    "data.synthetic_train": 12,
    "data.synthetic_val": 6,
    "train.global_batch_size": 6,
    "train.epochs": 3,
    "train.max_steps": 0,
    "train.replica_check_every": 1,
    "schedule.lr": 0.001,
    "eval.score_threshold": 0.005,  # after so few steps the scores are near 0.01
    "output.log_every": 1,
    "output.telemetry_s": 0,
    "checkpoint.every_steps": 0,
}


PLATEAU = {"schedule.kind": "plateau", "schedule.patience": 0, "schedule.threshold": 0.9}


def events_of(rig, ranks, sets, kind="step", name="run"):
    """The events of a kind of a run."""
    out = rig.folder(name)
    rig.finish(ranks, out, sets={**COMMON, **sets})
    return [event for event in faults.events(out) if event["event"] == kind]


def near(one, other, error=1e-5):
    return len(one) == len(other) and all(abs(a - b) <= error * abs(b) for a, b in zip(one, other))


def check_rates(rig):
    """The rate follows the batch, which here grows with the ranks, and is reached by a warm-up."""
    sets = {
        "train.global_batch_size": 0,
        "train.batch_size_per_rank": 2,
        "train.max_steps": 4,
        "schedule.lr_scaling": "linear",
        "schedule.lr_base_size": 2,
        "schedule.warmup_steps": 4,
    }
    for ranks in (1, 3):
        rates = [s["lr"] for s in events_of(rig, ranks, sets)]
        expected = [0.001 * ranks * i / 4 for i in (1, 2, 3, 4)]
        rig.check(near(rates, expected), f"{ranks} ranks: rates {rates}")


def check_steps(rig):
    """An epoch is every image once, shared among the ranks: twelve images are two steps of six. The norm
    that is clipped is that of the sum of all ranks' gradients, not of each rank's."""
    losses = {}
    for ranks, norm in ((1, 0), (1, 1), (2, 1), (3, 1)):
        sets = {"optim.clip_norm": norm, "train.loss_normalizer": "global", "schedule.lr": 0.01}
        steps = events_of(rig, ranks, sets)
        places = [(s["step"], s["epoch"]) for s in steps]
        rig.check(places == [(i + 1, i // 2 + 1) for i in range(6)], f"{ranks} ranks: steps, epochs {places}")
        losses[ranks, norm] = [s["loss"] for s in steps]
    rig.check(not near(losses[1, 1], losses[1, 0], 1e-3), f"clipping changes nothing: {losses}")
    for ranks in (2, 3):
        rig.check(near(losses[ranks, 1], losses[1, 1]), f"{ranks} ranks clip otherwise than one: {losses}")


def check_plateau(rig):
    """All ranks follow the mean loss of all images, so they have one rate: the comparison of the weights
    after every step has found nothing."""
    sets = {**PLATEAU, "eval.every_epochs": 1}
    seen = []
    for ranks in (1, 3):
        out = rig.folder("plateau")
        rig.finish(ranks, out, sets={**COMMON, **sets})
        events = faults.events(out)
        rates = [e["lr"] for e in events if e["event"] == "step"]
        rig.check(near(rates, [1e-3] * 4 + [1e-4] * 2), f"{ranks} ranks: rates {rates}")
        seen.append([e["train_loss"] for e in events if e["event"] == "eval"])
        means = [e["loss"] for e in events if e["event"] == "step"]
        means = [(a + b) / 2 for a, b in zip(means[::2], means[1::2])]
        rig.check(near(seen[-1], means), f"{ranks} ranks: train_loss {seen[-1]}, not {means}")
    rig.check(near(*seen), f"1 and 3 ranks: train_loss {seen}")


def check_rates(rig):
    """The rate follows the batch, which here grows with the ranks, and is reached by a warm-up."""
    sets = {
        "train.global_batch_size": 0,
        "train.batch_size_per_rank": 2,
        "train.max_steps": 4,
        "schedule.lr_scaling": "linear",
        "schedule.lr_base_size": 2,
        "schedule.warmup_steps": 4,
    }
    for ranks in (1, 3):
        rates = [s["lr"] for s in events_of(rig, ranks, sets)]
        expected = [0.001 * ranks * i / 4 for i in (1, 2, 3, 4)]
        rig.check(near(rates, expected), f"{ranks} ranks: rates {rates}")


def check_epochs_and_clipping(rig):
    """An epoch is every image once, shared among the ranks: twelve images are two steps of six. The norm
    that is clipped is that of the sum of all ranks' gradients, not of each rank's."""
    losses = {}
    for ranks, norm in ((1, 0), (1, 1), (2, 1), (3, 1)):
        sets = {"optim.clip_norm": norm, "train.loss_normalizer": "global", "schedule.lr": 0.01}
        steps = events_of(rig, ranks, sets)
        places = [(s["step"], s["epoch"]) for s in steps]
        rig.check(places == [(i + 1, i // 2 + 1) for i in range(6)], f"{ranks} ranks: steps, epochs {places}")
        losses[ranks, norm] = [s["loss"] for s in steps]
    rig.check(not near(losses[1, 1], losses[1, 0], 1e-3), f"clipping changes nothing: {losses}")
    for ranks in (2, 3):
        rig.check(near(losses[ranks, 1], losses[1, 1]), f"{ranks} ranks clip otherwise than one: {losses}")


def check_resume(rig):
    """On two ranks, with Adam's states: the same bits as without the interruption, so the optimizer still
    sums over the ranks, in the epoch and step where it stopped."""
    sets = {**COMMON, "optim.name": "adam", "train.ema_decay": 0.9}
    whole, parts = rig.folder("whole"), rig.folder("parts")
    rig.finish(2, whole, sets=sets)
    rig.finish(2, parts, sets={**sets, "train.max_steps": 3})
    before = len(faults.events(parts))
    rig.finish(2, parts, sets=sets)
    rig.check(faults.state_of(whole) == faults.state_of(parts), "a resumed run on two ranks differs")
    after = [(e["step"], e["epoch"]) for e in faults.events(parts)[before:] if e["event"] == "step"]
    rig.check(after == [(4, 2), (5, 3), (6, 3)], f"steps and epochs after the resume: {after}")


def check_evaluation(rig):
    """Every image once, whatever the number of ranks, and one file with the detections of all."""
    files, results = [], []
    for ranks in (1, 3):
        path = os.path.join(rig.folder("found"), "found.json")
        os.makedirs(os.path.dirname(path))
        command = ("eval", os.path.join(rig.work, "whole"), "--predictions", path)
        text = rig.finish(ranks, "", sets=COMMON, command=command).text()
        results.append([line for line in text.splitlines() if line.startswith("{")])
        rig.check(os.listdir(os.path.dirname(path)) == ["found.json"], f"{ranks} ranks: more than one file")
        with open(path, encoding="utf-8") as file:
            files.append(file.read())
    found = json.loads(files[0])
    rig.check(len({f["image_id"] for f in found}) == 6, f"images with detections: {len(found)}")
    rig.check(json.loads(results[0][0])["images"] == 6, f"result: {results[0]}")
    rig.check(files == files[:1] * 2, "the detections depend on the number of ranks")
    rig.check(results == results[:1] * 2, f"the result depends on the number of ranks: {results}")


def campaign(rig):
    check_steps(rig)
    check_plateau(rig)
    check_rates(rig)
    check_resume(rig)
    check_evaluation(rig)


if __name__ == "__main__":
    faults.main(campaign, __doc__)
