"""All sinks on: one that cannot write never ends training nor changes its result, and after a kill
and a resume no file has half a line or a repeated one."""

import csv
import json
import os
import re
import resource
import struct
import subprocess
import time

import rig as faults

STEPS = {
    "train.max_steps": 60,
    "output.log_every": 5,
    "checkpoint.every_steps": 20,
    "eval.every_epochs": 1,
    "output.sinks": '["console","jsonl","tensorboard","prometheus","csv"]',
}
MLPERF_LOG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "mlperf_log.py")
FAILS = "no events are written to "
SINKS = {"metrics.jsonl", "tensorboard", "dtrain.prom", "metrics.csv"}


def failed_sinks(run):
    return set(re.findall(rf"{FAILS}(\S+?)(?: until this works again)?:", run.text()))


def one_failing_call(rig, number, expected):
    """Returns the sinks that have failed; the other runs fail where test_disk.py looks."""
    out = rig.folder("one")
    fault = f"enospc@io:{number}"
    run = rig.start(1, out, sets=STEPS, env={"DTRAIN_FAULT": fault})
    code = run.wait()
    failed = failed_sinks(run)
    if failed or "no picture of training images" in run.text():
        rig.check(code == 0, f"{fault}: exit code {code}\n{run.text()}")
    if failed:
        rig.check(len(failed) == 1, f"{fault}: {failed} have failed")
        check_files(rig, out, fault)
        rig.check(faults.state_of(out) == expected, f"{fault}: a different result")
    return failed


def full_disk(rig, number):
    """From this call on nothing can be written: training goes on, only its last save fails."""
    out = rig.folder("full")
    fault = f"enospc@io:{number}+"
    run = rig.start(1, out, sets={**STEPS, "checkpoint.every_steps": 0}, env={"DTRAIN_FAULT": fault})
    code = run.wait()
    if code != 73:  # the run has begun
        rig.check("step 60/60" in run.text(), f"{fault}: training ended early:\n{run.text()}")
        rig.check(code == 74, f"{fault}: exit code {code}\n{run.text()}")
        rig.check(failed_sinks(run) <= SINKS, f"{fault}: {run.text()}")
    return failed_sinks(run)


def full_for_a_while(rig, expected):
    """A limit on the size of files stands for a disk that is full for a while: no event is missing. The limit does not
    hold for a pipe, on which the run says that a sink fails; the line of progress after it is late for all files."""
    out = rig.folder("while")
    sets = {**STEPS, "checkpoint.every_steps": 0, "checkpoint.keep_best": "false", "output.rank_logs": "true"}
    run = rig.start(1, out, sets=sets, env={"DTRAIN_FAULT": "slow@0:20"}, through=["cat"])
    while "step 10/60" not in run.text() and run.process.poll() is None:
        time.sleep(0.01)
    limits = resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE)
    least = min(os.path.getsize(os.path.join(out, name)) for name in ("metrics.jsonl", "metrics.csv"))
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (least + 20, limits[1]))
    while "step " not in run.text().partition(FAILS)[2] and run.process.poll() is None:
        time.sleep(0.01)
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, limits)
    code = run.wait()
    rig.check(code == 0 and faults.state_of(out) == expected, f"full for a while: exit code {code}\n{run.text()}")
    check_files(rig, out, "full for a while")
    said = faults.run(rig.program, "runs", os.path.dirname(out)).said
    rig.check("finished" in said, f"full for a while: {said}")
    log = open(os.path.join(out, "logs", "rank-0000.log"), encoding="utf-8").read()
    rig.check("could not be written" in log, f"full for a while: {log}")


def rows(out, name):
    with open(os.path.join(out, name), encoding="utf-8") as file:
        text = file.read()
    assert text.endswith("\n"), f"{name} ends with {text[-80:]!r}"
    return text.splitlines()


def records(path):
    """Number of whole records; what follows them must be part of one."""
    with open(path, "rb") as file:
        data = file.read()
    n = at = 0
    while at + 12 <= len(data) and at + 16 + struct.unpack_from("<Q", data, at)[0] <= len(data):
        at += 16 + struct.unpack_from("<Q", data, at)[0]
        n += 1
    return n, len(data) - at


def check_files(rig, out, what):
    for line in rows(out, "metrics.jsonl"):
        json.loads(line)
    table = list(csv.DictReader(rows(out, "metrics.csv")))
    points = [(row["event"], int(row["step"])) for row in table]
    rig.check(len(points) == len(set(points)), f"{what}: repeated rows {points}")
    steps = [step for event, step in points if event == "step"]
    rig.check(steps == list(range(5, 61, 5)), f"{what}: steps {steps}")
    subprocess.run([MLPERF_LOG, out], check=True)
    log = [json.loads(line.split(" ", 1)[1]) for line in rows(out, "mlperf.log")]
    keys = [line["key"] for line in log]
    rig.check(keys.count("run_start") == keys.count("run_stop") == 1, f"{what}: {keys}")
    evals = [line["metadata"]["step"] for line in log if line["key"] == "eval_accuracy"]
    rig.check(evals == [20, 40, 60], f"{what}: evaluations at {evals}")
    folder = os.path.join(out, "tensorboard")
    files = sorted(os.listdir(folder))
    for name in files[1:]:  # each start begins with the version and where it continues
        n, _ = records(os.path.join(folder, name))
        rig.check(n > 2, f"{what}: {n} records in {name}")
    rig.check(records(os.path.join(folder, files[-1]))[1] == 0, f"{what}: the last record is torn")


def kill(rig, fault, expected):
    out = rig.folder("killed")
    code = rig.start(1, out, sets=STEPS, env={"DTRAIN_FAULT": fault}).wait()
    rig.check(code in (0, -9), f"{fault}: exit code {code}")
    rig.finish(1, out, sets=STEPS)
    rig.check(faults.state_of(out) == expected, f"{fault}: a different result")
    if code != 0:
        check_files(rig, out, fault)


def without_sinks(rig, expected):
    out = rig.folder("none")
    run = rig.finish(1, out, sets={**STEPS, "output.sinks": '["mlperf"]'})
    rig.check("scripts/mlperf_log.py makes it" in run.text(), f"no word of mlperf.log\n{run.text()}")
    left = {*SINKS, "mlperf.log"} & set(os.listdir(out))
    rig.check(not left and "step 60/60" not in run.text(), f"no sinks: {left}\n{run.text()}")
    rig.check(faults.state_of(out) == expected, "no sinks: a different result")


def campaign(rig):
    expected = rig.reference(1, STEPS)
    without_sinks(rig, expected)
    full_for_a_while(rig, expected)
    failed = set()
    for number in range(12, 140, 1 if rig.long else 21):
        failed |= one_failing_call(rig, number, expected)
    print(f"one failing call: {len(failed)} sinks have failed: {sorted(failed)}", flush=True)
    for number in range(30, 80, 5 if rig.long else 25):
        failed |= full_disk(rig, number)
    rig.check(failed == SINKS, f"only {failed} have failed")
    for step in (7, 20, 33) if rig.long else (33,):
        kill(rig, f"kill@{step}:0", expected)
    for number in range(20, 140, 1 if rig.long else 41):
        kill(rig, f"crash@io:{number}", expected)


if __name__ == "__main__":
    faults.main(campaign, __doc__)
