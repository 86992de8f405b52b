"""Rank 0 alone makes the index of the data; the others get it, and open only the shards of the images that they
read. Counted by strace until the first step is done.

    python3 test_opens.py BUILD/dtrain"""

import collections
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import DTRAIN, rig, run, write, write_config  # noqa: E402

SHARDS = 80
CALL = re.compile(r'^\d+ +(?P<call>\w+)\((?:AT_FDCWD|\d+<[^>]*>|)[^"]*"(?P<path>[^"]*)"')
# What a rank reads: up to 8 images are tried, and 3 batches of 2 are prefetched, besides the one in use.
MAX_READ = 8 + 4 * 2 + 2

if not shutil.which("strace"):
    print("skipped: no strace")
    sys.exit(77)


def traced(ranks):
    """Of each rank: how often it has opened and looked at what, by the kind of file."""
    folder = f"traces-{ranks}"
    write(f"{folder}/run", f'exec strace -qq -f -e trace=file -o {folder}/$(printf %03d $RANK) "$@"\n')
    who = "RANK=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}"
    words = [DTRAIN, "--config", "config.json", "--out", f"out-{ranks}"]
    rig.run("sh", "-c", f"export {who}; . {folder}/run", "sh", *words, ranks=ranks)
    return [counts(f"{folder}/{rank:03d}") for rank in range(ranks)]


def counts(path):
    found = collections.Counter()
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            match = CALL.match(line)
            if not match:
                continue
            kind = "open" if "open" in match["call"] else "look"
            if match["path"].endswith(".tar"):
                found[f"{kind} shard"] += 1
            elif match["path"].startswith("data/") or ".index" in match["path"]:
                found[f"{kind} other"] += 1
    return found


def has_index(found):
    """Whether a rank has made an index, or read one."""
    return found["look shard"] > 0 or found["open other"] > 0 or found["open shard"] > MAX_READ


run("demo-data", "raw", "--images-per-class", "160", "--size", "32")
run("shard", "raw", "data/train", "--per-shard", "20")
write_config(
    {
        "model": {"name": "tiny", "image_size": 32},
        "data": {"train": "data/train", "check_images": 0, "workers": 1, "prefetch": 3},
        "train": {"global_batch_size": 8, "max_steps": 1},
        "checkpoint": {"every_epochs": 0},
        "device": {"kind": "cpu", "threads": 1},
    }
)
assert len([name for name in os.listdir("data/train") if name.endswith(".tar")]) == SHARDS
alone, first, *others = traced(1) + traced(4)
for name, found in (("alone", alone), ("rank 0 of 4", first), *((f"rank {i + 1}", c) for i, c in enumerate(others))):
    print(name, dict(found), flush=True)
assert alone["open shard"] >= SHARDS and has_index(alone), "the check does not see the index of one rank"
assert has_index(first), first
assert not any(map(has_index, others)), others
