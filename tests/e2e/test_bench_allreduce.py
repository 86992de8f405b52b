"""dtrain bench --allreduce on 1 and 3 ranks: a row per size and bucket for the ring and both of
MPI's own, the columns of nccl-tests, no wrong sum; what cannot be asked for is refused.

    python3 test_bench_allreduce.py BUILD/dtrain"""

import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import load, run  # noqa: E402

BY = ["auto", "ring", "halving", "tree", "MPI_Iallreduce", "MPI_Allreduce"]
SET = ["--set", "model.name=tiny", "--set", "model.num_classes=10", "--set", "model.image_size=32", "--set", "device.kind=cpu",
       "--set", "device.threads=1", "--set", "comm.last_bucket_cap_mb=0.01"]


def bench(ranks, *arguments, code=0):
    return run("bench", "--allreduce", *SET, *arguments, ranks=ranks, code=code)


def check(ranks, least, most):
    out = bench(ranks, "--min-bytes", str(least), "--max-bytes", str(2**most),
                "--json", "out.json").stdout
    result = load("out.json")
    rows = result["rows"]
    sizes = [r["bytes"] for r in rows if not r["is_bucket"]]
    assert sizes == [2**i for i in range(most + 1) if 2**i >= least for _ in BY], sizes
    assert [r["by"] for r in rows] == BY * (len(rows) // len(BY)) and rows[-1]["is_bucket"]
    lines = [line.split() for line in out.splitlines() if " float " in line]
    assert len(lines) == len(rows)
    for row, line in zip(rows, lines):
        count, time_us, algbw, busbw = (float(line[i]) for i in (1, 8, 9, 10))
        assert row["n_wrong"] == 0 and line[11] == "0" and row["bytes"] == 4 * count, row
        assert min(row["out_of_place_s"], row["in_place_s"]) > 0, row
        assert math.isclose(time_us, 1e6 * row["in_place_s"], abs_tol=0.06), line
        assert math.isclose(algbw, row["bytes"] / row["in_place_s"] / 1e9, abs_tol=0.006), line
        assert math.isclose(busbw, algbw * 2 * (ranks - 1) / ranks, abs_tol=0.012), line
    assert ("auto_to_mpi_mean" in result) == ("Time of auto" in out) == (ranks > 1 and most >= 20)


check(1, 90000, 17)
check(3, 80000, 20)
assert "no power of two" in bench(2, "--min-bytes", "9", "--max-bytes", "10", code=64).stderr
assert "it takes only --json" in bench(1, "--input", code=64).stderr
assert "not an integer" in bench(1, "--max-bytes", "0", code=64).stderr
