"""Ranks that stop: the others must name the rank and its section and end the job in time, and no
process may remain; in every command on several ranks, from the moment the program has started. A
job that is suspended as a whole must continue undisturbed."""

import functools
import os
import re
import signal
import time

import rig as faults

LIMIT, BUSY_LIMIT = 5, 20
GRACE = LIMIT  # seconds after the limit within which the job must end, in the long form
START_LIMIT = 10
MESSAGE = re.compile(
    r"dtrain: error\[HANG\] rank (\d+) \(\S+ pid (\d+)\) .* since step (\d+), section (\w+), for \d+ s"
)


def state_of(pid):
    return faults.process_state(pid)[0]


def left(pids):
    """Those that do not end."""
    for _ in range(200):
        alive = [pid for pid in pids if state_of(pid) not in ("gone", "Z", "X")]
        if not alive:
            break
        time.sleep(0.1)
    return alive


def watch(begin_next, side_by_side):
    """Begins the cases, each when the ranks of the ones before have stopped, and sees them end."""
    begin_next, cases, running = list(begin_next), [], []
    while begin_next or running:
        running = [case for case in running if not case.look()]
        starting = any(case.stopped is None for case in running)
        if begin_next and not starting and len(running) < side_by_side:
            running.append(begin_next.pop(0)())
            cases.append(running[-1])
        time.sleep(0.05)
    return cases


def report(rig, cases, what):
    times = [seconds for case in cases if (seconds := case.check(rig)) is not None]
    if times:
        print(
            f"{len(times)} of {len(cases)} {what}: job ended after"
            f" {min(times):.1f} .. {sum(times) / len(times):.1f} .. {max(times):.1f} s",
            flush=True,
        )


class Case:
    """One run in which a rank stops: by itself in `section`, or by a signal sent from here."""

    def __init__(self, rig, number, section):
        self.section, self.n_ranks = section, rig.random.randint(2, 4 if rig.long else 3)
        self.victim = rig.random.randrange(self.n_ranks)
        self.out = rig.folder(f"hang-{number}")
        self.delay = rig.random.uniform(0, 2.5)
        sets = {
            # On a busy machine a rank may need more than 5 s to start, or to wait for its disk.
            "watchdog.init_timeout_s": LIMIT if rig.long else BUSY_LIMIT,
            "watchdog.step_timeout_s": LIMIT,
            "watchdog.save_timeout_s": LIMIT if rig.long or section == "save" else BUSY_LIMIT,
            "train.max_steps": 1000000,
            "train.epochs": 100000,
        }
        env = {"DTRAIN_FAULT": f"stop@{section}:{self.victim}"} if section else {}
        self.run = rig.start(self.n_ranks, self.out, sets=sets, env=env)
        self.pids, self.stopped, self.seen, self.ended = set(), None, None, None

    def look(self):
        """Call often, until it returns True: the run has ended."""
        now = time.monotonic()
        if self.run.process.poll() is not None:
            self.ended = self.ended or now
            return True
        if self.stopped is None:
            self.pids.update(self.run.ranks())
            self.stop_or_notice(now)
        elif self.seen is None and now > self.stopped + 0.5:
            self.seen = faults.slots(self.out)
        if now > self.run.begin + faults.HANG_S:
            self.run.kill()
        return False

    def stop_or_notice(self, now):
        if self.section:
            stopped = [pid for pid in self.pids if state_of(pid) == "T"]
            self.stopped = now if stopped else None
            return
        there = {rank: pid for pid, (rank, _, _) in faults.slots(self.out).items()}
        if len(there) == self.n_ranks and self.delay <= 0:
            faults.send([there[self.victim]], signal.SIGSTOP)
            self.stopped = now
        elif len(there) == self.n_ranks:
            self.delay -= 0.05

    def check(self, rig):
        """Seconds from the stop to the end of the job, None if no rank stopped."""
        when = f"in {self.section}" if self.section else "at a random moment"
        name = f"stop of rank {self.victim} of {self.n_ranks} {when}"
        text = self.run.text()
        rig.check(self.stopped is not None, f"{name}: no rank stopped: {text}")
        if self.stopped is None:
            return None
        rig.check(self.run.process.returncode == 80, f"{name}: {self.run.process.returncode}")
        found = MESSAGE.findall(text)
        rig.check(len(found) == 1, f"{name}: not one message: {text}")
        for rank, pid, step, section in found[:1]:
            seen = (self.seen or {}).get(int(pid))
            told = (int(rank), section, int(step))
            rig.check(int(rank) == self.victim, f"{name}: rank {rank} named: {text}")
            rig.check(section == (self.section or section), f"{name}: section {section} named: {text}")
            rig.check(told == seen, f"{name}: reported {told}, its heartbeat says {seen}")
        seconds = self.ended - self.stopped
        rig.check(seconds <= LIMIT + GRACE or not rig.long, f"{name}: ended after {seconds:.1f} s")
        rig.check(not left(self.pids), f"{name}: processes left")
        return seconds


