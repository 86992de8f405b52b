"""Jobs on two or three machines, each with one fault: the job ends in time, with the promised code,
and the message names the machine that is at fault and no other. What can be resumed continues on
other machines with the same samples and, on as many ranks, with the same bits.

Each job gets machines of its own, so jobs run side by side."""

import argparse
import collections
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import time
import traceback

import machines
from machines import HANG_S, OWN, SHARED, THREE, TWO, Case, attempt, cluster, faults, skip_where_impossible

ONE, OTHERS, FEWER = "node1:3", "node2:2,node3:1", "node3:2"
SIDE_BY_SIDE = 4

# Sentences that accuse a machine.
CULPRITS = [
    r"a rank hangs on (\w+);",
    r"noticed that process rank \d+ .* on node (\w+) exited on signal",
    r"Remote daemon: .* on node (\w+)",
    r"error\[\w+\] rank \d+ \((\w+)[ )]",
    r"Local host: +(\w+)\n +Space",
    r"warning: rank \d+ \((\w+)\)",
    r"ssh: connect to host (\w+)",
    r"Connection to (\w+) closed by remote host",
]


def losses(out):
    return {e["step"]: e["loss"] for e in faults.events(out) if e["event"] == "step"}


def resumes(case):
    """On as many ranks elsewhere the same bits, on fewer the same samples."""
    steps = faults.newest_step(case.out) + 20
    case.sets.update({"output.log_every": 1})
    for name in ("node1", "node2", "node3"):
        cluster("restart", name)
    fewer, reference = f"{SHARED}/fewer", f"{SHARED}/reference"
    shutil.copytree(case.out, fewer)
    case.complete(FEWER, fewer, steps)
    expected = case.complete(ONE, reference, steps)
    case.check(case.complete(OTHERS, case.out, steps) == expected, "other bits after the resume")
    there, here = losses(fewer), losses(reference)
    for step in range(steps - 9, steps + 1):
        near = abs(there[step] - here[step]) <= 1e-2 * here[step]
        case.check(near, f"step {step} on fewer ranks: loss {there[step]}, not {here[step]}")


# --- The faults ---


def rank_killed(case):
    case.reach()
    case.host = case.random.choice(case.job.machines)
    os.kill(case.job.pids()[case.victim()], signal.SIGKILL)


def limit_waits(case, seconds):
    """In a step or in a save: the fault may come in either."""
    case.sets.update({f"watchdog.{section}_timeout_s": seconds for section in ("step", "save")})


def rank_stopped(case):
    limit_waits(case, 8)
    case.reach()
    os.kill(case.job.pids()[case.victim()], signal.SIGSTOP)


def machine(verb, limit_s=None):
    def fault(case):
        if limit_s:
            limit_waits(case, limit_s)
        case.reach()
        cluster(verb, case.host)

    return fault


def stopped_at_start(case):
    case.sets["watchdog.init_timeout_s"] = 12
    case.start()
    victim, found = case.victim(), {}
    while victim not in found:
        found = case.job.pids()
    time.sleep(case.random.uniform(0, 2) ** 2 / 2)
    os.kill(found[victim], signal.SIGSTOP)


def same_bits(case, steps=12):
    """The fault must change no bit. Returns the state."""
    expected = case.complete(ONE, f"{SHARED}/reference", steps)
    case.sets["train.max_steps"] = steps
    case.start().wait_for("dtrain: end: ")
    case.check(faults.state_of(case.out) == expected, "other bits")
    return expected


def no_fault(case):
    """Three ranks on one, two and three machines."""
    case.host, case.hosts = None, THREE
    two = case.complete(TWO, f"{SHARED}/two", 12)
    case.check(two == same_bits(case), "other bits on two machines")


def slow_link(case):
    cluster("rate", case.host, "10mbit")
    cluster("delay", case.host, "25")
    case.host = None
    same_bits(case)


