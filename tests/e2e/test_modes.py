"""Parallel modes: central has the bits of the ring, local SGD sends 1/H of the bytes, async keeps its bound."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import content, events, rig, run, train, write_config  # noqa: E402

COMMON = {"train.max_steps": 24, "data.synthetic_train": 96, "output.log_every": 24, "eval.every_epochs": 1}


def trained(out, ranks, sets, **how):
    train(out, COMMON, sets, ranks=ranks, **how)
    return out


def model(out):
    return content(f"{out}/model.safetensors")


def sent(out):
    steps = events(out, "step")
    return sum(step["sent_bytes"] for step in steps) / len(steps)


def loss(out):
    return events(out, "eval")[-1]["loss"]


def check_central():
    """Also if a step is skipped; on two ranks of every order."""
    for ranks, order, fault in ((2, "auto", "nan@5:1"), (3, "ring", ""), (4, "ring", "")):
        for mode, algorithm in (("allreduce", order), ("central", "auto")):
            sets = {"comm.mode": mode, "comm.algorithm": algorithm, "train.deterministic": "false"}
            trained(f"{mode}-{ranks}", ranks, sets, env={"DTRAIN_FAULT": fault} if fault else ())
        same = model(f"allreduce-{ranks}") == model(f"central-{ranks}")
        assert same, f"central differs from allreduce on {ranks} ranks"


def check_local():
    """How much is sent for other numbers of steps between the meetings: test_compare_modes.py."""
    # An epoch of one step is a meeting after every step.
    plain = {"optim.momentum": 0, "optim.weight_decay": 0, "data.synthetic_train": 12}
    often, same = trained("often", 2, {**plain, "train.sync_every": 4}), trained("same", 2, plain)
    assert abs(loss(often) - loss(same)) < 1e-5, f"loss {loss(often)}, with summed gradients {loss(same)}"
    states = trained("states", 3, {"train.sync_every": 4, "train.average_states": "true"})
    own = trained("own", 3, {"train.sync_every": 4})
    assert sent(states) == 2 * sent(own), "the momentum is not sent as the weights are"
    outer = trained("outer", 3, {"train.sync_every": 4, "train.outer_momentum": 0.5})
    assert sent(outer) == sent(own) and model(outer) != model(own), "no outer momentum"
    rare = {"eval.every_epochs": 0, "checkpoint.every_steps": 0}
    lines = trained("lines", 2, {**rare, "train.sync_every": 4, "output.log_every": 5})
    steps = [step["step"] for step in events(lines, "step")]
    assert steps == [5, 10, 15, 20, 24], f"lines after steps {steps}"


def check_async():
    """Three ranks stop after step 11 and continue."""
    for ranks, bound, first in ((2, 0, 0), (3, 1, 11)):
        sets = {"comm.mode": "async", "train.deterministic": "false", "comm.max_staleness": bound}
        # Stale gradients act like momentum: with more of it the loss depends on who comes first.
        sets.update({"train.sync_every": 5, "train.max_steps": 48, "schedule.lr": 0.02, "optim.momentum": 0.5})
        out = f"async-{ranks}"
        if first:
            trained(out, ranks, {**sets, "train.max_steps": first})
        text = train(out, COMMON, sets, ranks=ranks).said
        last = events(out, "staleness")[-1]
        losses = [step["loss"] for step in events(out, "step")]
        workers = ranks - 1
        assert not first or "never the same twice" in text, f"no word about bits: {text}"
        assert last["max"] <= (bound or 2 * workers), f"{ranks} ranks: {last}"
        assert sum(last["histogram"]) == last["updates"] == (48 - first) * workers, f"{ranks} ranks: {last}"
        assert losses[-1] < losses[0], f"{ranks} ranks: losses {losses}"


def check_errors():
    for ranks, sets, words in (
        (1, {"comm.mode": "central"}, "at least 2 ranks"),
        (1, {"train.sync_every": 4, "train.max_steps": 8}, "at least 2 ranks"),
        (4, {"comm.mode": "async", "train.deterministic": "false", "comm.max_staleness": 1}, "2 updates old"),
    ):
        text = train("wrong", sets, ranks=ranks, code=78).said
        assert words in text, f"{sets}: {text}"


def check_eval():
    """On one rank."""
    for out in ("central-2", "own"):
        run("eval", f"{out}/model.safetensors", "--config", f"{out}/config.json")


write_config(rig.SETTINGS)
check_central()
check_local()
check_async()
check_errors()
check_eval()
