"""For gpu_check.py: the clock, commands that end in time with all they started, dtrain, PyTorch."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

RUNNING = set()  # processes under way
STOPPED = threading.Event()  # no more may be started


class LeftOut(Exception):
    """A check that could not be done, with the reason."""


class Failed(Exception):
    """A check that found something wrong, with what it found."""


class Clock:
    """Of a part. What runs now leaves reserve_s seconds to the rest of the part."""

    def __init__(self, seconds):
        self.begin, self.seconds, self.reserve_s = time.monotonic(), seconds, 0

    def now(self):
        return time.monotonic() - self.begin

    def limit(self, seconds, least=5):
        """At most so many seconds, and no more than are left."""
        left = self.seconds - self.now() - self.reserve_s
        if left < least:
            raise LeftOut("no time left in this part")
        return min(seconds, left)


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
    for pid, start_time in members.items():
        stat = stat_of(pid)
        if stat and stat[1] == start_time:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    process.wait()


def start(command, **options):
    if STOPPED.is_set():
        raise LeftOut("stopped")
    try:
        process = subprocess.Popen(command, process_group=0, **options)
    except FileNotFoundError as error:
        raise LeftOut(f"no program {error.filename}") from error
    RUNNING.add(process)
    return process


def end_all():
    STOPPED.set()
    for process in list(RUNNING):
        end(process)
    RUNNING.clear()


def run(command, seconds, log, is_test=False, **options):
    """Runs a command for at most so many seconds. Returns its output, which also goes to a file.
    A test that exits with 77 is skipped; dtrain itself lacks a permission then."""
    timed_out = False
    with open(log, "w+b") as f:
        process = start(
            command, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, **options
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
            end(process)
        RUNNING.discard(process)
        f.seek(0)
        text = f.read().decode(errors="replace").rstrip()
    if STOPPED.is_set():
        raise LeftOut("stopped")
    if timed_out:
        raise LeftOut(f"not done after {seconds:.0f} s")
    if is_test and process.returncode == 77:
        raise LeftOut(text.rpartition("\n")[2])
    if process.returncode:
        lines = "\n".join(text.splitlines()[-25:])
        raise Failed(f"exit code {process.returncode}, {os.path.basename(log)}\n{lines}")
    return text


class Dtrain:
    """Runs dtrain with one configuration and one folder for the algorithms chosen."""

    def __init__(self, program, config, clock, cache, logs, overrides):
        self.program, self.config, self.clock = program, config, clock
        self.cache, self.logs, self.overrides = cache, logs, overrides

    def run(self, name, seconds, what, settings, launcher=()):
        command = [*launcher, self.program, *what, "--config", self.config]
        settings = {"device.kind": "cuda", "device.cache_dir": self.cache, **settings}
        for text in [f"{key}={value}" for key, value in settings.items()] + self.overrides:
            command += ["--set", text]
        run(command, self.clock.limit(seconds), os.path.join(self.logs, name + ".log"))

    def bench(self, precision, batch, steps=10, profile=False, seconds=90, fusion="auto", **model):
        """model: name and other keys of the section."""
        settings = {
            **{f"model.{key}": value for key, value in model.items()},
            "device.fusion": fusion,
            "train.precision": precision,
            "train.global_batch_size": batch,
            "bench.warmup_steps": 8,
            "bench.rounds": 1,
            "bench.steps_per_round": steps,
        }
        name = f"bench-{model.get('name', 'resnet50')}-{precision}-{batch}-{fusion}"
        path = os.path.join(self.logs, name + ".json")
        what = ["bench", "--json", path] + (["--profile"] if profile else [])
        self.run(name, seconds, what, settings)
        with open(path, encoding="utf-8") as f:
            result = json.load(f)
        if not profile and not result["recorded"]:
            raise Failed("the step was not recorded")
        return result

    def train(self, name, settings, ranks=1, seconds=60):
        """The losses of a training run, one per logged step."""
        launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
        settings = {"data.synthetic_val": 0, **settings}
        with tempfile.TemporaryDirectory() as folder:
            what = ["--out", folder]
            self.run(name, seconds, what, settings, launcher if ranks > 1 else ())
            with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as f:
                events = [json.loads(line) for line in f]
        return [event["loss"] for event in events if event["event"] == "step"]


class Torch:
    """torch_gpu.py as a process. Requests are answered in their order; one whose answer is not
    wanted yet can be sent ahead. A process that fails or hangs answers nothing more."""

    def __init__(self, server, log):
        self.has_ended = False
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
        timer = threading.Timer(max(1, seconds), end, [self.process])
        timer.start()
        line = self.process.stdout.readline()
        while line and not line.startswith("{"):
            line = self.process.stdout.readline()
        timer.cancel()
        if line.endswith("\n"):
            return json.loads(line)
        self.has_ended = True
        return {"error": "no answer from PyTorch, see torch.log"}

    def read_all(self, seconds):
        """The answers to all that was sent ahead."""
        until = time.monotonic() + seconds
        answers = []
        while self.n_unread > 0:
            answers.append(self.read(until - time.monotonic()))
        return answers

    def ask(self, request, seconds=20):
        self.send(request)
        return self.read(seconds) if self.n_unread > 0 else {"error": "PyTorch has ended"}

    def close(self):
        end(self.process)
        RUNNING.discard(self.process)
