"""The whole life of a job under `dtrain launch`, with a crash in it: requests to end (SIGTERM, SIGINT, SIGHUP, SIGUSR1)
and SIGKILL of the supervisor, of mpirun or of a rank, at any moment of start, training, save, crash, cleaning, doctor,
back-off, restart and end. The job ends with the promised code and a sentence, no process stays, and further starts in
its folder reach the state of an undisturbed run.

The short form chooses moments by what the job shows, --long one every 50 ms; TIMELINE_POINTS bounds their number."""

import collections
import concurrent.futures
import glob
import itertools
import json
import os
import random
import signal
import subprocess
import time

import rig as faults

SETS = {"checkpoint.every_steps": 20, "checkpoint.keep": 2, "eval.every_epochs": 0, "watchdog.step_timeout_s": 60}
STEPS, CRASH = 80, 30  # of each job; it crashes once
PER_CHAIN = 10  # jobs in a folder, before it is compared
GONE_S = 100  # after which no process may be left, however busy the machine
REQUESTS = ["TERM", "INT", "HUP", "USR1"]
KINDS = [*REQUESTS, "KILL supervisor", "KILL mpirun", "KILL rank"]
# The first start of the job crashes.
WRAPPER = """#!/bin/sh
case "$*" in
*--version* | *" doctor "*) ;;
*) if mkdir "$DTRAIN_JOB.crashed" 2> /dev/null; then export DTRAIN_FAULT="kill@$CRASH_STEP:1"; fi ;;
esac
exec %s "$@"
"""


class Job:
    """One start of the supervisor in a run folder."""

    numbers = itertools.count()

    def __init__(self, rig, out, steps, crashes=True):
        self.rig, self.out, self.steps = rig, out, steps
        self.name = os.path.join(rig.work, f"job-{next(self.numbers)}")
        if not crashes:
            os.mkdir(f"{self.name}.crashed")
        env = {"DTRAIN_MPIRUN": f"{rig.wrapper} --oversubscribe --bind-to none", "DTRAIN_JOB": self.name}
        env["CRASH_STEP"] = str(max(faults.newest_step(out), 0) + CRASH)
        words = [rig.program, "launch", "--ranks", "2", "--max-restarts", "3", "--", "--config", rig.config, "--out", out]
        words += [word for key, value in SETS.items() for word in ("--set", f"{key}={value}")]
        words += ["--set", f"train.max_steps={steps}"]
        with open(self.name, "w", encoding="utf-8") as log:
            self.begin_s = time.monotonic()
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **faults.ENVIRONMENT, **env}
            )

    def text(self):
        with open(self.name, encoding="utf-8", errors="replace") as log:
            return log.read()

    def found(self):
        """Its other processes: process ID and words."""
        mark, found = f"\0DTRAIN_JOB={self.name}\0".encode(), {}
        for path in glob.glob("/proc/[0-9]*/environ"):
            pid = int(path.split("/")[2])
            try:
                with open(path, "rb") as file:
                    is_ours = mark in b"\0" + file.read() + b"\0"
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                    words = file.read().split("\0")
            except OSError:
                continue
            if is_ours and pid != self.process.pid and faults.process_state(pid)[0] not in ("Z", "gone"):
                found[pid] = words
        return found

    def victims(self, kind):
        """Whom the signal is for."""
        if kind in REQUESTS or kind == "KILL supervisor":
            return [self.process.pid]
        name = "mpirun" if kind == "KILL mpirun" else os.path.basename(self.rig.program)
        found = {pid: words for pid, words in self.found().items() if "launch" not in words}  # nor its forks
        return sorted(pid for pid, words in found.items() if os.path.basename(words[0]) == name)

    def phase(self):
        """What it is doing."""
        text, words = self.text(), [words for words in self.found().values()]
        n_starts = text.count("dtrain: launch: /")
        if n_starts == 0:
            return "before the start"
        if any("doctor" in one for one in words):
            return "doctor"
        if any("--out" in one for one in words):
            has_begun = text.count(" from scratch") + text.count("resuming from") >= n_starts
            return ("trains, saves" if has_begun else "starts") + (" again" if n_starts > 1 else "")
        return "back-off" if text.count("; restart ") == n_starts else "crash, cleaning, end"


def problems(job, kind, code, phase):
    """What is not as promised."""
    text, step = job.text(), faults.newest_step(job.out)
    if code == 0:
        with open(os.path.join(job.out, "RUN"), encoding="utf-8") as file:
            state = json.load(file)
        is_done = state["state"] == "ended" and state["exit_code"] == 0 and step == job.steps
        return [] if is_done and kind != "KILL supervisor" else [f"0 at step {step} of {job.steps}"]
    if kind in REQUESTS:
        number = getattr(signal, f"SIG{kind}")
        if code == -number and phase == "before the start":
            return []
        return ([] if code == 75 else [f"exit code {code}"]) + ([] if "run again" in text else ["no sentence"])
    if kind == "KILL supervisor":
        return [] if code == -signal.SIGKILL else [f"exit code {code}"]
    return [] if "; gave up: no newer checkpoint" in text and code in (137, 139, 255) else [f"exit code {code}"]


