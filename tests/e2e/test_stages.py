"""train.stages: one stage is the run with those values, the learning rate follows the batch, what is
reported is right when the batch changes, and a stage that cannot be trained is refused at the start. A run
whose batches, ranks or data change when it is resumed goes on where it was and ends after its epochs.

    python3 test_stages.py BUILD/dtrain

Resuming is in test_recipe_resume.py."""

import json
import math
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import events, rig, train, write_config  # noqa: E402

# 48 images.
COMMON = {
    "train.max_steps": 0,
    "train.epochs": 5,
    "data.synthetic_train": 48,
    "schedule.lr_scaling": "linear",
    "schedule.lr_base_size": 12,
    "output.log_every": 1,
}


def stages(*rows):
    return {"train.stages": json.dumps(rows)}


def check_one_stage():
    """The generated images depend on the size, so this takes the size that they have anyway."""
    for name, change in (
        ("plain", {"train.global_batch_size": 24}),
        ("staged", stages({"epoch": 0, "image_size": 32, "batch": 24})),
    ):
        train(name, COMMON, change, "train.epochs=2", ranks=2)
    assert rig.state_of("plain") == rig.state_of("staged"), "one stage differs from the plain run"


def check_course():
    change = stages({"epoch": 1, "batch": 24, "image_size": 24}, {"epoch": 3, "batch": 8})
    text = train("course", COMMON, change, ranks=2).said
    steps = events("course", "step")
    epochs = [1] * 4 + [2] * 2 + [3] * 2 + [4] * 6 + [5] * 6
    lr = [0.02] * 4 + [0.04] * 4 + [0.02 * 8 / 12] * 12
    assert [e["epoch"] for e in steps] == epochs, f"epochs: {[e['epoch'] for e in steps]}"
    error = max(abs(e["lr"] / x - 1) for e, x in zip(steps, lr))
    assert error < 1e-6, f"learning rates: {[e['lr'] for e in steps]}"
    batches = [e["images_per_s"] * e["step_s"] for e in steps]
    sizes = [12] * 4 + [24] * 4 + [8] * 12
    assert [round(x) for x in batches] == sizes, f"images per step: {batches}"
    start = events("course", "run_start")[0]
    assert [s["step"] for s in start["stages"]] == [0, 4, 8], f"stages: {start['stages']}"
    end = events("course", "run_end")[0]
    images = end["images_per_s"] * end["seconds"]
    assert round(images) == 5 * 48, f"images of the run: {images}"
    line = "after 1 epoch: images of 24 x 24, batch 24 = 2 ranks x 12 images, 2 steps"
    assert line in text, f"no line about the stage: {text}"


def check_refusals():
    cases = (
        ("train.stages[1].batch: 1 image is too few for 2 ranks", ({"epoch": 0}, {"epoch": 1, "batch": 1})),
        ("train.stages[0].batch: a global batch of 50 is more than", ({"epoch": 2, "batch": 50},)),
        ("train.stages[0].image_size: 8 is too small for resnet18", ({"epoch": 2, "image_size": 8},)),
    )
    for what, rows in cases:
        sets = {**stages(*rows), "model.name": "resnet18", "model.image_size": 32}
        failed = train("refused", COMMON, sets, ranks=2, code=None)
        assert failed.returncode != 0 and what in failed.said, f"{what}: {failed.said}"
        assert not os.path.exists("refused/checkpoints"), f"{what}: training began"


# A layer whose norm would see one value: layer4 of ResNet-18 has 1 x 1 places on images of 32 x 32.
ONE_VALUE = {"model.name": "resnet18", "model.image_size": 32, "train.global_batch_size": 2}
DETECTOR = {
    "model.name": "retinanet_resnet18_fpn",
    "model.image_size": 64,
    "model.fpn_channels": 32,
    "model.frozen_norm": "true",
    "model.head_norm": "group",
    "schedule.lr_scaling": "none",
}


