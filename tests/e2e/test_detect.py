"""A detector on generated images with boxes: it learns, its losses are the same on any number of ranks
and micro-batches, it resumes bit for bit, and what it cannot do is refused.

    python3 test_detect.py BUILD/dtrain"""

import os
import shutil
import sys

from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import events, np, rig, run, sets, train, write_config  # noqa: E402

COMMON = {
    **rig.DETECTOR,
    "train.box_loss": "l1",
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


def check_learning():
    out = "learning"
    text = train(out, COMMON, {"data.synthetic_train": 6, "train.max_steps": 16, "data.augment": "none"}).said
    steps = events(out, "step")
    assert steps[-1]["loss"] < 0.5 * steps[0]["loss"], f"losses: {[s['loss'] for s in steps]}"
    for part in ("class_loss", "box_loss"):
        assert steps[-1][part] < 0.6 * steps[0][part], f"{part}: {[s[part] for s in steps]}"
    error = max(abs(s["class_loss"] + s["box_loss"] - s["loss"]) for s in steps)
    assert error < 1e-9, f"the parts of the loss differ from it by {error}"
    accuracies = [key for event in rig.events(out) for key in event if key.startswith("top")]
    assert not accuracies and "top1" not in text, f"accuracies of a detector: {accuracies}"


def losses_of(*changes, ranks=1):
    train("losses", COMMON, SMOOTH, *changes, ranks=ranks)
    steps = events("losses", "step")
    shutil.rmtree("losses")
    assert len(steps) == 3, steps
    return np.array([(s["class_loss"], s["box_loss"]) for s in steps])


def check_splits():
    """Into ranks and micro-batches, whatever divides the losses. The norm that is clipped is that of the sum of all
    ranks' gradients."""
    whole = {"train.loss_normalizer": "global", **CANVASES, "optim.clip_norm": 1}
    alone = losses_of(whole)
    clipping = np.max(np.abs(losses_of(whole, {"optim.clip_norm": 0}) / alone - 1))
    assert clipping > 1e-3, f"clipping changes nothing: {clipping}"
    for name, one, other in (
        ("global, two ranks", alone, losses_of(whole, {"train.micro_batch_size": 1}, ranks=2)),
        ("image, three ranks", losses_of(), losses_of(ranks=3)),
    ):
        error = np.max(np.abs(other / one - 1))
        assert error < 1e-5, f"{name}: {error} from one rank"


def check_resume():
    """Saved within an epoch on canvases, on two threads. In test_detect_eval.py on two ranks."""
    changes = COMMON, CANVASES, {"device.threads": 2}
    train("whole", *changes, "train.max_steps=4")
    for steps in (2, 4):
        train("parts", *changes, f"train.max_steps={steps}")
    assert [e["start_step"] for e in events("parts", "run_start")] == [0, 2], "the run did not continue"
    assert rig.state_of("whole") == rig.state_of("parts"), "a resumed run differs"


def colour_of(label):
    """Of the boxes of a class: dt_draw_colour."""
    hue, pale = (label * 0.61803398875 + 0.33) % 1, 0.35 if label % 2 else 0
    peaks = [abs((6 * hue + 4 * (c + 1)) % 6 - 3) for c in range(3)]
    return [int(255 * (pale + (1 - pale) * min(max(peak - 1, 0), 1)) + 0.5) for peak in peaks]


def check_commands():
    bench = {"bench.warmup_steps": 0, "bench.rounds": 1, "bench.steps_per_round": 1}
    commands = (
        (("bench",), ("Iter #0: ", "img/sec")),
        (("bench", "--forward-only"), ("Iter #0: ", "img/sec")),
        (("--dry-run=plan",), (" match ", " focal_loss ", " box_loss ", " top_detections ")),
        (("samples", "-n", "4", "-o", "samples.png"), ("4 of 18 training images",)),
    )
    for command, texts in commands:
        text = run(*command, "--config", "config.json", *sets(COMMON, bench, "data.synthetic_val=6")).said
        for wanted in texts:
            assert wanted in text, f"{command}: no {wanted!r} in {text}"
    picture = np.asarray(Image.open("samples.png")).astype(int)
    frames = np.any([(picture == colour_of(label)).all(2) for label in range(80)], axis=0)
    runs = [frames[:, x].sum() for x in range(frames.shape[1])]
    assert sum(n > 20 for n in runs) > 8, f"no frames in the picture: {runs}"


def check_refusals():
    cases = (
        ({"data.source": "auto", "data.train": "/usr"}, "a detector needs boxes: annotations of COCO"),
        ({"model.image_size": 80}, "multiples of 32, not 80x80"),
        ({"train.stages": '[{"epoch":1,"image_size":64}]'}, "whose sizes are model.canvases throughout"),
        ({"data.random_erasing": 0.1}, "data.random_erasing is given, which is for classifiers only"),
        ({"data.mixup": 0.1}, "data.mixup is given, which is for classifiers only"),
        ({"early_stop.metric": "top1"}, "whose metrics are train_loss, ap, ap50, ap75"),
        ({"train.loss_normalizer": "global", "train.sync_every": 3}, "gradients that all ranks sum"),
        ({"train.loss_normalizer": "global", "comm.mode": "central"}, "gradients that all ranks sum"),
        ({"train.loss_normalizer": "global", "model.sync_bn": 2}, "counts over all ranks"),
    )
    for change, wanted in cases:
        text = train("refused", COMMON, change, code=78).said
        errors = [line for line in text.splitlines() if "error" in line]
        assert len(errors) == 1 and wanted in errors[0], f"{change}: {text}"


write_config(rig.SETTINGS)
check_learning()
check_splits()
check_resume()
check_commands()
check_refusals()