def disturb(rig, out, steps, kind, is_time):
    """A job, to which the signal is sent once is_time(job). Returns the phase, code, seconds and problems."""
    job, pids = Job(rig, out, steps), []
    until_s = job.begin_s + faults.HANG_S
    while job.process.poll() is None and time.monotonic() < until_s and not (is_time(job) and pids):
        time.sleep(0.01)
        pids = job.victims(kind) if is_time(job) else []
    phase, sent_s = job.phase(), time.monotonic()
    if job.process.poll() is None:
        faults.send(pids[-1:], getattr(signal, f"SIG{kind.split()[0]}"))
    else:
        kind, phase = "none", "ended before"
    try:
        code = job.process.wait(faults.HANG_S)
        found = problems(job, kind, code, phase)
    except subprocess.TimeoutExpired:
        code, found = None, ["it does not end"]
        job.process.kill()
        job.process.wait()
    seconds = time.monotonic() - sent_s
    until_s = time.monotonic() + GONE_S
    while (left := job.found()) and time.monotonic() < until_s:
        time.sleep(0.05)
    if left:
        found.append(f"left: {left}")
        faults.send(left, signal.SIGKILL)
    if found:
        rig.check(False, f"{kind} in '{phase}' of {job.name}: {', '.join(found)}\n{job.text()[-2500:]}")
    return kind, phase, code, seconds, len(found)


def chain(rig, out, points):
    """Jobs in one folder, each disturbed at a point; then the folder is trained to its end."""
    results = []
    for kind, is_time in points:
        results.append(disturb(rig, out, max(faults.newest_step(out), 0) + STEPS, kind, is_time))
    last = PER_CHAIN * STEPS
    final = Job(rig, out, last, crashes=False)
    code = final.process.wait(faults.HANG_S)
    is_same = code == 0 and faults.state_of(out) == rig.last_state
    rig.check(is_same, f"{out}: code {code} or another state than an undisturbed run's\n{final.text()[-2500:]}")
    return results


def says(text, n=1, later_s=0.0):
    """So long after the job has said so n times."""

    def is_time(job):
        if not hasattr(job, "seen_s") and job.text().count(text) >= n:
            job.seen_s = time.monotonic()
        return time.monotonic() >= getattr(job, "seen_s", 1e99) + later_s

    return is_time


def after(seconds):
    return lambda job: time.monotonic() - job.begin_s >= seconds


def examines(job):
    return any("doctor" in words for words in job.found().values())


MOMENTS = [
    ("TERM", says("dtrain: launch: /")),
    ("USR1", says("dtrain: launch: /", later_s=0.1)),
    ("KILL mpirun", says("dtrain: launch: /")),
    ("HUP", says("dtrain: launch: /", later_s=0.3)),
    ("INT", says("checkpoint of step")),
    ("TERM", examines),
    ("KILL supervisor", examines),
    ("USR1", says("; restart 1 of")),
    ("INT", says("dtrain: launch: /", n=2, later_s=0.1)),
    ("KILL rank", says("resuming from", n=2)),
]


def prepare(rig):
    """The wrapper, and the state that all chains end in."""
    rig.wrapper, rig.config = os.path.join(rig.work, "wrapper"), os.path.join(rig.work, "config.json")
    with open(rig.wrapper, "w", encoding="utf-8") as file:
        file.write(WRAPPER % faults.MPIRUN[0])
    os.chmod(rig.wrapper, 0o755)
    out = rig.folder("reference")
    rig.finish(2, out, sets={**SETS, "train.max_steps": PER_CHAIN * STEPS})
    rig.last_state = faults.state_of(out)


def campaign(rig):
    if "Open MPI" not in faults.LAUNCHER and "OpenRTE" not in faults.LAUNCHER:
        print("skipped: its processes are named as Open MPI's")
        raise SystemExit(77)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as the job would have them, if they were ignored here
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    prepare(rig)
    chains, n_side_by_side = [MOMENTS], 1
    if rig.long:
        job = Job(rig, rig.folder("plain"), STEPS)
        rig.check(job.process.wait(faults.HANG_S) == 0, f"the job without a signal\n{job.text()}")
        life_s = time.monotonic() - job.begin_s
        points = [(kind, after(0.05 * i)) for i in range(int(life_s / 0.05)) for kind in KINDS]
        random.Random(rig.random.random()).shuffle(points)
        points = points[: int(os.environ.get("TIMELINE_POINTS", len(points)))]
        chains = [points[i : i + PER_CHAIN] for i in range(0, len(points), PER_CHAIN)]
        n_side_by_side = 3
        print(f"{len(points)} points of a life of {life_s:.1f} s", flush=True)
    results = []
    with concurrent.futures.ThreadPoolExecutor(n_side_by_side) as pool:
        jobs = [pool.submit(chain, rig, rig.folder(f"chain-{i}"), chains[i]) for i in range(len(chains))]
        for job in concurrent.futures.as_completed(jobs):
            results += job.result()
    for place, name in ((0, "signal"), (1, "phase")):
        print(f"{name:22} points  violations  longest (s)  codes")
        for what in sorted({result[place] for result in results}):
            chosen = [result for result in results if result[place] == what]
            codes = dict(collections.Counter(result[2] for result in chosen))
            longest_s, n_bad = max(result[3] for result in chosen), sum(result[4] > 0 for result in chosen)
            print(f"{what:22} {len(chosen):6} {n_bad:11} {longest_s:12.1f}  {codes}")


if __name__ == "__main__":
    faults.main(campaign, __doc__)
