"""`dtrain launch` on three machines, one fault per job: the job ends by itself, as it should, and nothing of it is
left on any machine, also when a paused one goes on.

Each job gets machines of its own, so jobs run side by side."""

import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback

import machines
from machines import SHARED, attempt, cluster, faults, skip_where_impossible

HOSTS, STEPS = "node1:1,node2:1,node3:1", 400
SIDE_BY_SIDE = 4
LIFE_S = 25  # About as long as a job with a crash takes.
ENDS_S = 300  # What takes longer never ends.


def processes():
    """Process ID and command line of all that run."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                yield int(pid), file.read().split("\0")
        except OSError:
            continue


class Case:
    """A job of three ranks; `host`: the machine of the fault."""

    def __init__(self, program, seed):
        self.program, self.random = program, random.Random(seed)
        self.host, self.out = self.random.choice(["node2", "node3"]), f"{SHARED}/run"
        # A machine that is lost in a save is waited for until a save may no longer take.
        self.sets = {"train.max_steps": STEPS, "checkpoint.every_steps": 20, "watchdog.save_timeout_s": 60}
        self.job = self.begin = self.seconds = None
        self.options = ["--max-restarts", "3"]
        with open(f"{SHARED}/config.json", "w", encoding="utf-8") as file:
            json.dump(faults.SETTINGS, file)

    def start(self, out=None, hosts=HOSTS):
        log = open(f"{out or self.out}.log", "w", encoding="utf-8")
        command = ["bash", machines.CLUSTER, "exec", "node1", self.program, "launch", "--hosts", hosts, *self.options]
        command += ["--", "--config", f"{SHARED}/config.json", "--out", out or self.out]
        command += [word for key, value in self.sets.items() for word in ("--set", f"{key}={value}")]
        env = {**os.environ, **faults.ENVIRONMENT, "DTRAIN_JOB": log.name, "OMPI_MCA_mpi_yield_when_idle": "1"}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        job = machines.Job(process, log, command)
        self.job = self.job or job
        return job

    def reach(self):
        """A random moment of the training."""
        self.start().wait_for("checkpoint of step")
        time.sleep(self.random.uniform(0, 1))
        self.begin = time.monotonic()

    def pids(self):
        """Ranks, and also launchers and daemons, of all machines."""
        names = ("mpirun", "orted")
        return [
            pid
            for pid, words in processes()
            if (os.path.basename(words[0]) in names or self.out in words and "launch" not in words)
            and faults.process_state(pid)[0] != "Z"
        ]

    def tell(self, number):
        """A signal for the supervisor."""
        faults.send([pid for pid, words in processes() if words[:2] == [self.program, "launch"]], number)

    def ends(self, code, *texts):
        got = self.job.wait(ENDS_S)
        self.seconds = time.monotonic() - self.begin
        assert got == code, f"exit code {got}, not {code}"
        for text in texts:
            assert re.search(text, self.job.text()), f"no '{text}'"

    def is_clean(self):
        until = time.monotonic() + 30
        while self.pids():
            assert time.monotonic() < until, f"left: {self.pids()}"
            time.sleep(0.1)

    def undisturbed(self, hosts=HOSTS):
        """The state of a run without a fault."""
        out = f"{SHARED}/reference"
        assert self.start(out, hosts).wait(ENDS_S) == 0, "the run without a fault"
        return faults.state_of(out)


# --- The faults ---


def rank_killed(case):
    case.reach()
    os.kill(case.random.choice(list(case.job.pids().values())), signal.SIGKILL)
    case.ends(0, r"the job ended with 137; restart 1 of 3")
    case.is_clean()
    assert faults.state_of(case.out) == case.undisturbed(), "other bits"


def machine(verb):
    """It is lost: the job goes on without it, on the same samples."""

    def fault(case):
        case.reach()
        cluster(verb, case.host)
        case.ends(0, f"no answer from {case.host}", r"restart 1 of 3")
        if verb == "pause":
            assert re.search(f"the ranks on {case.host} do not answer; the job is ended", case.job.text())
            cluster("wake", case.host)
        if verb in ("cut", "unplug"):
            return  # its ranks cannot know yet
        case.is_clean()

    return fault


def two_lost(case):
    """With virtual ranks the machines may go one after the other: the last one ends with the same bits."""
    case.sets["train.virtual_ranks"] = 6
    case.reach()
    cluster("off", "node3")
    case.job.wait_for("; restart 1 of 3")
    step, until = faults.newest_step(case.out), time.monotonic() + ENDS_S
    while faults.newest_step(case.out) <= step:
        assert time.monotonic() < until and case.job.process.poll() is None, "no progress on two machines"
        time.sleep(0.05)
    cluster("off", "node2")
    case.ends(0, r"restart 2 of 3")
    case.is_clean()
    state = faults.state_of(case.out)
    for name in ("node2", "node3"):
        cluster("restart", name)
    assert state == case.undisturbed(), "other bits"


def boots_again(case):
    """With --wait a machine that comes back takes part again: the same ranks, the same bits."""
    case.options += ["--wait", "2m"]
    case.reach()
    cluster("off", case.host)
    case.job.wait_for("waiting up to 120 s for " + case.host)
    cluster("restart", case.host)
    case.ends(0, r"restart 1 of 3")
    assert "continues without" not in case.job.text()
    case.is_clean()
    assert faults.state_of(case.out) == case.undisturbed(), "other bits"


def no_restarts(case):
    """A paused machine ends a job that is not to be restarted."""
    case.options = []
    case.reach()
    cluster("pause", case.host)
    case.ends(80, f"the ranks on {case.host} do not answer; the job is ended")
    cluster("wake", case.host)
    case.is_clean()


def paused_before(case):
    """The launcher waits for it, until the start has taken too long."""
    case.sets["watchdog.init_timeout_s"] = 5
    cluster("pause", case.host)
    case.begin = time.monotonic()
    case.start()
    case.ends(0, f"no rank has begun within .* no answer from {case.host}; the job is ended", r"restart 1 of 3")
    cluster("wake", case.host)
    case.is_clean()


def stop(number, longest_s=None):
    """In the training, or so long after the start."""

    def fault(case):
        if longest_s is None:
            case.reach()
        else:
            case.start().wait_for(" -np 3 ")
            time.sleep(case.random.uniform(0, longest_s))
            case.begin = time.monotonic()
        case.tell(number)
        case.ends(75, "run again")
        case.is_clean()
        case.job = None
        case.start()
        case.ends(0)
        assert faults.state_of(case.out) == case.undisturbed(), "other bits"

    return fault


def any_moment(case):
    """A rank is killed in the training; and some time between start and end comes another signal, after which the job
    ends or goes on as promised, and can be continued."""
    kind = case.random.choice(["TERM", "INT", "HUP", "USR1", "KILL supervisor", "KILL mpirun", "KILL rank"])
    number, sent_s, crashed = getattr(signal, f"SIG{kind.split()[0]}"), None, False
    due_s = case.random.uniform(0, LIFE_S) + time.monotonic()
    case.start()
    while case.job.process.poll() is None and not sent_s:
        ranks = list(case.job.pids().values())
        if ranks and not crashed and "checkpoint of step" in case.job.text():
            crashed = True
            faults.send(ranks[:1], signal.SIGKILL)
        victims = {
            "KILL mpirun": [pid for pid, words in processes() if os.path.basename(words[0]) == "mpirun"],
            "KILL rank": ranks,
        }.get(kind, [pid for pid, words in processes() if words[:2] == [case.program, "launch"]])
        if time.monotonic() >= due_s and victims:
            sent_s = time.monotonic()
            faults.send(victims[-1:], number)
        time.sleep(0.02)
    case.begin = sent_s or time.monotonic()
    code, step = case.job.wait(ENDS_S), faults.newest_step(case.out)
    case.seconds = time.monotonic() - case.begin
    print(f"{kind}: {code} after {case.seconds:.1f} s at step {step}", file=sys.stderr)
    if code == 0:
        assert step == STEPS, f"0 at step {step}"
    elif kind == "KILL supervisor":
        assert code in (-signal.SIGKILL, 128 + signal.SIGKILL), f"exit code {code}"
    elif kind in ("KILL mpirun", "KILL rank"):
        assert code in (137, 139, 255) and "; gave up: no newer checkpoint" in case.job.text(), f"exit code {code}"
    else:
        assert code == 75 and "run again" in case.job.text(), f"exit code {code}"
    case.is_clean()
    case.job = None
    case.start()
    case.ends(0)
    assert faults.state_of(case.out) == case.undisturbed(), "other bits"


def hang_at_start(case):
    case.sets["watchdog.init_timeout_s"] = 12
    case.start()
    case.begin, found = time.monotonic(), {}
    while 1 not in found:
        found = case.job.pids()
    os.kill(found[1], signal.SIGSTOP)
    case.ends(0, r"the job ended with 80; restart 1 of 3")
    case.is_clean()


def bad_configuration(case):
    case.sets["train.global_batch_size"] = 1
    case.begin = time.monotonic()
    case.start()
    case.ends(78)
    assert "restart" not in case.job.text()
    case.is_clean()


def disk_full(case):
    cluster("shrink", "600k")
    case.begin = time.monotonic()
    case.start()
    case.ends(73)
    assert "restart" not in case.job.text()
    case.is_clean()


def many(case):
    """A hundred faults in one run on two machines: ranks killed or stopped, and the other machine killed, which is
    there again when it is looked for."""
    n_faults, hosts = int(os.environ.get("LAUNCH_FAULTS", "100")), "node1:1,node2:2"
    case.options = ["--max-restarts", str(2 * n_faults)]
    case.sets.update({"watchdog.step_timeout_s": 5, "watchdog.save_timeout_s": 5, "train.max_steps": 1000000})
    case.sets["train.epochs"] = 100000
    case.start(hosts=hosts)
    for n in range(n_faults + 1):
        step, until = faults.newest_step(case.out), time.monotonic() + ENDS_S
        while faults.newest_step(case.out) <= step:
            assert time.monotonic() < until and case.job.process.poll() is None, f"no progress after {n} faults"
            time.sleep(0.05)
        time.sleep(case.random.uniform(0, 1))
        kind = case.random.choice(["kill"] * 6 + ["stop"] * 2 + ["machine"]) if n < n_faults else "end"
        if kind == "machine":
            cluster("restart", "node2")
        elif kind != "end":
            number = signal.SIGKILL if kind == "kill" else signal.SIGSTOP
            faults.send([case.random.choice(list(case.job.pids().values()))], number)
    case.begin = time.monotonic()
    case.tell(signal.SIGTERM)
    case.ends(75)
    case.is_clean()
    print(f"{n_faults} faults, {case.job.text().count('; restart ')} restarts", file=sys.stderr)
    case.sets["train.max_steps"] = faults.newest_step(case.out) + 100
    case.job = None
    case.start(hosts=hosts)
    case.ends(0)
    assert faults.state_of(case.out) == case.undisturbed(hosts), "other bits"


FAULTS = {
    "machine paused": machine("pause"),
    "machine paused, no restarts": no_restarts,
    "rank killed": rank_killed,
    "machine killed": machine("kill"),
    "power off": machine("off"),
    "two machines lost, virtual ranks": two_lost,
    "power off, boots again": boots_again,
    "link cut": machine("cut"),
    "machine paused before the start": paused_before,
    "SIGTERM": stop(signal.SIGTERM),
    "SIGTERM at the start": stop(signal.SIGTERM, 3),
    "SIGUSR1 at the start": stop(signal.SIGUSR1, 3),
    "Ctrl-C": stop(signal.SIGINT),
    "any signal at any moment": any_moment,
    "hang at the start": hang_at_start,
    "bad configuration": bad_configuration,
    "disk full": disk_full,
}
MANY = "100 faults in one run"
# Half of them show in the short form what the others do in the long one.
SHORT = ("machine paused", "rank killed", "two machines lost, virtual ranks", "power off, boots again", "SIGTERM")
SHORT += ("machine paused before the start", "SIGTERM at the start")


def run_case(program, name, seed):
    """Within the machines: prints what happened as JSON."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the shell of the rig ignores it, and so would the job
    case, problem = Case(program, seed), ""
    try:
        (many if name == MANY else FAULTS[name])(case)
    except Exception:  # pylint: disable=broad-except
        problem = traceback.format_exc() + (case.job.text()[-4000:] if case.job else "")
    shutil.rmtree(case.out, ignore_errors=True)
    print(json.dumps({"problem": problem, "seconds": case.seconds}))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--long", action="store_true", help="every fault --times times")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--case", choices=[*FAULTS, MANY], help=argparse.SUPPRESS)
    parser.add_argument("--only", help="regular expression of faults")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.program)
    if arguments.case:
        run_case(program, arguments.case, arguments.seed)
        return
    skip_where_impossible()
    chosen = [name for name in [*FAULTS, MANY] if re.search(arguments.only or "", name)]
    if not arguments.long and not arguments.only:
        chosen = SHORT
    results = collections.defaultdict(list)
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for name in chosen:
            for i in range(arguments.times if arguments.long and name != MANY else 1):
                results[name].append(pool.submit(attempt, __file__, program, name, arguments.seed + i))
    failed = False
    for name, futures in results.items():
        found = [future.result() for future in futures]
        seconds = [one["seconds"] for one in found if one["seconds"]]
        print(f"{name:28} {len(found)}   from the fault to the end at most {max(seconds, default=0):.1f} s", flush=True)
        for one in found:
            failed |= bool(one["problem"])
            print(one["problem"], end="")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
