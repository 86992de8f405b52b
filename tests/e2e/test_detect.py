"""A detector on generated images with boxes: it learns, its losses are the same on any number of ranks
and micro-batches, it resumes bit for bit, and what it cannot do is refused.

    python3 test_detect.py BUILD/dtrain"""

import os
import sys

import numpy as np
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "faults"))

import rig as faults  # pylint: disable=wrong-import-position

# Batch norm over a rank's images would depend on the ranks; group norm does not.
COMMON = {
    "model.name": "retinanet_resnet18_fpn",
    "model.image_size": 96,
    "model.fpn_channels": 32,
    "model.anchor_base": 16,
    "model.frozen_norm": "true",
    "model.head_norm": "group",
    "data.synthetic_train": 18,
    "data.synthetic_val": 0,
    "train.global_batch_size": 6,
    "train.max_steps": 3,
    "output.telemetry_s": 0,
    "optim.name": "adam",
    "schedule.lr": 0.001,
    "output.log_every": 1,
    "checkpoint.every_steps": 0,
}

# Rounding decides the sign of a small gradient, and that is all that Adam and the l1 loss look at. The
# steps are small because every ReLU has such a place too.
# Images of both sizes in turn, moved and turned; a batch has one size.
CANVASES = {"model.canvases": '["96x64","64x96"]', "data.synthetic_train": 36, "data.rotate": 0.1, "data.scale": 0.1}
SMOOTH = {"optim.name": "sgd", "schedule.lr": 0.001, "train.box_loss": "smooth_l1"}


def run(rig, name, sets=(), ranks=1):
    """The run folder and the log."""
    out = rig.folder(name.replace(" ", "-"))
    return out, rig.finish(ranks, out, sets={**COMMON, **dict(sets)}).text()


def steps_of(out):
    return [event for event in faults.events(out) if event["event"] == "step"]


def check_learning(rig):
    out, text = run(rig, "learning", {"data.synthetic_train": 6, "train.max_steps": 16, "data.augment": "none"})
    steps = steps_of(out)
    rig.check(steps[-1]["loss"] < 0.5 * steps[0]["loss"], f"losses: {[s['loss'] for s in steps]}")
    for part in ("class_loss", "box_loss"):
        rig.check(steps[-1][part] < 0.6 * steps[0][part], f"{part}: {[s[part] for s in steps]}")
    error = max(abs(s["class_loss"] + s["box_loss"] - s["loss"]) for s in steps)
    rig.check(error < 1e-9, f"the parts of the loss differ from it by {error}")
    accuracies = [key for event in faults.events(out) for key in event if key.startswith("top")]
    rig.check(not accuracies and "top1" not in text, f"accuracies of a detector: {accuracies}")


def check_splits(rig):
    for normalizer in ("image", "global"):
        losses = {}
        for ranks, micro in ((1, 0), (2, 1), (3, 0)):
            sets = {"train.loss_normalizer": normalizer, "train.micro_batch_size": micro, **SMOOTH}
            if normalizer == "global":
                sets.update(CANVASES)
            out, _ = run(rig, f"{normalizer} {ranks} {micro}", sets, ranks)
            losses[ranks, micro] = [(s["class_loss"], s["box_loss"]) for s in steps_of(out)]
        alone = np.array(losses.pop((1, 0)))
        rig.check(alone.shape == (3, 2), f"{normalizer}: {alone}")
        for split, values in losses.items():
            error = np.max(np.abs(np.array(values) / alone - 1))
            rig.check(error < 1e-5, f"{normalizer}, ranks and micro-batch {split}: {error} from one rank")


def check_resume(rig):
    """Saved in the first epoch, of three steps, and continued into the second; on canvases within the first."""
    for threads in (1, 2):
        sets = {**COMMON, "device.threads": threads, **(CANVASES if threads > 1 else {})}
        whole, _ = run(rig, f"whole {threads}", {**sets, "train.max_steps": 4})
        parts, _ = run(rig, f"parts {threads}", {**sets, "train.max_steps": 2})
        rig.finish(1, parts, sets={**sets, "train.max_steps": 4})
        rig.check(faults.newest_step(parts) == 4, "the run did not continue")
        rig.check(faults.state_of(whole) == faults.state_of(parts), f"{threads} threads: a resumed run differs")


def colour_of(label):
    """Of the boxes of a class: dt_draw_colour."""
    hue, pale = (label * 0.61803398875 + 0.33) % 1, 0.35 if label % 2 else 0
    peaks = [abs((6 * hue + 4 * (c + 1)) % 6 - 3) for c in range(3)]
    return [int(255 * (pale + (1 - pale) * min(max(peak - 1, 0), 1)) + 0.5) for peak in peaks]


def check_commands(rig):
    bench = {"bench.warmup_steps": 0, "bench.rounds": 1, "bench.steps_per_round": 1}
    commands = (
        (("bench",), ("Iter #0: ", "img/sec")),
        (("bench", "--forward-only"), ("Iter #0: ", "img/sec")),
        (("--dry-run=plan",), (" match ", " focal_loss ", " box_loss ", " top_detections ")),
        (("samples", "-n", "4", "-o", os.path.join(rig.work, "samples.png")), ("4 of 18 training images",)),
    )
    for command, texts in commands:
        text = rig.finish(1, "", sets={**COMMON, **bench, "data.synthetic_val": 6}, command=command).text()
        for wanted in texts:
            rig.check(wanted in text, f"{command}: no {wanted!r} in {text}")
    picture = np.asarray(Image.open(os.path.join(rig.work, "samples.png"))).astype(int)
    frames = np.any([(picture == colour_of(label)).all(2) for label in range(80)], axis=0)
    runs = [frames[:, x].sum() for x in range(frames.shape[1])]
    rig.check(sum(n > 20 for n in runs) > 8, f"no frames in the picture: {runs}")


def check_refusals(rig):
    cases = (
        ({"data.source": "auto", "data.train": HERE}, "a detector needs boxes: annotations of COCO"),
        ({"model.image_size": 80}, "multiples of 32, not 80x80"),
        ({"train.stages": '[{"epoch":1,"image_size":64}]'}, "whose sizes are model.canvases throughout"),
        ({"data.random_erasing": 0.1}, "data.random_erasing is given, which is for classifiers only"),
        ({"data.mixup": 0.1}, "data.mixup is given, which is for classifiers only"),
        ({"early_stop.metric": "top1"}, "which are judged by train_loss, ap, ap50, ap75"),
        ({"train.loss_normalizer": "global", "train.sync_every": 3}, "gradients that all ranks sum"),
        ({"train.loss_normalizer": "global", "comm.mode": "central"}, "gradients that all ranks sum"),
        ({"train.loss_normalizer": "global", "model.sync_bn": 2}, "counts over all ranks"),
    )
    for sets, wanted in cases:
        refused = rig.start(1, rig.folder("refused"), sets={**COMMON, **sets})
        code, text = refused.wait(), refused.text()
        errors = [line for line in text.splitlines() if "error" in line]
        rig.check(code == 78 and len(errors) == 1 and wanted in errors[0], f"{sets}: exit code {code}: {text}")


def campaign(rig):
    check_learning(rig)
    check_splits(rig)
    check_resume(rig)
    check_commands(rig)
    check_refusals(rig)


if __name__ == "__main__":
    faults.main(campaign, __doc__)
