"""train.stages: one stage is the run with those values, the learning rate follows the batch, what is
reported is right when the batch changes, and a stage that cannot be trained is refused at the start.

    python3 test_stages.py BUILD/dtrain

Resuming is in test_recipe_resume.py."""

import json
import os
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
    line = "after 1 epoch: images of 24 x 24, batch 24 = 2 ranks x 1 micro-batch x 12 images, 2 steps"
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


def check_changes():
    """Stages of epochs to come may change in a run; a batch of those before decides what a step is."""
    train("changed", COMMON, stages({"epoch": 3, "batch": 24}), "train.max_steps=6", ranks=2)
    allowed = {"options": ["--allow-config-change"], "ranks": 2}
    failed = train("changed", COMMON, stages({"epoch": 1, "batch": 24}), "train.max_steps=9", **allowed, code=78).said
    text = "epoch 2 of it had batches of 12 images, but train.stages and train.global_batch_size now say 24"
    assert text in failed, failed
    train("changed", COMMON, stages({"epoch": 2, "batch": 24}), "train.max_steps=9", **allowed)
    assert [e["epoch"] for e in events("changed", "step")] == [1] * 4 + [2] * 4 + [3], "not the third epoch"


write_config(rig.SETTINGS)
check_one_stage()
check_changes()
check_course()
check_refusals()
