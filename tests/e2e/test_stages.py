"""train.stages: one stage is the run with those values, the learning rate follows the batch, what is
reported is right when the batch changes, and a stage that cannot be trained is refused at the start.

    python3 test_stages.py BUILD/dtrain

Resuming is in test_recipe_resume.py."""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "faults"))

import rig as faults  # pylint: disable=wrong-import-position

# 48 images.
COMMON = {
    "train.max_steps": 0,
    "train.epochs": 5,
    "data.synthetic_train": 48,
    "schedule.lr_scaling": "linear",
    "schedule.lr_base_size": 12,
    "output.log_every": 1,
}


def events_of(out, kind):
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
        return [e for e in map(json.loads, file) if e["event"] == kind]


def run(rig, name, sets, ranks=2):
    out = rig.folder(name)
    log = rig.finish(ranks, out, sets={**COMMON, **sets})
    return out, log.text()


def stages(*rows):
    return {"train.stages": json.dumps(rows)}


def check_one_stage(rig):
    """The generated images depend on the size, so this takes the size that they have anyway."""
    plain, _ = run(rig, "plain", {"train.global_batch_size": 24})
    staged, _ = run(rig, "staged", stages({"epoch": 0, "image_size": 32, "batch": 24}))
    rig.check(faults.state_of(plain) == faults.state_of(staged), "one stage differs from the plain run")


def check_course(rig):
    out, text = run(
        rig, "course", stages({"epoch": 1, "batch": 24, "image_size": 24}, {"epoch": 3, "batch": 8})
    )
    steps = events_of(out, "step")
    epochs = [1] * 4 + [2] * 2 + [3] * 2 + [4] * 6 + [5] * 6
    lr = [0.02] * 4 + [0.04] * 4 + [0.02 * 8 / 12] * 12
    rig.check([e["epoch"] for e in steps] == epochs, f"epochs: {[e['epoch'] for e in steps]}")
    error = max(abs(e["lr"] / x - 1) for e, x in zip(steps, lr))
    rig.check(error < 1e-6, f"learning rates: {[e['lr'] for e in steps]}")
    batches = [e["images_per_s"] * e["step_s"] for e in steps]
    sizes = [12] * 4 + [24] * 4 + [8] * 12
    rig.check([round(x) for x in batches] == sizes, f"images per step: {batches}")
    start = events_of(out, "run_start")[0]
    rig.check([s["step"] for s in start["stages"]] == [0, 4, 8], f"stages: {start['stages']}")
    end = events_of(out, "run_end")[0]
    images = end["images_per_s"] * end["seconds"]
    rig.check(round(images) == 5 * 48, f"images of the run: {images}")
    rig.check(
        "after 1 epoch: images of 24 x 24, batch 24 = 2 ranks x 1 micro-batch x 12 images, 2 steps" in text,
        f"no line about the stage: {text}",
    )


def check_refusals(rig):
    cases = (
        ("train.stages[1].batch: 25 cannot be split evenly", ({"epoch": 0}, {"epoch": 1, "batch": 25})),
        ("train.stages[0].batch: a global batch of 50 is more than", ({"epoch": 2, "batch": 50},)),
        ("train.stages[0].image_size: 8 is too small for resnet18", ({"epoch": 2, "image_size": 8},)),
    )
    for what, rows in cases:
        out = rig.folder("refused")
        sets = {**COMMON, **stages(*rows), "model.name": "resnet18", "model.image_size": 32}
        failed = rig.start(2, out, sets=sets)
        rig.check(failed.wait() != 0 and what in failed.text(), f"{what}: {failed.text()}")
        rig.check(not os.path.exists(os.path.join(out, "checkpoints")), f"{what}: training began")


def check_changes(rig):
    """Stages of epochs to come may change in a run; a batch of those before decides what a step is."""
    out, _ = run(rig, "changed", {**stages({"epoch": 3, "batch": 24}), "train.max_steps": 6})
    allowed = ["--allow-config-change"]
    sets = {**COMMON, "train.max_steps": 9, **stages({"epoch": 1, "batch": 24})}
    failed = rig.start(2, out, sets=sets, options=allowed)
    rig.check(failed.wait() == 78, failed.text())
    text = "epoch 2 of it had batches of 12 images, but train.stages and train.global_batch_size now say 24"
    rig.check(text in failed.text(), failed.text())
    sets.update(stages({"epoch": 2, "batch": 24}))
    rig.finish(2, out, sets=sets, options=allowed)
    rig.check([e["epoch"] for e in events_of(out, "step")] == [1] * 4 + [2] * 4 + [3], "not the third epoch")


def campaign(rig):
    check_one_stage(rig)
    check_changes(rig)
    check_course(rig)
    check_refusals(rig)


if __name__ == "__main__":
    faults.main(campaign, __doc__)