def wrong_clock(case):
    """Also: a second job is kept out, and the next one gets in at once."""
    offset = case.random.choice(["+5", "-5"])
    cluster("clock", case.host, offset)
    case.reach()
    second = machines.start(case.program, f"{case.host}:2", case.out, sets=case.sets)
    case.check(second.wait(HANG_S) == 84, f"the second job: {second.text()}")
    case.job.kill()
    while case.job.pids():
        time.sleep(0.1)
    case.hosts, case.host = f"{case.host}:2,node1:1", None
    same_bits(case, faults.newest_step(case.out) + 10)


def other_isa(case):
    cluster("env", case.host, "ONEDNN_MAX_CPU_ISA=SSE41")
    case.sets["train.max_steps"] = 20
    case.start()


def other_build(case):
    note = ".note.gnu.build-id"
    copy, section = f"{SHARED}/dtrain", f"{SHARED}/note"
    subprocess.run(["objcopy", "--dump-section", f"{note}={section}", case.program, copy], check=True)
    with open(section, "r+b") as file:
        file.seek(16)
        file.write(b"another build id")
    subprocess.run(["objcopy", "--update-section", f"{note}={section}", case.program, copy], check=True)
    cluster("exec", case.host, "mount", "--bind", copy, case.program)
    case.start()


def data(case):
    """A data set of 60 files; the folder that is only the faulty machine's, and one file of it."""
    folder = f"{SHARED}/data"
    command = [case.program, "demo-data", folder, "--images-per-class", "6", "--size", "32"]
    subprocess.run(command, check=True, capture_output=True)
    case.sets.update({"data.source": "folder", "data.train": folder, "data.val": folder})
    cluster("private", case.host, folder)
    label = case.random.choice(sorted(os.listdir(folder)))
    return f"{folder}/{label}/{case.random.choice(sorted(os.listdir(f'{folder}/{label}')))}"


def file_missing(case):
    cluster("exec", case.host, "rm", data(case))
    case.start()


