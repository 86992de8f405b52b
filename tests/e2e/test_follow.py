"""dtrain eval RUN --follow: waits for the first checkpoint and for each that comes, on one rank and on two; has in the
end the lines of --all-checkpoints; skips one that the run has removed meanwhile.

    python3 test_follow.py BUILD/dtrain"""

import glob
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import DTRAIN, rig, run, train, write_config  # noqa: E402

CONFIG = {
    "model": {"name": "tiny", "image_size": 32, "num_classes": 10},
    "data": {"source": "synthetic", "synthetic_train": 24, "synthetic_val": 8, "workers": 1},
    "train": {"epochs": 100000, "global_batch_size": 8, "deterministic": True},
    "eval": {"every_epochs": 0, "batch_size_per_rank": 4},
    "schedule": {"kind": "constant", "lr": 0.05, "lr_scaling": "none", "warmup_epochs": 0},
    "checkpoint": {"keep": 100000, "every_epochs": 0, "every_steps": 10},
    "device": {"kind": "cpu", "threads": 1},
}
write_config(CONFIG)


def start(log, *words, fault="", ranks=1):
    """In the background, with what it says in log.err and what it prints in log.out."""
    launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks > 1 else []
    with open(f"{log}.err", "w") as err, open(f"{log}.out", "w") as out:
        return subprocess.Popen([*launcher, DTRAIN, *words], stdout=out, stderr=err,
                                env={**os.environ, **rig.ENVIRONMENT, "DTRAIN_FAULT": fault})


def text(file):
    with open(file, encoding="utf-8") as f:
        return f.read()


def until(condition, what):
    end = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < end, f"not within 100 s: {what()}"
        time.sleep(0.05)


def is_stopped(process):
    return rig.process_state(process.pid)[0] == "T"


def checkpoints(folder):
    return sorted(glob.glob(f"{folder}/checkpoints/step-*"))


def test_follow(ranks):
    """The run stands still before its first checkpoint and after some, until the evaluation waits for it."""
    name = f"run-{ranks}"
    trains = start(name, "--config", "config.json", "--out", name, fault="stop@1:0")
    until(lambda: is_stopped(trains), lambda: text(f"{name}.err"))
    follows = start("follow", "eval", name, "--follow", ranks=ranks)
    until(lambda: f"waiting for the first checkpoint of {name}" in text("follow.err"), lambda: text("follow.err"))
    trains.send_signal(signal.SIGCONT)
    until(lambda: checkpoints(name), lambda: text(f"{name}.err"))
    trains.send_signal(signal.SIGSTOP)
    until(lambda: f"waiting for the next checkpoint of {name}" in text("follow.err"), lambda: text("follow.err"))
    before = len(text("follow.out").splitlines())
    trains.send_signal(signal.SIGTERM)
    trains.send_signal(signal.SIGCONT)
    assert trains.wait(100) == 75, text(f"{name}.err")
    assert follows.wait(100) == 0, text("follow.err")
    assert text("follow.err").count("waiting for the next") == 1, text("follow.err")
    assert text("follow.out") == run("eval", name, "--all-checkpoints", ranks=ranks).stdout, text("follow.out")
    assert 1 <= before < len(text("follow.out").splitlines()) == len(checkpoints(name)), text("follow.out")


def test_ended():
    """There is nothing to wait for in a run that has ended, with checkpoints or without."""
    assert run("eval", "run-1", "--follow").stdout == run("eval", "run-1", "--all-checkpoints").stdout
    train("none", "train.max_steps=1")
    shutil.rmtree("none/checkpoints")
    assert "none holds no checkpoints" in run("eval", "none", "--follow", code=64).stderr


def test_removed():
    """The last is removed while the first is evaluated."""
    follows = start("removed", "eval", "run-1", "--follow", fault="stop@eval:0")
    until(lambda: is_stopped(follows), lambda: text("removed.err"))
    shutil.rmtree(checkpoints("run-1")[-1])
    follows.send_signal(signal.SIGCONT)
    assert follows.wait(100) == 0, text("removed.err")
    assert "skipped: the run has removed" in text("removed.err"), text("removed.err")
    assert len(text("removed.out").splitlines()) == len(checkpoints("run-1")), text("removed.out")


test_follow(1)
test_follow(2)
test_ended()
test_removed()
print("OK")
