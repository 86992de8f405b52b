"""Full disks and I/O errors: earlier checkpoints stay intact, and training continues with the same
result."""

import os
import resource
import shlex
import shutil
import subprocess
import time

import rig as faults

STEPS = {"train.max_steps": 60, "checkpoint.keep": 8, "checkpoint.retry_s": 0.05}


def begin(rig, name):
    out = rig.folder(name)
    rig.finish(1, out, sets={**STEPS, "train.max_steps": 20})
    return out


def compare(rig, what, before, out):
    after = faults.bytes_of(os.path.join(out, "checkpoints"))
    changed = [path for path in before if after.get(path) != before[path]]
    changed = [path for path in changed if not path.endswith(("latest", "best"))]
    rig.check(not changed, f"{what}: {changed} have changed")


def fail_at(rig, start, fault, expected):
    """One run with a failing call. Returns its exit code: 0 or 74 (or 73 before training)."""
    out = rig.folder("disk")
    shutil.copytree(start, out)
    before = faults.bytes_of(os.path.join(out, "checkpoints"))
    run = rig.start(1, out, sets=STEPS, env={"DTRAIN_FAULT": fault})
    code = run.wait()
    compare(rig, fault, before, out)
    text = run.text()
    if code == 0:
        rig.check(faults.state_of(out) == expected, f"{fault}: a different result")
    else:
        rig.check(code in (73, 74), f"{fault}: exit code {code}\n{text}")
        rig.check(text.count("error[") == 1, f"{fault}: not one error:\n{text}")
    return code


def count_calls(rig, start):
    """Number of I/O calls of the run: the first N without a crash, by bisection."""
    low, high = 0, 4096
    while high - low > 1:
        middle = (low + high) // 2
        out = rig.folder("count")
        shutil.copytree(start, out)
        code = rig.start(1, out, sets=STEPS, env={"DTRAIN_FAULT": f"crash@io:{middle}"}).wait()
        low, high = (low, middle) if code == 0 else (middle, high)
    return low


def failing_calls(rig, start, expected):
    """Number of runs per exit code, if each call fails once, or from then on."""
    codes = {}
    calls = range(1, count_calls(rig, start) + 1) if rig.long else None
    for number, fault in enumerate(("enospc@io:{}", "enospc@io:{}+", "eio@io:{}", "eio@io:{}+")):
        for n in calls or range(5 + 7 * number, 120, 40):
            code = fail_at(rig, start, fault.format(n), expected)
            codes[code] = codes.get(code, 0) + 1
    rig.check({0, 74} <= set(codes), f"only exit codes {codes}")
    return codes


def limited(rig, start, expected, name, limit, option):
    """RLIMIT_FSIZE below the size of a checkpoint's files, or no further open files, for the rest
    of the run: no save succeeds. MPI needs more to start, so the limit is set after that."""
    out = rig.folder(name)
    shutil.copytree(start, out)
    before = faults.bytes_of(os.path.join(out, "checkpoints"))
    run = rig.start(1, out, sets=STEPS, env={"DTRAIN_FAULT": "slow@0:5"})
    while "dtrain: start " not in run.text() and run.process.poll() is None:
        time.sleep(0.01)
    resource.prlimit(run.process.pid, getattr(resource, name), (limit, limit))
    code = run.wait()
    compare(rig, name, before, out)
    advised = option in run.text() and "free space" not in run.text()
    rig.check(code == 74 and advised, f"{name}: exit code {code}\n{run.text()}")
    rig.finish(1, out, sets=STEPS)
    rig.check(faults.state_of(out) == expected, f"{name}: a different result afterwards")


def small_file_system(rig, expected, factor, checkpoint_bytes):
    """A tmpfs with room for `factor` checkpoints, in a private mount namespace."""
    out = rig.folder("tmpfs")
    os.makedirs(out)
    size = int(factor * checkpoint_bytes)
    config = os.path.join(rig.work, "config.json")
    sets = "".join(f" --set {key}={value}" for key, value in STEPS.items())
    keep = "--set checkpoint.keep=1"
    script = (
        f"mount -t tmpfs -o size={size} none {out} && "
        f"{shlex.quote(rig.program)} --config {config} --out {out}{sets} {keep}; code=$?; "
        f"{shlex.quote(rig.program)} verify {out}; echo verify $?; exit $code"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        env={**os.environ, **faults.ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def small_file_systems(rig, expected, start):
    names = faults.checkpoints(start)
    folder = os.path.join(start, "checkpoints", names[-1])
    size = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0:
        print("tmpfs: skipped, as mount namespaces are unavailable")
        return
    sizes = ((1.2, (73,)), (6, (0,)))
    for factor, codes in ((0.5, (73,)), (8, (0,)), *sizes) if rig.long else sizes:
        code, text = small_file_system(rig, expected, factor, size)
        rig.check(code in codes, f"tmpfs of {factor} checkpoints: exit code {code}\n{text}")
        print(f"tmpfs of {factor} checkpoints: exit code {code}", flush=True)


def campaign(rig):
    expected = rig.reference(1, STEPS)
    start = begin(rig, "start")
    codes = failing_calls(rig, start, expected)
    print(f"failing calls: exit codes {codes}", flush=True)
    limited(rig, start, expected, "RLIMIT_FSIZE", 50000, "ulimit -f")
    limited(rig, start, expected, "RLIMIT_NOFILE", 3, "ulimit -n")
    small_file_systems(rig, expected, start)


if __name__ == "__main__":
    faults.main(campaign, __doc__)
