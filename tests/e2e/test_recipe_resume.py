"""Whatever the recipe, a run that is stopped, killed and resumed ends with the same bits, and so does
one rank with the micro-batches of two."""

import hashlib
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "faults"))

import rig as faults  # pylint: disable=wrong-import-position

# An epoch has 4 steps.
COMMON = {"train.max_steps": 10, "data.synthetic_train": 48, "eval.every_epochs": 1, "checkpoint.every_steps": 3}

# Keys that differ from momentum SGD. RANKS_DIFFER: one rank computes something else than two.
RANKS_DIFFER = "ranks differ"
RECIPES = {
    "sgd": {},
    "clip_norm": {"optim.clip_norm": 0.5, "optim.nesterov": "true"},
    "clip_value": {"optim.clip_value": 0.01},
    "lars": {"optim.name": "lars", "schedule.lr": 2},
    "lamb": {"optim.name": "lamb"},
    "adamw": {"optim.name": "adamw", "schedule.lr": 0.001},
    "adam": {"optim.name": "adam", "schedule.lr": 0.001},
    "ema": {"train.ema_decay": 0.9},
    "plateau": {
        "schedule.kind": "plateau",
        "schedule.metric": "train_loss",
        "schedule.patience": 0,
        "schedule.threshold": 0.9,
    },
    "image_size": {"train.stages": '[{"epoch": 1, "image_size": 24}, {"epoch": 2, "image_size": 40}]'},
    "batch": {"train.stages": '[{"epoch": 1, "batch": 24}, {"epoch": 3, "batch": 8}]', RANKS_DIFFER: True},
    "sync_bn": {"model.name": "resnet20", "model.sync_bn": "true", RANKS_DIFFER: True},
    "rmsprop": {"optim.name": "rmsprop", "schedule.lr": 0.001},
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


def state_of(out):
    """Hashes of the result, and of weights, optimizer's states and position in the checkpoint."""
    with open(os.path.join(out, "model.safetensors"), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest(), faults.state_of(out)


def train(rig, name, ranks, sets):
    out = rig.folder(f"{name}-{ranks}")
    rig.finish(ranks, out, sets=sets)
    return state_of(out)


def train_with_breaks(rig, name, sets):
    """Stops within an epoch, is killed after step 8, and continues from step 6."""
    out = rig.folder(f"{name}-breaks")
    rig.finish(2, out, sets={**sets, "train.max_steps": 2})
    killed = rig.start(2, out, sets=sets, env={"DTRAIN_FAULT": "kill@8:1"})
    rig.check(killed.wait() != 0, f"{name}: was not killed: {killed.text()}")
    last = rig.finish(2, out, sets=sets)
    rig.check("checkpoints/step-000000006" in last.text(), f"{name}: not from step 6: {last.text()}")
    return state_of(out)


def change_optimizer(rig):
    """Refused by the key's name; if it is allowed, the states and the number of updates start at 0."""
    out = rig.folder("changed")
    rig.finish(1, out, sets={**COMMON, "train.max_steps": 4})
    for name, steps in ("adamw", 6), ("sgd", 9):
        sets = {**COMMON, "optim.name": name, "train.max_steps": steps}
        refused = rig.start(1, out, sets=sets)
        rig.check(refused.wait() == 78 and "optim.name: was" in refused.text(), refused.text())
        allowed = rig.finish(1, out, sets=sets, options=["--allow-config-change"]).text()
        rig.check("states of the optimizer start at 0" in allowed, allowed)
        with open(os.path.join(out, "checkpoints", "latest", "state.json"), encoding="utf-8") as file:
            updates = json.load(file)["updates"]
        rig.check(updates == {"adamw": 2, "sgd": 3}[name], f"{updates} updates by {name}")


def switch_on_outer_momentum(rig):
    out = rig.folder("outer")
    rig.finish(2, out, sets={**COMMON, "train.max_steps": 4})
    sets = {**COMMON, "train.sync_every": 2, "train.outer_momentum": 0.5, "train.max_steps": 6}
    rig.finish(2, out, sets=sets, options=["--allow-config-change"])


def campaign(rig):
    results = {}
    change_optimizer(rig)
    switch_on_outer_momentum(rig)
    for name, row in RECIPES.items():
        row = dict(row)
        ranks_differ = row.pop(RANKS_DIFFER, False)
        sets = {**COMMON, **row}
        results[name] = train(rig, name, 2, sets)
        rig.check(train_with_breaks(rig, name, sets) == results[name], f"{name}: breaks change the result")
        if not ranks_differ:
            one = train(rig, name, 1, {**sets, "train.micro_batch_size": 6})
            rig.check(one[0] == results[name][0], f"{name}: one rank has another result than two")
    rig.check(len(set(results.values())) == len(RECIPES), "two recipes have the same result")


if __name__ == "__main__":
    faults.main(campaign, __doc__)