def check_norms():
    layer = "layer4.0.bn1: a micro-batch of 1 image and its feature map of 1 x 1 leave this batch norm one value"
    refused = (
        ({}, layer, "(train.global_batch_size)"),
        ({"train.global_batch_size": 4, "train.micro_batch_size": 1}, layer, "(train.micro_batch_size)"),
        ({"train.global_batch_size": 6, "train.virtual_ranks": 6}, layer, "model.sync_bn with several ranks"),
        ({"train.global_batch_size": 3}, layer, "larger images"),
        ({"train.global_batch_size": 4, **stages({"epoch": 1, "batch": 2})}, layer, "(train.stages[0].batch)"),
        ({"optim.freeze": '["layer4"]', "optim.unfreeze_epoch": 1}, layer, "more images per rank"),
        (DETECTOR, "the feature map of 1 x 1 leaves it one value per group", "more channels (model.fpn_channels)"),
    )
    for change, *texts in refused:
        failed = train("refused", COMMON, ONE_VALUE, change, ranks=2, code=78, options=["--dry-run"]).said
        assert all(text in failed for text in texts), f"{change}: {failed}"
    failed = train("refused", COMMON, ONE_VALUE, ranks=2, code=78).said
    assert layer in failed and not os.path.exists("refused/checkpoints"), failed
    frozen = {"optim.freeze": '["layer4"]'}
    detector = {**DETECTOR, "model.fpn_channels": 64}
    for change in ({"train.global_batch_size": 4}, {"model.image_size": 40}, {"model.sync_bn": "true"}, frozen, detector):
        train("accepted", COMMON, ONE_VALUE, change, ranks=2, options=["--dry-run"])


COURSE = {**COMMON, "train.epochs": 4, "schedule.kind": "cosine", "schedule.lr_scaling": "none"}
ALLOWED = {"options": ["--allow-config-change"]}


def goes_on(folder, done, last_step, change, ranks=1, share=None):
    """From folder's checkpoint, after `done` epochs, and `share` of the schedule's steps."""
    epochs = {**COURSE, **change}["train.epochs"]
    n_steps = len(events(folder, "step"))
    text = train(folder, COURSE, change, ranks=ranks, **ALLOWED).said
    steps = events(folder, "step")
    assert (steps[-1]["step"], steps[-1]["epoch"]) == (last_step, epochs), f"{change}: {steps[-1]}"
    rate = 0.02 * (1 + math.cos(math.pi * (share or done / epochs))) / 2
    assert abs(steps[n_steps]["lr"] / rate - 1) < 1e-6, f"{change}: {steps[n_steps]}, not {rate}"
    line = f"the run goes on after {done:g} of {epochs} epochs; the learning rate was "
    assert line in text and f"goes on with {rate:.4g} and ends after step {last_step}" in text, text
    assert "reached train.epochs" in text, text


def check_position():
    """After one and a half of four epochs: 24 of 48 images of the second."""
    train("half", COURSE, "train.max_steps=6")
    cases = (
        ({"train.global_batch_size": 24}, 1.5, 6 + 1 + 2 * 2, {}),
        ({"train.global_batch_size": 6}, 1.5, 6 + 4 + 2 * 8, {}),
        ({"train.global_batch_size": 10, "train.epochs": 5}, 1.5, 6 + 2 + 3 * 4, {}),
        ({"train.global_batch_size": 0, "train.batch_size_per_rank": 12}, 1.5, 6 + 1 + 2 * 2, {"ranks": 2}),
        ({"data.synthetic_train": 96}, 1.25, 6 + 6 + 2 * 8, {}),
        ({"data.synthetic_train": 24}, 2, 6 + 2 * 2, {}),
        (stages({"epoch": 1, "batch": 24}), 1.5, 6 + 1 + 2 * 2, {"share": 5 / 10}),
    )
    for i, (change, done, last_step, how) in enumerate(cases):
        shutil.copytree("half", f"case {i}")
        goes_on(f"case {i}", done, last_step, change, **how)
    # Stopped once more, it ends with the same bits, and without a line; finished, it trains longer.
    shutil.copytree("half", "twice")
    train("twice", COURSE, cases[0][0], "train.max_steps=8", **ALLOWED)
    text = train("twice", COURSE, cases[0][0]).said
    assert "the run goes on" not in text and rig.state_of("twice") == rig.state_of("case 0"), text
    goes_on("twice", 4, 11 + 8, {"train.global_batch_size": 6, "train.epochs": 5})
    start = events("twice", "run_start")[-1]["stages"]
    assert [(s["step"], s["epoch"]) for s in start] == [(0, 0), (11, 4)], start


write_config(rig.SETTINGS)
check_one_stage()
check_position()
check_norms()
check_course()
check_refusals()
