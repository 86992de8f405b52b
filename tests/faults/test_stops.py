"""Stops on request at any moment: SIGUSR1 to mpirun while the run starts, trains, saves or
evaluates. It must exit with 75 and a checkpoint of the step it had reached, and resume to the state
of an undisturbed run."""

import collections
import json
import os
import signal
import time

import rig as faults

EPOCH = 20  # steps
SETS = {
    "train.max_steps": 300,
    "eval.every_epochs": 1,
    "data.synthetic_val": 240,
    "checkpoint.every_steps": 9,
    "output.log_every": 1,
}
KINDS = ("init", "step", "save", "eval")


def catches(pid, number):
    """Whether the process has a handler for the signal."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except OSError:
        pass
    return False


class Moments:
    """Waits for a given moment of a run that has just been started."""

    def __init__(self, rig, run, out, n_ranks):
        self.rig, self.run, self.out, self.n_ranks = rig, run, out, n_ranks
        self.log = os.path.join(out, "metrics.jsonl")
        self.at = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        self.rest = b""

    def new_events(self):
        """Events since the last call, of this start only."""
        if not os.path.exists(self.log):
            return []
        with open(self.log, "rb") as file:
            file.seek(self.at)
            data = file.read()
        self.at += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def poll(self, found):
        """False if the run ends before found() is true."""
        deadline = time.monotonic() + faults.HANG_S
        while not found():
            if self.run.process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.0005)
        return True

    def all_catch(self):
        ranks = self.run.ranks()
        if len(ranks) < self.n_ranks:
            return False
        return all(catches(pid, signal.SIGUSR1) for pid in ranks + [self.run.process.pid])

    def saves(self):
        folder = os.path.join(self.out, "checkpoints")
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return any(name.startswith(".tmp-") for name in names)

    def evaluates(self):
        """Whether the last event is the last step of an epoch."""
        found = False
        for event in self.new_events():
            found = event["event"] == "step" and event["step"] % EPOCH == 0
        return found

    def trains(self):
        return any(event["event"] == "step" for event in self.new_events())

    def wait_for(self, kind):
        if not self.poll(self.all_catch):
            return False
        if kind == "init":
            time.sleep(self.rig.random.uniform(0, 0.3))
            return True
        if not self.poll(self.trains):
            return False
        time.sleep(self.rig.random.uniform(0, 0.2))
        self.new_events()
        return self.poll({"step": self.trains, "save": self.saves, "eval": self.evaluates}[kind])


def newest(out):
    """Step and state of the newest checkpoint; -1 if there is none."""
    names = faults.checkpoints(out)
    if not names:
        return -1, {}
    path = os.path.join(out, "checkpoints", names[-1], "state.json")
    with open(path, encoding="utf-8") as file:
        return int(names[-1].split("-")[1]), json.load(file)


def last_step(out):
    """Last step of the latest start according to its events; 0 before the first step."""
    steps = [event["step"] for event in faults.events(out) if event["event"] == "step"]
    return steps[-1] if steps else 0


def check_stopped(rig, run, out, what, reason):
    """Checks exit code, message and checkpoint. Returns the number of lost steps."""
    code = run.wait()
    rig.check(code == 75, f"{what}: exit code {code}\n{run.text()[-3000:]}")
    rig.check(f"by {reason};" in run.text(), f"{what}: no reason given\n{run.text()[-3000:]}")
    rig.check("is not usable" not in run.text(), f"{what}: a damaged checkpoint\n{run.text()}")
    end = faults.events(out)[-1]
    step, _ = newest(out)
    rig.check(end["event"] == "run_end" and end["exit_code"] == 75, f"{what}: ended by {end}")
    rig.check(end.get("steps") == step, f"{what}: checkpoint of {step}, but the run reports {end}")
    return max(last_step(out) - step, 0)


def stop_once(rig, out, n_ranks, kind, seen, lost):
    """False if the run ended before that moment."""
    before, _ = newest(out)
    run = rig.start(n_ranks, out, sets=SETS)
    moments = Moments(rig, run, out, n_ranks)
    if not moments.wait_for(kind) or run.process.poll() is not None:
        rig.check(run.wait() == 0, f"the run ended before a signal in {kind}\n{run.text()}")
        return False
    os.kill(run.process.pid, signal.SIGUSR1)
    if run.wait() == 0:  # in the last steps
        return False
    lost.append(check_stopped(rig, run, out, f"SIGUSR1 in {kind}, {n_ranks} ranks", "SIGUSR1"))
    step, state = newest(out)
    seen["sent in " + kind] += 1
    seen["before a step was done"] += step == max(before, 0)
    seen["in the middle of an evaluation"] += bool(state.get("eval_due"))
    return True


def finish_equals(rig, out, n_ranks, what, sets=SETS):
    run = rig.finish(n_ranks, out, sets=sets)
    rig.check("is not usable" not in run.text(), f"{what}: a damaged checkpoint\n{run.text()}")
    same = faults.state_of(out) == rig.reference(n_ranks, sets)
    rig.check(same, f"{what} on {n_ranks} ranks: the final state differs from an undisturbed run")


def random_stops(rig, n_stops, per_run):
    seen, lost, n_runs = collections.Counter(), [], 0
    kinds = [KINDS[i % len(KINDS)] for i in range(n_stops)]
    rig.random.shuffle(kinds)
    while kinds and n_runs < n_stops:
        n_ranks, out = 2 + n_runs % 3, rig.folder("stopped")
        for _ in range(per_run):
            if not kinds or not stop_once(rig, out, n_ranks, kinds[-1], seen, lost):
                break
            kinds.pop()
        finish_equals(rig, out, n_ranks, "SIGUSR1")
        n_runs += 1
    rig.check(not kinds, f"{len(kinds)} moments never occurred")
    rig.check(max(lost, default=0) <= 1, f"steps lost: {lost}")
    text = ", ".join(f"{count} {name}" for name, count in sorted(seen.items()))
    print(f"SIGUSR1: {len(lost)} stops in {n_runs} runs ({text}), at most {max(lost)} steps lost")


def terminate(rig, n_times):
    """SIGTERM to mpirun gives the ranks about a second: nothing may be damaged."""
    n_saved, codes = 0, collections.Counter()
    for number in range(n_times):
        n_ranks, out = 2 + number % 3, rig.folder("terminated")
        run = rig.start(n_ranks, out, sets=SETS)
        moments = Moments(rig, run, out, n_ranks)
        moments.wait_for(rig.random.choice(KINDS))
        run.process.send_signal(signal.SIGTERM)
        codes[run.wait()] += 1
        n_saved += newest(out)[0] >= last_step(out)
        finish_equals(rig, out, n_ranks, "SIGTERM")
    print(f"SIGTERM: {n_times} times, exit codes {dict(codes)}, {n_saved} had saved the last step")


def second_signal(rig):
    """The first signal must wait for the end of a step, which takes long here."""
    out, sets = rig.folder("impatient"), {"train.global_batch_size": 240, "train.max_steps": 2}
    sets["eval.every_epochs"] = 1
    rig.finish(2, out, sets=sets)
    sets["train.max_steps"] = 4
    run = rig.start(2, out, sets=sets, env={"DTRAIN_FAULT": "slow@0:1000,slow@1:1000"})
    moments = Moments(rig, run, out, 2)
    computing = [(rank, "compute", 0) for rank in range(2)]  # after no step of this start
    are_slow = moments.poll(lambda: [faults.slots(out).get(pid) for pid in run.ranks()] == computing)
    rig.check(are_slow, "the slow run does not start")
    run.process.send_signal(signal.SIGUSR1)
    time.sleep(2)  # within a second it would be the same request
    rig.check(run.process.poll() is None, f"the first signal ended the run:\n{run.text()}")
    run.process.send_signal(signal.SIGUSR1)
    code = run.wait()
    rig.check(code in faults.after(signal.SIGUSR1), f"second signal: exit code {code}\n{run.text()}")
    rig.check(newest(out)[0] == 2, "the second signal did not end the run at once")
    finish_equals(rig, out, 2, "second signal", sets)
    print(f"second signal: exit code {code}")


def time_is_over(rig):
    ends = [
        ("--max-time", ["--max-time", "1s"], {}),
        ("the end of the Slurm allocation", [], {"SLURM_JOB_END_TIME": str(int(time.time()) + 32)}),
    ]
    for reason, options, env in ends:
        out = rig.folder("time")
        sets = {**SETS, "train.max_steps": 1000000}
        run = rig.start(2, out, sets=sets, options=options, env=env)
        rig.check(check_stopped(rig, run, out, reason, reason) == 0, f"{reason}: a step is lost")
    print("--max-time and SLURM_JOB_END_TIME: stopped and saved")


def campaign(rig):
    random_stops(rig, *((50, 4) if rig.long else (4, 4)))
    terminate(rig, 12 if rig.long else 1)
    second_signal(rig)
    time_is_over(rig)


if __name__ == "__main__":
    faults.main(campaign, __doc__)