def file_changed(case):
    case.sets["data.check"] = "full"
    name = data(case)
    middle = str(os.path.getsize(name) // 2)
    change = ["dd", "if=/dev/urandom", f"of={name}", "bs=1", "count=8", f"seek={middle}"]
    cluster("exec", case.host, *change, "conv=notrunc")
    case.start()


def own_folder(case):
    """Each machine has its own; named is the first that does not see that of rank 0."""
    case.host = "node2"
    case.out = f"{OWN}/run"
    case.start()


def no_space(folder):
    """On one machine, in a folder that Open MPI uses."""

    def fault(case):
        cluster("exec", case.host, "mkdir", "-p", folder.format(case.host))
        cluster("small", case.host, folder.format(case.host), "4k")
        case.sets.update({"train.max_steps": 20, "watchdog.step_timeout_s": 8})
        case.start()

    return fault


def disk_full(case):
    case.host = None
    cluster("shrink", "600k")
    case.start()


def unreachable(case):
    cluster("cut", case.host)
    case.start()


Row = collections.namedtuple("Row", "fault codes resumes")
LOST = {80, 205}
# What the short form leaves out: the cut with a limit of 5 s does more, and faults/preflight shows the
# rest on one machine, where the ranks have other host names.
LONG_ONLY = {
    "link cut",
    "another instruction set",
    "another build",
    "run folder not shared",
    "shared disk full",
    "no space in /tmp",
}
RESUMES_IN_LONG = {"rank killed"}  # as after power off
ROWS = {
    "power off": Row(machine("off"), LOST, True),
    "link cut": Row(machine("cut"), LOST, False),
    "switch port gone": Row(machine("unplug"), LOST, False),
    "link cut, step limit 5 s": Row(machine("cut", 5), LOST, False),
    # 255: mpirun has noticed the end of ssh first.
    "machine killed": Row(machine("kill"), {205, 255}, False),
    "rank killed": Row(rank_killed, {137}, True),
    "rank stopped": Row(rank_stopped, {80}, False),
    "rank stopped at the start": Row(stopped_at_start, {80}, False),
    "link cut before the start": Row(unreachable, {255}, False),
    "none": Row(no_fault, {0}, False),
    "10 Mbit/s, 50 ms": Row(slow_link, {0}, False),
    "clock wrong by 5 hours": Row(wrong_clock, {0}, False),
    "another instruction set": Row(other_isa, {0, 76}, False),
    "another build": Row(other_build, {76}, False),
    "a data file is missing": Row(file_missing, {76}, False),
    "a data file has changed": Row(file_changed, {76}, False),
    "run folder not shared": Row(own_folder, {76}, False),
    "shared disk full": Row(disk_full, {73}, False),
    "no space in /dev/shm": Row(no_space("/dev/shm"), {0, 80}, False),
    # Open MPI's PMIx gets SIGBUS in MPI_Init (4.1.4).
    "no space in /tmp": Row(no_space("/tmp/ompi.{}.0"), set(range(1, 256)), False),
}


def run_case(program, name, seed, is_long):
    """Within the machines: prints what happened as JSON."""
    row, case = ROWS[name], Case(program, seed)
    try:
        row.fault(case)
        case.finish()
        text = case.job.text()
        named = {host for pattern in CULPRITS for host in re.findall(pattern, text)}
        case.check(case.code in row.codes, f"exit code {case.code}")
        case.check(case.host is None or case.code == 0 or case.host in named, f"{case.host} is not named")
        if row.resumes and (is_long or name not in RESUMES_IN_LONG):
            resumes(case)
    except Exception:  # pylint: disable=broad-except
        case.problems.append(traceback.format_exc())
        named, text = set(), case.job.text() if case.job else ""
    result = {"code": case.code, "seconds": case.seconds, "problems": case.problems, "text": text}
    result["is_deserted"] = case.is_deserted
    result["wrong"] = sorted(named - {case.host})
    print(json.dumps(result))


def one(program, name, seed, *options):
    """Once more if Open MPI lost a race of its own on a busy machine (4.1.4): two ranks that connect to
    each other at the same moment, or an mpirun that stays behind."""
    result = attempt(__file__, program, name, seed, *options)
    if result["problems"] and (
        result["is_deserted"] or any(race in result["text"] for race in faults.RACES)
    ):
        why = "mpirun stays behind" if result["is_deserted"] else "of a race of Open MPI"
        print(f"{name}: once more, as {why}: {result['text'][-500:]}", flush=True)
        result = attempt(__file__, program, name, seed, *options)
    return result


def report(name, results):
    """A line of the table; whether all went right."""
    codes = collections.Counter(result["code"] for result in results)
    seconds = [result["seconds"] for result in results if result["seconds"] is not None]
    wrong = sum(len(result["wrong"]) for result in results)
    line = f"{name:26} {len(results):3}  " + ", ".join(f"{n} x {code}" for code, n in codes.items())
    line = f"{line:50} {max(seconds, default=0):6.1f} s  {wrong} wrong hosts"
    print(line, flush=True)
    bad = [result for result in results if result["problems"] or result["wrong"]]
    for result in bad:
        print(f"FAILED: {name}: {result['problems']} {result['wrong']}\n{result['text'][-3000:]}")
    return not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--long", action="store_true", help="every fault 5 times")
    parser.add_argument("--case", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--only", help="regular expression of faults")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.program)
    if arguments.case:
        run_case(program, arguments.case, arguments.seed, arguments.long)
        return
    skip_where_impossible()
    begin = time.monotonic()
    names = [name for name in ROWS if re.search(arguments.only or "", name)]
    if not arguments.long and not arguments.only:
        names = [name for name in names if name not in LONG_ONLY]
    repeats, options = (range(5), ["--long"]) if arguments.long else (range(1), [])
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        cases = {
            name: [pool.submit(one, program, name, arguments.seed + i, *options) for i in repeats]
            for name in names
        }
        fine = [report(name, [case.result() for case in some]) for name, some in cases.items()]
    print(f"{len(names) * len(repeats)} jobs in {time.monotonic() - begin:.0f} s")
    raise SystemExit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
