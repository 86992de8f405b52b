"""dtrain doctor on two ranks: the report, its JSON, and what is named when something is wrong."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import DTRAIN, load, rig, sets  # noqa: E402


def doctor(code, *changes, fault="", ranks=2, on_rank_1=":", options=()):
    """What it prints, without the commands of its MPI, and its JSON."""
    start = f'[ "${{OMPI_COMM_WORLD_RANK:-0}}" != 1 ] || {on_rank_1}; exec "$@"'
    words = ["-c", start, "rank", DTRAIN, "doctor", "--json", "report.json", *options]
    words += sets("device.threads=1", "device.kind=cpu", *changes)
    run = rig.run("bash", *words, ranks=ranks, code=code, env={"DTRAIN_FAULT": fault} if fault else {})
    report = load("report.json")
    assert report["exit_code"] == code, report
    assert code == 0 or "these ranks are not fit" in run.stderr, run.stderr
    return run.stdout, report


def problems(report):
    return [finding for finding in report["findings"] if finding["is_problem"]]


def check_figures():
    """Other instructions on one host are no finding, and the data are compared without a plan."""
    text, report = doctor(0, on_rank_1="export ONEDNN_MAX_CPU_ISA=SSE41")
    assert "No problem found" in text and problems(report) == [], text
    assert [row["rank"] for row in report["ranks"]] == [0, 1]
    for row in report["ranks"]:
        assert row["cpus"] >= 1 and row["cpu_flops_per_s"] > 0 and row["gpu"] == "", row
        assert row["build"] == report["ranks"][0]["build"] and row["build"][:12] in text, row
    (host,) = report["hosts"]
    assert host["host"] in text and host["clock_ahead_s"] == 0, host
    assert host["memory_bytes"] >= host["memory_free_bytes"] > 0, host
    assert host["disk_free_bytes"] > 0 and host["write_bytes_per_s"] > 0, host
    (pair,) = report["pairs"]
    assert (pair["from"], pair["to"], pair["is_between_hosts"]) == (0, 1, False), pair
    assert min(pair["latency_s"], pair["forth_bytes_per_s"], pair["back_bytes_per_s"]) > 0, pair
    # Half of what the slower direction carries in half a second is the largest sum, at most 64 MiB.
    room = max(min(pair["forth_bytes_per_s"], pair["back_bytes_per_s"]) / 4, 4096)
    wanted = 1 + (room > 4096) + (room > 1 << 20)
    assert [row["seconds"] > 0 for row in report["all_reduce"]] == [True] * wanted, (pair, report["all_reduce"])
    assert os.listdir() == ["report.json"], os.listdir()


def check_one_rank():
    text, report = doctor(0, ranks=1)
    assert "1 rank on 1 host" in text and report["pairs"] == report["all_reduce"] == [], text


def check_problems(expected, *sets, fault=""):
    """`expected`: code, a part of the text, and the ranks, unless it names them itself; the worst first."""
    text, report = doctor(expected[0][0], *sets, fault=fault)
    found = problems(report)
    assert len(found) == len(expected), text
    for (code, what, ranks), problem in zip(expected, found):
        assert problem["code"] == code and what in problem["text"] and problem["text"] in text, text
        assert problem["ranks"] == ranks, problem
        assert text.index(problem["text"]) < text.index("binding"), text


check_figures()
check_one_rank()
slow = f"rank 1 ({os.uname().nodename}) computes "
check_problems(
    [(69, slow, []), (66, "nowhere: No such file", [0])],
    "data.source=folder",
    "data.train=nowhere",
    fault="slow@1:20",
)
text, quick = doctor(0, fault="slow@1:20", options=["--quick"])
assert problems(quick) == quick["pairs"] == [] and quick["all_reduce"], text
check_problems([(73, "cannot create /proc/.tmp-doctor-", [0])], "output.dir=/proc/run")
check_problems(
    [(74, "No space left on device; make room there", [0]), (78, "top5 needs at least 6 classes", [])],
    "data.source=synthetic",
    "model.num_classes=3",
    'eval.metrics=["top5"]',
    "checkpoint.best_metric=top5",
    fault="enospc@io:15",
)
