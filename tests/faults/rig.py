"""Runs of the real program for the campaigns in this folder: start, find the ranks, end, compare.

A campaign is a script `test_name.py PROGRAM [--long]`: the short form is part of the test suite,
the long form provides the figures in README.md. Both print a summary line per guarantee and exit
with 1 if one is violated.
"""

import argparse
import atexit
import contextlib
import glob
import hashlib
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time

SETTINGS = {
    "model": {"name": "tiny", "num_classes": 10, "image_size": 32},
    "data": {
        "source": "synthetic",
        "synthetic_train": 240,
        "synthetic_val": 24,
        "workers": 1,
        "augment": "cifar",
    },
    "train": {
        "epochs": 1000,
        "max_steps": 400,
        "global_batch_size": 12,
        "deterministic": True,
    },
    "eval": {"every_epochs": 5, "batch_size_per_rank": 4},
    "schedule": {"kind": "constant", "lr": 0.02, "lr_scaling": "none", "warmup_epochs": 0},
    "device": {"kind": "cpu", "threads": 1},
    "output": {"log_every": 50, "log_every_s": 0},
    "checkpoint": {"every_epochs": 0, "every_steps": 10, "retry_s": 0.2},
}

# In place of the classifier, a detector whose steps do not depend on the ranks but for rounding: no
# batch norm over a rank's images.
DETECTOR = {
    "model.name": "retinanet_resnet18_fpn",
    "model.image_size": 64,
    "model.fpn_channels": 64,
    "model.anchor_base": 16,
    "model.frozen_norm": "true",
    "model.head_norm": "group",
    "comm.algorithm": "hierarchical",
    "train.box_loss": "smooth_l1",
}

SECTIONS = ["none", "init", "data", "compute", "reduce", "eval", "save"]
SLOT = struct.Struct("8sqiiIIQ64s" + 2 * "iiqQdd32s" + "Q")

ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMP_WAIT_POLICY": "passive",
    "I_MPI_PIN": "0",
}
MPIRUN = [*os.environ.get("DTRAIN_MPIRUN", "mpirun --oversubscribe --bind-to none").split(), "-np"]
LAUNCHER = subprocess.run([MPIRUN[0], "--version"], capture_output=True, text=True, check=False).stdout
HANG_S = 400  # What takes longer never ends, whatever else the machine does.
# What Open MPI 4.1.4 says if it lost a race of its own while it started.
RACES = ("Open MPI failed to TCP connect to a peer", "PMIX ERROR: UNREACHABLE")


def run(program, *arguments, ranks=1, code=0, env=(), text=""):
    """Runs it to its end, which must be exit code `code`, unless that is None; `text` is its standard
    input. The result has `said`, all that it printed, as well."""
    command = [*MPIRUN, str(ranks)] if ranks > 1 else []
    command += [program, *arguments]
    env = {**os.environ, **ENVIRONMENT, **dict(env)}
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=HANG_S, env=env, check=False)
    done.said = done.stdout + done.stderr
    assert code in (done.returncode, None), (arguments, done.returncode, done.said)
    return done


def preloaded(program, name):
    """A library that was built for LD_PRELOAD, which cuts paths at blanks; None if this build has none."""
    path = os.path.join(os.path.dirname(os.path.abspath(program)), "tests", name)
    if not os.path.exists(path):
        return None
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    os.symlink(path, os.path.join(folder, name))
    return os.path.join(folder, name)


def after(number):
    """Exit codes of the launcher after a rank was ended by that signal; MPICH then kills the others, and may mean one
    of those."""
    if "Intel" in LAUNCHER:
        return [255]
    return [number, signal.SIGKILL] if "HYDRA" in LAUNCHER else [128 + number]


def process_state(pid):
    """Its state letter and its parent; ("gone", 0) if the process does not exist."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            stat = file.read()
    except OSError:
        return "gone", 0
    state, parent = stat[stat.rindex(")") + 2 :].split()[:2]
    return state, int(parent)


def started_by(launcher):
    """Process IDs of what it has started on this machine; those of MPICH and Intel have a proxy between."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        state, parent = process_state(pid)
        if parent == launcher and state != "Z":
            with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                found += started_by(pid) if file.read().startswith("hydra_") else [pid]
    return sorted(found)


def find_rank(launcher, rank, program="dtrain"):
    """Process ID of a rank that `launcher`, on this machine, has started; None if it has not yet."""
    for pid in started_by(launcher):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            is_it = re.search(rb"\0(OMPI_COMM_WORLD|PMI)_RANK=%d\0" % rank, file.read())
            if is_it and os.path.basename(os.readlink(f"/proc/{pid}/exe")) == program:
                return pid
    return None


