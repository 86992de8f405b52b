"""Parallel modes: central has the bits of allreduce, local SGD sends 1/H of the bytes, async keeps its bound."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "faults"))

import rig as faults  # pylint: disable=wrong-import-position

COMMON = {"train.max_steps": 24, "data.synthetic_train": 96, "output.log_every": 24, "eval.every_epochs": 1}


def events(out, kind):
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
        return [event for event in map(json.loads, file) if event["event"] == kind]


def train(rig, name, ranks, sets):
    out = rig.folder(f"{name}-{ranks}".replace(" ", "-"))
    rig.finish(ranks, out, sets={**COMMON, **sets})
    return out


def model(out):
    with open(os.path.join(out, "model.safetensors"), "rb") as file:
        return file.read()


def sent(out):
    steps = events(out, "step")
    return sum(step["sent_bytes"] for step in steps) / len(steps)


def loss(out):
    return events(out, "eval")[-1]["loss"]


def check_central(rig):
    for ranks in (2, 3):
        one, other = (train(rig, mode, ranks, {"comm.mode": mode}) for mode in ("allreduce", "central"))
        rig.check(model(one) == model(other), f"central differs from allreduce on {ranks} ranks")
    nan = {"DTRAIN_FAULT": "nan@5:1"}
    folders = [rig.folder(f"skips-{mode}") for mode in ("allreduce", "central")]
    for mode, out in zip(("allreduce", "central"), folders):
        rig.finish(2, out, sets={**COMMON, "comm.mode": mode}, env=nan)
    rig.check(model(folders[0]) == model(folders[1]), "central skips another step than allreduce")


def check_local(rig):
    plain = {"optim.momentum": 0, "optim.weight_decay": 0}
    whole = train(rig, "allreduce, plain", 2, plain)
    # An epoch of one step is a meeting after every step.
    often = train(rig, "local, H 1", 2, {**plain, "data.synthetic_train": 12, "train.sync_every": 4})
    same = train(rig, "allreduce, H 1", 2, {**plain, "data.synthetic_train": 12})
    rig.check(abs(loss(often) - loss(same)) < 1e-5, f"loss {loss(often)}, with summed gradients {loss(same)}")
    for every in (2, 4, 8):
        out = train(rig, "local", 2, {**plain, "train.sync_every": every})
        rig.check(sent(out) * every == sent(whole), f"H {every}: {sent(out)} bytes per step of {sent(whole)}")
    states = train(rig, "local, states", 3, {"train.sync_every": 4, "train.average_states": "true"})
    own = train(rig, "local, own states", 3, {"train.sync_every": 4})
    rig.check(sent(states) == 2 * sent(own), "the momentum is not sent as the weights are")
    outer = train(rig, "local, outer", 3, {"train.sync_every": 4, "train.outer_momentum": 0.5})
    rig.check(sent(outer) == sent(own) and model(outer) != model(own), "no outer momentum")
    rare = {"eval.every_epochs": 0, "checkpoint.every_steps": 0}
    lines = train(rig, "local, lines", 2, {**rare, "train.sync_every": 4, "output.log_every": 5})
    steps = [step["step"] for step in events(lines, "step")]
    rig.check(steps == [5, 10, 15, 20, 24], f"lines after steps {steps}")


def check_async(rig):
    for ranks, bound in ((2, 0), (3, 1), (4, 2)):
        sets = {"comm.mode": "async", "train.deterministic": "false", "comm.max_staleness": bound}
        # Stale gradients act like momentum: with more of it the loss depends on who comes first.
        sets.update({"train.sync_every": 5, "train.max_steps": 48, "schedule.lr": 0.02, "optim.momentum": 0.5})
        out = rig.folder(f"async-{ranks}")
        rig.finish(ranks, out, sets={**COMMON, **sets, "train.max_steps": 11})
        text = rig.finish(ranks, out, sets={**COMMON, **sets}).text()
        last = events(out, "staleness")[-1]
        losses = [step["loss"] for step in events(out, "step")]
        workers = ranks - 1
        rig.check("never the same twice" in text, f"no word about bits: {text}")
        rig.check(last["max"] <= (bound or 2 * workers), f"{ranks} ranks: {last}")
        rig.check(sum(last["histogram"]) == last["updates"] == 37 * workers, f"{ranks} ranks: {last}")
        rig.check(losses[-1] < losses[0], f"{ranks} ranks: losses {losses}")


def check_errors(rig):
    for ranks, sets, words in (
        (1, {"comm.mode": "central"}, "at least 2 ranks"),
        (1, {"train.sync_every": 4, "train.max_steps": 8}, "at least 2 ranks"),
        (4, {"comm.mode": "async", "train.deterministic": "false", "comm.max_staleness": 1}, "2 updates old"),
    ):
        run = rig.start(ranks, rig.folder("wrong"), sets=sets)
        rig.check(run.wait() == 78 and words in run.text(), f"{sets}: {run.text()}")


def check_eval(rig):
    for key, value in (("comm.mode", "central"), ("train.sync_every", 4)):
        out = train(rig, f"to judge, {key}", 2, {key: value})
        command = [rig.program, "eval", f"{out}/model.safetensors", "--config", f"{out}/config.json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        rig.check(done.returncode == 0, f"eval on one rank: {done.stderr}")


def campaign(rig):
    check_central(rig)
    check_local(rig)
    check_async(rig)
    check_errors(rig)
    check_eval(rig)


if __name__ == "__main__":
    faults.main(campaign, __doc__)
