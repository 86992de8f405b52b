"""A run folder that is removed, renamed or replaced while a run uses it: the run stops at once, its
state is saved beside the old place, and a job that has begun there is not disturbed."""

import glob
import os
import shutil
import time

import rig as faults

LAST = 120
STEPS = {"train.max_steps": LAST, "checkpoint.every_steps": 10}


def remove(rig, out):
    shutil.rmtree(out)


def rename(rig, out):
    os.rename(out, rig.folder("elsewhere"))


def remove_lock(rig, out):
    os.unlink(os.path.join(out, ".lock"))


def replace(rig, out):
    """Another job begins in the same place."""
    rename(rig, out)
    rig.finish(1, out, sets={**STEPS, "train.max_steps": 20})


def contents(out):
    """All but the beats, which end with the run."""
    return {path: data for path, data in faults.bytes_of(out).items() if "heartbeat" not in path}


def lose(rig, n_ranks, change, expected, shared=True):
    what = f"{change.__name__} on {n_ranks} rank(s), output.shared={shared}"
    out = rig.folder("run")
    for path in glob.glob(out + "-rescued-*"):
        shutil.rmtree(path)
    sets = {**STEPS, "output.shared": str(shared).lower()}
    run = rig.start(n_ranks, out, sets=sets, env={"DTRAIN_FAULT": "slow@0:30"})
    while faults.reported_step(run) < 10 and run.process.poll() is None:
        time.sleep(0.02)
    change(rig, out)
    there = contents(out) if change != remove_lock else None
    code, text = run.wait(), run.text()
    rescued = glob.glob(out + "-rescued-step-*")
    rig.check(code == 74, f"{what}: exit code {code}\n{text}")
    rig.check(text.count("error[") == 1, f"{what}: not one error:\n{text}")
    rig.check(len(rescued) == 1 and f" in {rescued[0]}: " in text, f"{what}: {text}")
    rig.check(there in (None, contents(out)), f"{what}: the folder was changed afterwards")
    if not rescued:
        return
    shutil.rmtree(out, ignore_errors=True)
    os.rename(rescued[0], out)
    rig.check(0 < faults.newest_step(out) < LAST, f"{what}: not stopped: {faults.newest_step(out)}")
    rig.finish(n_ranks, out, sets=STEPS)
    rig.check(faults.state_of(out) == expected, f"{what}: a different result")


def campaign(rig):
    for n_ranks in (1, 2):
        expected = rig.reference(n_ranks, STEPS)
        for change in (remove, rename, remove_lock, replace):
            if rig.long or (n_ranks == 2) == (change in (remove, replace)):
                lose(rig, n_ranks, change, expected)
        if rig.long or n_ranks == 2:
            lose(rig, n_ranks, remove, expected, shared=False)
    print("a lost run folder: stopped with 74, saved beside it, resumed with the same bits")


if __name__ == "__main__":
    faults.main(campaign, __doc__)