def send(pids, number):
    """Sends a signal to all; some may have ended already."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


class Run:
    """One start of the program; `text` is its stderr so far."""

    def __init__(self, process, log, command):
        self.process, self.log, self.command = process, log, command
        self.begin = time.monotonic()

    def ranks(self):
        """Process IDs of the ranks in rank order, in which mpirun starts them."""
        return started_by(self.process.pid) if self.command[0] == MPIRUN[0] else [self.process.pid]

    def wait(self, timeout=HANG_S):
        """Exit code; a run that does not end is killed and counts as a failure."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired as problem:
            self.kill()
            raise AssertionError(f"still running after {timeout} s:\n{self.text()}") from problem
        self.log.flush()
        return code

    def text(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as log:
            return log.read()

    def lost_race(self):
        """Whether Open MPI is to blame for the failure of this start; says so."""
        lost = any(race in self.text() for race in RACES)
        if lost:
            print(f"once more, as Open MPI says: {self.text()[-500:]}", flush=True)
        return lost

    def kill(self):
        send(self.ranks() + [self.process.pid], signal.SIGKILL)
        self.process.wait()


class Rig:
    def __init__(self, program, long_form=False, seed=1):
        self.program = os.path.abspath(program)
        self.long = long_form
        self.random = random.Random(seed)
        self.work = tempfile.mkdtemp(prefix="dtrain-faults-")
        self.n_runs = 0
        self.n_hung_starts = 0  # of mpirun, not of the program
        self.failed = []
        self.references = {}

    def close(self):
        shutil.rmtree(self.work, ignore_errors=True)

    def folder(self, name):
        path = os.path.join(self.work, name)
        shutil.rmtree(path, ignore_errors=True)
        return path

    def start(self, n_ranks, out, sets=(), env=(), options=(), command=(), through=()):
        """`sets`: configuration keys and values; `command`: instead of training into `out`; `through`: a command that
        the output is piped through."""
        self.n_runs += 1
        config = os.path.join(self.work, "config.json")
        if not os.path.exists(config):
            with open(config, "w", encoding="utf-8") as file:
                json.dump(SETTINGS, file)
        command = [self.program, *(command or ("--out", out)), "--config", config, *options]
        for key, value in dict(sets).items():
            command += ["--set", f"{key}={value}"]
        if n_ranks > 1:
            command = MPIRUN + [str(n_ranks)] + command
        log = open(os.path.join(self.work, f"log-{self.n_runs}"), "w", encoding="utf-8")
        pipe = subprocess.Popen(through, stdin=subprocess.PIPE, stdout=log) if through else None
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=pipe.stdin if pipe else log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ENVIRONMENT, **dict(env)},
        )
        if pipe:
            pipe.stdin.close()
        return Run(process, log, command)

    def finish(self, n_ranks, out, **arguments):
        """Runs to the end; the exit code must be 0, if need be at the second start."""
        run = self.start(n_ranks, out, **arguments)
        code = run.wait()
        if code != 0 and run.lost_race():
            run = self.start(n_ranks, out, **arguments)
            code = run.wait()
        assert code == 0, f"exit code {code}: {' '.join(run.command)}\n{run.text()}"
        return run

    def reference(self, n_ranks, sets=()):
        """Final state of an undisturbed run."""
        key = (n_ranks, tuple(dict(sets).items()))
        if key not in self.references:
            out = self.folder(f"reference-{len(self.references)}")
            self.finish(n_ranks, out, sets=sets)
            self.references[key] = state_of(out)
        return self.references[key]

    def check(self, ok, what):
        if not ok:
            self.failed.append(what)
            print(f"FAILED: {what}", flush=True)


def checkpoints(out):
    """Names of the checkpoint folders, oldest first."""
    folder = os.path.join(out, "checkpoints")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(name for name in names if re.fullmatch(r"step-\d{9}", name))


def newest_step(out):
    """-1 if there is no checkpoint."""
    names = checkpoints(out)
    return int(names[-1][len("step-") :]) if names else -1


def reported_step(run):
    """Step of the last checkpoint that the program reported as saved, -1 if none."""
    found = re.findall(r"dtrain: checkpoint of step (\d+) in ", run.text())
    return int(found[-1]) if found else -1


def hash_of(folder, without=""):
    """Hash of weights, running statistics, momentum, moving averages and position, but for one key of it."""
    digest = hashlib.sha256()
    for name in ("model.safetensors", "optim.safetensors", "ema.safetensors"):
        if not os.path.exists(os.path.join(folder, name)):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            digest.update(file.read())
    with open(os.path.join(folder, "state.json"), encoding="utf-8") as file:
        state = json.load(file)
    for key in ("step", "epoch", "batch", "passes", "best", "goal", "goal_waits", "plateau"):
        if key != without:
            digest.update(f"{key} {state.get(key)}\n".encode())
    return digest.hexdigest()


def state_of(out, without=""):
    names = checkpoints(out)
    assert names, f"no checkpoint in {out}"
    return hash_of(os.path.join(out, "checkpoints", names[-1]), without)


def bytes_of(folder):
    """Contents of every file, to check that nothing was changed."""
    result = {}
    for top, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(top, name), "rb") as file:
                result[os.path.join(top, name)] = file.read()
    return result


def events(out):
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def slots(out):
    """Per process id: rank, section and step, as the others see them."""
    try:
        with open(os.path.join(out, "heartbeat.bin"), "rb") as file:
            data = file.read()
    except OSError:
        return {}
    data = data[: len(data) // SLOT.size * SLOT.size]
    fields = [s for s in SLOT.iter_unpack(data) if s[0] == b"dtbeat01"]
    return {s[3]: (s[2], SECTIONS[s[8]], s[10]) for s in fields}


def remove_shared_memory():
    """Removes what a killed mpirun has left in /dev/shm: a minute old, and no process has it mapped."""
    mapped = ""
    for path in glob.glob("/proc/[0-9]*/maps"):
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            mapped += file.read()
    for path in glob.glob("/dev/shm/vader_segment.*"):
        with contextlib.suppress(FileNotFoundError):
            if path not in mapped and time.time() - os.stat(path).st_ctime > 60:
                os.unlink(path)


def main(campaign, description):
    """Runs campaign(rig) with the command line arguments."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("program")
    parser.add_argument("--long", action="store_true", help="the full numbers")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rig = Rig(arguments.program, arguments.long, arguments.seed)
    begin = time.monotonic()
    try:
        campaign(rig)
    finally:
        rig.close()
    seconds = time.monotonic() - begin
    print(f"{rig.n_runs} starts in {seconds:.0f} s, {len(rig.failed)} violations", flush=True)
    raise SystemExit(1 if rig.failed else 0)
