"""Jobs on the machines of support/cluster.sh: start one, find its ranks, see it end."""

import itertools
import json
import os
import random
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "faults"))
import rig as faults  # pylint: disable=wrong-import-position

CLUSTER = os.path.join(HERE, "..", "support", "cluster.sh")
SHARED, OWN = "/media/shared", "/media/own"
TWO, THREE = "node1:1,node2:2", "node1:1,node2:1,node3:1"
ENDLESS = {"train.max_steps": 1000000, "train.epochs": 100000}
HANG_S = 300  # A job that takes longer than this to end counts as one that never would.
DESERTED_S = 100  # So does mpirun if it stays behind for so long after its ranks.
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
# As in the job scripts.
KEEPALIVE = """--mca oob_tcp_keepalive_time 10 --mca oob_tcp_keepalive_intvl 5
    --mca oob_tcp_keepalive_probes 3""".split()
numbers = itertools.count(1)


def cluster(*words):
    """A command of cluster.sh; its output."""
    return subprocess.run(["bash", CLUSTER, *words], check=True, capture_output=True, text=True).stdout


class Job(faults.Run):
    """`machines`: that of each rank."""

    machines = ()

    def pids(self):
        """Process ID of each rank, as it is seen from outside of the machines."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    pairs = [line.partition(b"=") for line in file.read().split(b"\0")]
                with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                    name = file.read().strip()
            except OSError:
                continue
            variables = {key: value for key, _, value in pairs}
            rank = variables.get(b"OMPI_COMM_WORLD_RANK")
            if name == "dtrain" and rank and variables.get(b"DTRAIN_JOB") == self.log.name.encode():
                found[int(rank)] = int(pid)
        return found

    def wait_for(self, text):
        deadline = time.monotonic() + HANG_S
        while text not in self.text():
            assert self.process.poll() is None, f"ended before '{text}':\n{self.text()}"
            assert time.monotonic() < deadline, f"no '{text}':\n{self.text()}"
            time.sleep(0.05)


def start(program, hosts, out, sets=()):
    """mpirun on the first machine. hosts: such as "node1:2,node2:2"; sets: configuration."""
    config = os.path.join(SHARED, "config.json")
    with open(config, "w", encoding="utf-8") as file:
        json.dump(faults.SETTINGS, file)
    log = open(os.path.join(SHARED, f"log-{next(numbers)}"), "w", encoding="utf-8")
    pairs = [part.split(":") for part in hosts.split(",")]
    machines = [name for name, slots in pairs for _ in range(int(slots))]
    command = ["bash", CLUSTER, "exec", machines[0], *MPIRUN, *KEEPALIVE]
    command += ["--host", hosts, "-x", "DTRAIN_JOB"]
    command += [program, "--config", config, "--out", out]
    for key, value in dict(sets).items():
        command += ["--set", f"{key}={value}"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, **faults.ENVIRONMENT, "DTRAIN_JOB": log.name},
    )
    job = Job(process, log, command)
    job.machines = machines
    return job


class Case:
    """One job on two or three machines and its fault. `host`: the machine at fault, not that of
    mpirun and rank 0."""

    def __init__(self, program, seed):
        self.program, self.random = program, random.Random(seed)
        self.hosts, self.host = self.random.choice([(TWO, "node2"), (THREE, "node2"), (THREE, "node3")])
        self.out, self.sets, self.problems = f"{SHARED}/run", dict(ENDLESS), []
        self.job = self.code = self.seconds = None
        self.is_deserted = False

    def check(self, ok, what):
        if not ok:
            self.problems.append(what)

    def start(self):
        self.job = start(self.program, self.hosts, self.out, sets=self.sets)
        return self.job

    def reach(self):
        """Starts it and returns at a random moment of the training."""
        self.start().wait_for("checkpoint of step")
        time.sleep(self.random.uniform(0, 1))

    def victim(self):
        """A random rank on the machine at fault."""
        ranks = [rank for rank, name in enumerate(self.job.machines) if name == self.host]
        return self.random.choice(ranks)

    def finish(self):
        begin = seen = now = time.monotonic()
        while self.job.process.poll() is None and now < min(begin + HANG_S, seen + DESERTED_S):
            time.sleep(0.1)
            now = time.monotonic()
            if now > begin + 60 and self.job.pids():
                seen = now
        self.is_deserted = self.job.process.poll() is None and now >= seen + DESERTED_S
        self.code = self.job.wait(0)
        self.seconds = time.monotonic() - begin
        while self.job.pids() and time.monotonic() < begin + HANG_S:
            time.sleep(0.1)
        self.check(not self.job.pids(), f"ranks left: {self.job.pids()}")

    def complete(self, hosts, out, steps):
        """A job that runs to the end; its state."""
        sets = {**self.sets, "train.max_steps": steps}
        job = start(self.program, hosts, out, sets=sets)
        code = job.wait(HANG_S)
        assert code == 0, f"{hosts}: exit code {code}:\n{job.text()}"
        return faults.state_of(out)


def attempt(script, program, name, seed, *options):
    """What the script prints of one case, as JSON, on machines of its own."""
    command = ["bash", CLUSTER, "run", "3", sys.executable, script, program]
    command += ["--case", name, "--seed", str(seed), *options]
    env = {**os.environ, "CLUSTER_KEEP": os.path.dirname(program)}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env)
    return json.loads(done.stdout.splitlines()[-1])


def skip_where_impossible():
    """Exits with 77 and the reason without root, the tools, or Open MPI, whose options are used."""
    if subprocess.run(["bash", CLUSTER, "run", "1", "true"], check=False).returncode == 77:
        raise SystemExit(77)
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True)
    if "Open MPI" not in version.stdout and "OpenRTE" not in version.stdout:
        print("skipped: mpirun is not Open MPI's")
        raise SystemExit(77)