class Start:
    """A rank that is stopped at a random moment after its program has started, of any command."""

    LIMITS = {f"watchdog.{kind}_timeout_s": START_LIMIT for kind in ("init", "step", "save")}
    LONG = {"train.max_steps": 1000000, "train.epochs": 100000, "data.synthetic_val": 180000}

    def __init__(self, rig, number, model):
        commands = {
            "train": (),
            "eval": ("eval", "--weights", model),
            "bench": ("bench",),
            "bench --input": ("bench", "--input"),
        }
        self.name = list(commands)[number % len(commands)]
        n_ranks = rig.random.randint(2, 4 if rig.long else 2)
        victim = rig.random.randrange(n_ranks)
        delay = rig.random.uniform(0, 2)
        sets = self.LIMITS | self.LONG | {"bench.rounds": 10000}
        out = rig.folder(f"start-{number}")
        self.run = rig.start(n_ranks, out, sets=sets, command=commands[self.name])
        while not (pid := faults.find_rank(self.run.process.pid, victim)):
            assert self.run.process.poll() is None, self.run.text()
            time.sleep(0.002)
        time.sleep(delay)
        faults.send([pid], signal.SIGSTOP)
        self.name += f", stop of rank {victim} of {n_ranks} after {delay:.2f} s"
        self.expected = f"dtrain: error[HANG] rank {victim} ({os.uname().nodename} pid {pid}) "
        self.stopped, self.pids, self.seconds, self.pid = time.monotonic(), self.run.ranks(), None, pid

    def look(self):
        """Call often, until it returns True: the run has ended. Open MPI's mpirun reads without a limit from a rank
        that connects to it, so one that is stopped in that moment holds up mpirun, although the other ranks have
        spoken and ended; such a rank goes on, as its user would let it."""
        waited_s = time.monotonic() - self.stopped
        if self.seconds is None and self.run.process.poll() is not None:
            self.seconds = waited_s
        elif waited_s > 3 * START_LIMIT and self.expected in self.run.text() and self.run.ranks() == [self.pid]:
            print(f"{self.name}: mpirun waits for the rank that is stopped", flush=True)
            faults.send([self.pid], signal.SIGCONT)
        elif time.monotonic() > self.run.begin + faults.HANG_S:
            self.run.kill()
        return self.seconds is not None

    def check(self, rig):
        """Seconds from the stop to the end of the job."""
        code, text = self.run.wait(), self.run.text()
        rig.check(code == 80, f"{self.name}: exit code {code}: {text}")
        rig.check(text.count("error[HANG]") == 1, f"{self.name}: not one message: {text}")
        rig.check(self.expected in text, f"{self.name}: not named: {text}")
        rig.check(not left(self.pids), f"{self.name}: processes left")
        return self.seconds


def start_again(rig, hung):
    """A hang during the start leaves nothing that ends later runs in the same folder."""
    out, n_good = hung.out, 3 if rig.long else 1
    reports = [name for name in os.listdir(out) if name.startswith("hang-")]
    rig.check("there is no checkpoint yet" in hung.run.text(), f"hang in init: {hung.run.text()}")
    rig.check(reports, "hang in init: no report")
    for number in range(1, n_good + 1):
        rig.finish(hung.n_ranks, out, sets={"train.max_steps": 20 * number})
    rig.check(faults.newest_step(out) == 20 * n_good, "starts after a hang: not at the last step")
    old = [name for name in os.listdir(out) if name.startswith("hang-")]
    rig.check(not old, f"starts after a hang: reports of the old one: {old}")
    print(f"after a hang during the start: {n_good} good starts in the same folder")


def suspend_all(rig, n_times):
    """Every rank stopped for longer than the limit."""
    limit, pause = 5, 15 if rig.long else 10
    sets = {"train.max_steps": 400, "watchdog.step_timeout_s": limit, "watchdog.save_timeout_s": limit}
    for number in range(n_times):
        n_ranks = 2 + number % 3
        expected = rig.reference(n_ranks, sets)
        out = rig.folder("suspended")
        run = rig.start(n_ranks, out, sets=sets)
        while len(faults.slots(out)) < n_ranks and run.process.poll() is None:
            time.sleep(0.05)
        time.sleep(rig.random.uniform(0.0, 0.5))
        pids = run.ranks()
        rig.check(len(pids) == n_ranks, f"suspended: ended too early: {run.text()}")
        faults.send(pids, signal.SIGSTOP)
        time.sleep(pause)
        faults.send(pids, signal.SIGCONT)
        code = run.wait()
        rig.check(code == 0, f"suspended and continued: exit code {code}: {run.text()}")
        rig.check("error[HANG]" not in run.text(), f"suspended: an alarm: {run.text()}")
        rig.check(code != 0 or faults.state_of(out) == expected, "suspended: different weights")
    print(f"{n_times} times all ranks stopped for {pause} s and continued")


def campaign(rig):
    model = rig.folder("model")
    rig.finish(1, model, sets={"train.max_steps": 1})
    sections = faults.SECTIONS[1:] * (5 if rig.long else 1) + [None] * (30 if rig.long else 0)
    stops = [functools.partial(Case, rig, number, name) for number, name in enumerate(sections)]
    starts = [functools.partial(Start, rig, n, model) for n in range(52 if rig.long else 4)]
    cases = watch(stops + starts, 3 if rig.long else 10)
    report(rig, cases[: len(stops)], f"stops, limit {LIMIT} s (start: {BUSY_LIMIT} s in the short form)")
    report(rig, cases[len(stops) :], f"stops within 2 s of the start, limit {START_LIMIT} s")
    start_again(rig, cases[0])
    suspend_all(rig, 10 if rig.long else 1)


if __name__ == "__main__":
    faults.main(campaign, __doc__)
