"""For gpu_check.py: the clock, commands that end in time with all they started, dtrain, PyTorch."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

RESERVE_S = 6  # for writing, and for ending what takes longer than its limit
RUNNING = set()  # processes under way
STOPPED = threading.Event()  # no more may be started


class OutOfTime(Exception):
    pass


class Clock:
    def __init__(self, seconds):
        self.begin = time.monotonic()
        self.end = self.begin + seconds

    def now(self):
        return time.monotonic() - self.begin

    def left(self):
        return self.end - time.monotonic() - RESERVE_S

    def need(self, seconds):
        if self.left() < seconds:
            raise OutOfTime


def stat_of(pid):
    """Parent and time of start of a process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            fields = f.read().rpartition(")")[2].split()
        return int(fields[1]), int(fields[19])
    except (OSError, IndexError):
        return None


def family(pid):
    """The process and all its descendants, with their times of start."""
    stats = {int(name): stat_of(name) for name in os.listdir("/proc") if name.isdigit()}
    members, found = {}, [pid]
    while found:
        parent = found.pop()
        if stats.get(parent):
            members[parent] = stats[parent][1]
            found += [child for child, stat in stats.items() if stat and stat[0] == parent]
    return members


def end(process):
    """Ends a process and what it started: its group is asked, then every one of them is killed.
    mpirun gives each rank a group of its own, and ends the ranks when asked."""
    if process.poll() is not None:
        return
    members = family(process.pid)
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(3)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass
    for pid, start in members.items():
        stat = stat_of(pid)
        if stat and stat[1] == start:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    process.wait()


def start(command, **options):
    if STOPPED.is_set():
        raise OutOfTime
    process = subprocess.Popen(command, process_group=0, **options)
    RUNNING.add(process)
    return process


def end_all():
    STOPPED.set()
    for process in list(RUNNING):
        end(process)
    RUNNING.clear()


@dataclasses.dataclass
class Ended:
    code: int  # exit code, negative for a signal
    timed_out: bool
    text: str  # what it wrote to stdout and stderr
    seconds: float

    def error(self, command=""):
        """What went wrong, for the report; None if nothing did."""
        if self.code == 0 and not self.timed_out:
            return None
        what = f"exit code {self.code}"
        if self.timed_out:
            what = f"ended after {self.seconds:.0f} s"
        return {"error": f"{command}{what}: {self.text.strip()[-600:]}", "exit_code": self.code}


def run(command, seconds, log=None, **options):
    """Runs a command for at most so many seconds. Its output goes to the file log, where given."""
    begin, timed_out = time.monotonic(), False
    with open(log, "w+b") if log else tempfile.TemporaryFile() as f:
        process = start(
            command, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, **options
        )
        try:
            process.wait(max(1, seconds))
        except subprocess.TimeoutExpired:
            timed_out = True
            end(process)
        RUNNING.discard(process)
        f.seek(0)
        text = f.read().decode(errors="replace")
    return Ended(process.returncode, timed_out, text, time.monotonic() - begin)


class Dtrain:
    """Runs dtrain; remembers how long the last bench took, to know whether the next one fits."""

    def __init__(self, program, config, clock, cache, overrides):
        self.program, self.config, self.clock = program, config, clock
        self.cache, self.overrides = cache, overrides
        self.last_s = 20.0

    def command(self, what, settings):
        command = [self.program, *what, "--config", self.config]
        settings = {"device.kind": "cuda", "device.cache_dir": self.cache, **settings}
        for text in [f"{key}={value}" for key, value in settings.items()] + self.overrides:
            command += ["--set", text]
        return command

    def bench(self, precision, batch, record=True, profile=False, steps=10):
        self.clock.need(self.last_s)
        settings = {
            "device.cuda_graph": str(record).lower(),
            "train.precision": precision,
            "train.global_batch_size": batch,
            "bench.warmup_steps": 8,
            "bench.rounds": 1,
            "bench.steps_per_round": steps,
        }
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bench.json")
            what = ["bench", "--json", path] + (["--profile"] if profile else [])
            ended = run(self.command(what, settings), min(150, self.clock.left()))
            self.last_s = max(3.0, ended.seconds)
            if ended.error():
                return ended.error("dtrain bench: ")
            with open(path, encoding="utf-8") as f:
                result = json.load(f)
        if record and not profile and not result["recorded"]:
            return {"error": "dtrain bench: the step was not recorded", **result}
        return result

    def train(self, folder, ranks, settings, seconds=60):
        """Losses of a training run, one per logged step, or what went wrong."""
        self.clock.need(5)
        os.makedirs(folder, exist_ok=True)
        settings = {"data.synthetic_val": 0, **settings}
        command = self.command(["--out", folder], settings)
        if ranks > 1:
            options = ["--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
            command = ["mpirun", *options, *command]
        ended = run(command, min(seconds, self.clock.left()))
        if ended.error():
            return ended.error("dtrain: ")
        with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as f:
            events = [json.loads(line) for line in f]
        return {
            "losses": [event["loss"] for event in events if event["event"] == "step"],
            "seconds": ended.seconds,
        }


class Torch:
    """torch_gpu.py as a process. Requests are answered in their order; one whose answer is not
    wanted yet can be sent ahead. A process that fails or hangs answers nothing more."""

    def __init__(self, server, clock, log):
        self.clock, self.about, self.has_ended = clock, None, False
        self.n_unread = 1  # it begins by saying what it is
        with open(log, "wb") as f:
            self.process = start(
                [sys.executable, server],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=f,
                text=True,
            )

    def send(self, request):
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
            self.n_unread += 1
        except OSError:
            pass  # told by read

    def read(self, seconds):
        """The next answer."""
        self.n_unread -= 1
        timer = threading.Timer(max(1, min(seconds, self.clock.left())), end, [self.process])
        timer.start()
        line = self.process.stdout.readline()
        while line and not line.startswith("{"):
            line = self.process.stdout.readline()
        timer.cancel()
        if line.endswith("\n"):
            return json.loads(line)
        self.has_ended = True
        return {"error": "no answer from PyTorch"}

    def ready(self, seconds):
        """Reads what it says about itself and the answers to all that was sent ahead."""
        until = time.monotonic() + seconds
        answers = []
        while self.n_unread > 0:
            answers.append(self.read(until - time.monotonic()))
            self.about = self.about or answers[0]
        return answers

    def ask(self, request, seconds=20):
        self.clock.need(3)
        self.send(request)
        return self.read(seconds) if self.n_unread > 0 else {"error": "PyTorch has ended"}

    def close(self):
        end(self.process)
        RUNNING.discard(self.process)
