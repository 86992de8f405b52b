"""Whatever the recipe and wherever it stops, what continues from a checkpoint ends with the same bits, and so do one
rank and two with the same micro-batches: two ranks continue what one has saved on its way.

    python3 test_recipe_resume.py BUILD/dtrain"""

import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import events, load, rig, train, write_config  # noqa: E402

# An epoch has 4 steps.
COMMON = {
    "train.max_steps": 10,
    "data.synthetic_train": 48,
    "eval.every_epochs": 1,
    "checkpoint.every_steps": 6,
    "checkpoint.keep_best": "false",
}

# Keys that differ from momentum SGD. RANKS_DIFFER: one rank computes something else than two. ENDS: the steps after
# which it stops and continues, in place of a save after step 6, which is within an epoch.
RANKS_DIFFER, ENDS = "ranks differ", "ends"
RECIPES = {
    "sgd": {},
    "clip_norm, image_size": {
        "optim.clip_norm": 0.5,
        "optim.nesterov": "true",
        "train.stages": '[{"epoch": 1, "image_size": 24}, {"epoch": 2, "image_size": 40}]',
    },
    "clip_value, ema": {"optim.clip_value": 0.01, "train.ema_decay": 0.9},
    "lars": {"optim.name": "lars", "schedule.lr": 2},
    "lamb": {"optim.name": "lamb"},
    "adamw": {"optim.name": "adamw", "schedule.lr": 0.001},
    "adam, plateau": {
        "optim.name": "adam",
        "schedule.lr": 0.001,
        "schedule.kind": "plateau",
        "schedule.metric": "train_loss",
        "schedule.patience": 0,
        "schedule.threshold": 0.9,
    },
    "batch": {"train.stages": '[{"epoch": 1, "batch": 24}, {"epoch": 3, "batch": 8}]', RANKS_DIFFER: True},
    "sync_bn": {"model.name": "resnet20", "model.sync_bn": "true", RANKS_DIFFER: True},
    # Before, at and after the end of freezing.
    "freeze": {
        "model.name": "resnet20",
        "optim.freeze": '["conv1", "bn1", "layer1"]',
        "optim.unfreeze_epoch": 1,
        ENDS: (3, 4, 5),
        RANKS_DIFFER: True,
    },
    "freeze, for good": {"model.name": "resnet20", "optim.freeze": '["conv1", "bn1"]', RANKS_DIFFER: True},
    "rmsprop": {"optim.name": "rmsprop", "schedule.lr": 0.001},
    "bf16, ema": {"model.name": "resnet20", "train.precision": "bf16", "train.ema_decay": 0.9, RANKS_DIFFER: True},
    # Depthwise convolutions, gates, stochastic depth, SiLU within batch norm.
    "efficientnet": {"model.name": "efficientnet_b0", "train.precision": "bf16", RANKS_DIFFER: True},
    "bf16 between ranks": {"comm.grad_dtype": "bf16", RANKS_DIFFER: True},
    "central": {"comm.mode": "central", "schedule.lr": 0.03, RANKS_DIFFER: True},
    "local": {"train.sync_every": 2, "optim.momentum": 0, RANKS_DIFFER: True},
    "local, outer": {
        "train.sync_every": 2,
        "train.average_states": "true",
        "train.outer_momentum": 0.5,
        RANKS_DIFFER: True,
    },
}


def check(name, recipe):
    recipe = dict(recipe)
    ranks_differ, ends = recipe.pop(RANKS_DIFFER, False), recipe.pop(ENDS, ())
    changes = COMMON, recipe, {"train.micro_batch_size": 0 if ranks_differ else 6}
    train("whole", *changes, ranks=2 if ranks_differ else 1)
    for end in ends:
        train("parts", *changes, {"train.max_steps": end}, ranks=2)
    train("parts", *changes, ranks=2, options=[] if ends else ["--resume", "whole/checkpoints/step-000000006"])
    assert [e["start_step"] for e in events("parts", "run_start")] == ([0, *ends] if ends else [6]), name
    states = [rig.state_of(folder, "" if ranks_differ else "passes") for folder in ("whole", "parts")]
    assert states[0] == states[1], f"{name}: the resumed run differs"
    return states[0]


def change_optimizer(folder):
    """Refused by the key's name; if it is allowed, the states and the number of updates start at 0."""
    for name, steps, updates in ("adamw", 12, 2), ("sgd", 15, 3):
        changes = COMMON, {"optim.name": name, "train.max_steps": steps, "train.micro_batch_size": 6}
        assert "optim.name: was" in train(folder, *changes, code=78).said
        allowed = train(folder, *changes, options=["--allow-config-change"]).said
        assert "states of the optimizer start at 0" in allowed, allowed
        assert load(f"{folder}/checkpoints/latest/state.json")["updates"] == updates, name


def switch_on_outer_momentum(folder):
    outer = {"train.sync_every": 2, "train.outer_momentum": 0.5, "train.max_steps": 12}
    train(folder, COMMON, outer, ranks=2, options=["--allow-config-change"])


def main():
    write_config(rig.SETTINGS)
    results = {}
    for name, recipe in RECIPES.items():
        results[name] = check(name, recipe)
        if name == "sgd":
            change_optimizer("whole")
            switch_on_outer_momentum("parts")
        shutil.rmtree("whole")
        shutil.rmtree("parts")
    assert len(set(results.values())) == len(RECIPES), f"two recipes have the same result: {results}"


main()
