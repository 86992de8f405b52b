"""Crashes at every I/O call, and power loss that drops everything not synced: the remaining
checkpoints always load, and the run resumes to the state of an undisturbed one."""

import os
import shutil

import rig as faults

STEPS = {"train.max_steps": 40, "checkpoint.keep": 2, "eval.every_epochs": 1}


def begin(rig, name):
    """A run folder with two checkpoints, from which a run resumes for 20 more steps."""
    out = rig.folder(name)
    rig.finish(1, out, sets={**STEPS, "train.max_steps": 20})
    return out


def go_on(rig, out, what, reported, expected, sets=None):
    """Checks that the reported checkpoint exists, and that the run ends as it should."""
    kept = faults.newest_step(out)
    rig.check(kept >= reported, f"{what}: step {reported} was saved, but {kept} is the newest")
    run = rig.finish(1, out, sets=sets or STEPS)
    rig.check("is not usable" not in run.text(), f"{what}: a checkpoint was damaged:\n{run.text()}")
    rig.check(faults.state_of(out) == expected, f"{what}: a different final state")
    folder = os.path.join(out, "checkpoints")
    left = [name for name in os.listdir(folder) if name.startswith(".")]
    rig.check(not left, f"{what}: {left} are left over")


def crashes(rig, start, expected):
    """crash@io:N for N = 1 to the end of the run, including the first save and retention."""
    n_points = 0
    for n in range(1 if rig.long else 2, 100000, 1 if rig.long else 26):
        out = rig.folder("crash")
        if start:
            shutil.copytree(start, out)
        run = rig.start(1, out, sets=STEPS, env={"DTRAIN_FAULT": f"crash@io:{n}"})
        code = run.wait()
        if code == 0:
            return n_points
        rig.check(code == -9, f"crash@io:{n}: exit code {code}\n{run.text()}")
        go_on(rig, out, f"crash@io:{n}", max(faults.reported_step(run), 20 if start else -1), expected)
        n_points += 1
    raise AssertionError("the crashes never end")


def power_losses(rig, shim, start, expected, n_points):
    n_done = 0
    top = rig.folder("power")
    out = os.path.join(top, "run")
    os.makedirs(top)
    for point in range(n_points):
        shutil.rmtree(out, ignore_errors=True)
        existed = bool(point % 5)
        if existed:
            shutil.copytree(start, out)
        env = {
            "LD_PRELOAD": shim,
            "POWER_LOSS_DIR": top,
            "POWER_LOSS_AT": str(rig.random.randint(1, 90 if existed else 150)),
            "POWER_LOSS_MODE": "all" if point % 3 == 0 else "some",
            "POWER_LOSS_SEED": str(point),
            "POWER_LOSS_IGNORE": "heartbeat.bin:metrics.jsonl:rank-0000.log",
        }
        run = rig.start(1, out, sets=STEPS, env=env)
        code = run.wait()
        n_done += code == -9
        rig.check(code in (0, -9), f"power loss {env}: exit code {code}\n{run.text()}")
        go_on(rig, out, f"power loss {env}", max(faults.reported_step(run), 20 if existed else -1), expected)
    return n_done


def campaign(rig):
    expected = rig.reference(1, STEPS)
    start = begin(rig, "start")
    for name, folder in (("first save and on", None), ("with older ones", start)):
        print(f"crash@io, {name}: {crashes(rig, folder, expected)} points", flush=True)
    shim = faults.preloaded(rig.program, "power_loss.so")
    with open(rig.program, "rb") as file:
        if b"__asan_init" in file.read():
            print("no power loss: libraries cannot be preloaded into a program with sanitizers")
            return
    n_points = 500 if rig.long else 6
    n_done = power_losses(rig, shim, start, expected, n_points)
    print(f"power losses: {n_done} of {n_points} starts lost power", flush=True)


if __name__ == "__main__":
    faults.main(campaign, __doc__)
