"""Time and memory of opening a data set of the size of ImageNet whose index is kept.

    python3 tests/perf/index_1300k.py BUILD/tests/input_tool [--rounds 5]

Makes 1,300 shards of 1,000 samples (hard links of one tar with members of one byte: every shard has
an index of its own), builds the index, then opens the data set with it. Printed: CPU time and time
by the clock (medians), peak memory of the process. Exits with 1 if a start takes 2 s of CPU time or
100 MB."""

import os
import statistics
import sys
import tarfile
import tempfile

import turns
from made_files import tar_of

SHARDS, SAMPLES = 1300, 1000
LIMIT_S, LIMIT_BYTES = 2, 100e6


def make_shards(folder):
    first = os.path.join(folder, "train-0000.tar")
    pairs = [((f"{i:08}_{i}.cls", str(i).encode()), (f"{i:08}_{i}.jpg", b"j")) for i in range(SAMPLES)]
    tar_of(first, [(f"n{name}", data) for pair in pairs for name, data in pair], form=tarfile.USTAR_FORMAT)
    for i in range(1, SHARDS):
        os.link(first, os.path.join(folder, f"train-{i:04}.tar"))
    return os.path.join(folder, f"train-{{0000..{SHARDS - 1:04}}}.tar")


def open_set(tool, pattern, cache):
    result = turns.answer(tool, "index", pattern, cache)
    assert result["images"] == SHARDS * SAMPLES, result
    return result


def main():
    args = turns.parser("tool", rounds=5).parse_args()
    with tempfile.TemporaryDirectory(prefix="dtrain-index-") as folder:
        pattern = make_shards(folder)
        cache = os.path.join(folder, "run")
        os.mkdir(cache)
        built = open_set(args.tool, pattern, cache)
        rounds = [open_set(args.tool, pattern, cache) for _ in range(args.rounds)]
    cpu_s = statistics.median(r["cpu_s"] for r in rounds)
    clock_s = statistics.median(r["clock_s"] for r in rounds)
    peak = max(r["peak_kib"] for r in rounds) * 1024
    own = peak - max(r["before_kib"] for r in rounds) * 1024
    print(f"{built['images']:,} samples in {SHARDS:,} shards")
    print(f"building: {built['cpu_s']:.2f} s CPU, {built['clock_s']:.2f} s")
    print(f"opening:  {cpu_s:.3f} s CPU, {clock_s:.3f} s (medians of {args.rounds})")
    print(f"memory:   {peak / 1e6:.1f} MB at the most, {own / 1e6:.1f} MB of it for the data set")
    sys.exit(cpu_s >= LIMIT_S or peak >= LIMIT_BYTES)


main()
