#!/bin/bash
# dtrain bench --input on a folder, on shards and on synthetic data, with one rank and with two; and
# the input report at the end of an epoch.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 10 1 64
"$dtrain" shard "$work/train" "$work/shards" --per-shard 40 2> /dev/null
small_config > "$work/config.json"

measure() { # ranks settings...
    local n=$1
    shift
    on_ranks "$n" "$dtrain" bench --input --config "$work/config.json" --set bench.rounds=1 \
        --set output.dir="$work/none" --json "$work/bench.json" "$@" \
        > "$work/table" 2> "$work/log" || fail "$*: $(cat "$work/log")"
    [ ! -e "$work/none" ] || fail "$*: a run folder was made"
    grep -q "limit\|Synthetic" "$work/table" || fail "$*: no verdict: $(cat "$work/table")"
}
check() { # ranks, a number of workers that must have been measured, allowed limits
    /usr/bin/python3 - "$work/bench.json" "$@" <<'PY' || fail "$(cat "$work/bench.json")"
import json, math, re, sys

result = json.load(open(sys.argv[1], encoding="utf-8"))
ranks, workers, limits = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].split(",")
synthetic = limits == ["generating"]
assert result["ranks"] == ranks and result["limit"] in limits, result["limit"]
stages = {"read_ms", "resize_ms"} if synthetic else {
    "read_cold_ms", "read_ms", "entropy_ms", "transform_ms", "resize_ms"}
assert set(result["stages"]) == stages | {"images"}
assert all(value >= 0 for value in result["stages"].values())
points = {(p["workers"], p["cold"]): p for p in result["loader"]}
assert len(points) == len(result["loader"])
counts = {w for w, _ in points}
assert {1, workers, result["workers"]} <= counts, counts
assert set(points) == {(w, c) for w in counts for c in ([False] if synthetic else [False, True])}
for p in points.values():
    assert p["images_per_s"] > 0 and math.isclose(
        p["images_per_s_per_worker"], p["images_per_s"] / p["workers"] / ranks)
    assert p["images_per_s_slowest"] <= p["images_per_s"] <= p["images_per_s_fastest"]
    read, decode, wait = (p[k] for k in ("read_share", "decode_share", "wait_share"))
    # Rows begun before a round count in it as a whole, so the first two may be more than 1.
    assert min(read, decode) >= 0 and math.isclose(wait, max(1 - read - decode, 0), abs_tol=1e-3), p
best = points[result["workers"], result["limit"] == "reading"]
assert math.isclose(result["images_per_s_per_rank"], best["images_per_s"] / ranks)
needed = re.search(r"every 1000 images/s take ([0-9.]+) workers", result["verdict"])
assert bool(needed) == (result["limit"] == "decoding"), result["verdict"]
if needed:
    wanted = 1000 * result["workers"] / result["images_per_s_per_rank"]
    assert math.isclose(float(needed[1]), wanted, abs_tol=0.051), (wanted, result["verdict"])
PY
}

measure 1
check 1 1 reading,decoding
measure 2 --set data.source=auto --set data.train="$work/shards" --set data.workers=3 \
    --set data.mixup=0.2 --set model.image_size=48 --set data.val_resize=48 --set data.augment=imagenet
check 2 3 reading,decoding
measure 1 --set data.source=synthetic --set data.train= --set data.val=
check 1 1 generating

# A data set smaller than a global batch, and one with fewer images than ranks.
mkdir -p "$work/two/a"
cp "$(find "$work/train" -name '*.jpg' | head -1)" "$work/two/a/1.jpg"
measure 1 --set data.train="$work/two" --set model.num_classes=0
check 1 1 reading,decoding
ends 78 "fewer images than there are ranks" on_ranks 2 "$dtrain" bench --input --config "$work/config.json" \
    --set data.train="$work/two" --set model.num_classes=0

# No image can be decoded.
echo "no image" > "$work/two/a/1.jpg"
ends 65 "none of the images" "$dtrain" bench --input --config "$work/config.json" \
    --set data.train="$work/two" --set model.num_classes=0

ends 64 "" "$dtrain" bench --input --profile

# Training: 1280 x 1280 pixels are slow to load for a tiny network, even on a busy machine.
shapes large 4 1
/usr/bin/python3 - "$work/large" <<'PY'
import pathlib, sys
from PIL import Image

for path in pathlib.Path(sys.argv[1]).rglob("*.jpg"):
    Image.open(path).resize((1280, 1280)).save(path)
PY
shapes val 2 2
for ranks in 1 2; do
    on_ranks "$ranks" "$dtrain" --config "$work/config.json" --out "$work/run-$ranks" \
        --set data.train="$work/large" --set data.augment=none --set data.scaled_decode=never \
        > "$work/log" 2>&1 || fail "$(cat "$work/log")"
    /usr/bin/python3 - "$work/run-$ranks/metrics.jsonl" "$ranks" "$work/log" <<'PY' ||
import json, re, statistics, sys

events = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
events = [event for event in events if event["event"] == "input"]
# 3 steps per epoch, not counting the first of the run; the run ends within the seventh epoch, after
# too few steps for a report.
assert [e["step"] for e in events] == list(range(3, 19, 3)), events
assert [e["epoch"] for e in events] == list(range(1, 7)), events
assert [e["steps"] for e in events] == [2, 3, 3, 3, 3, 3], events
# The console mentions the input only if ranks wait for it, and once a minute.
log = open(sys.argv[3], encoding="utf-8").read()
lines = re.findall(r"input.*: ranks wait [0-9.]+ % of the step for data", log)
assert len(lines) <= sum(e["wait_share"] >= 0.01 for e in events) and bool(lines) == any(
    e["wait_share"] >= 0.01 for e in events), (lines, events)
for e in events:
    assert e["images_read_per_s"] > 0 and e["storage_bytes_per_s"] >= 0, e
    assert 100 < e["bytes_read_per_s"] / e["images_read_per_s"] < 100000, e  # of a JPEG file
    assert 0 <= e["wait_share"] <= 1 and 0 <= e["read_share"] < 1 and e["workers"] == 1
    bound = e["wait_share"] > 0.05
    assert e["text"].startswith("input-bound: " if bound else "input: "), e
    short = 0 < e["capacity_images_per_s"] < e["demand_images_per_s"]
    if bound and short:
        assert "decoding is the limit; try " in e["text"], e
# Two ranks on busy CPUs may wait longer for each other than for data, and the loader still holds
# batches prepared during the slow first step. A single stretch may be disturbed, so medians count.
def median(value):
    return statistics.median(value(e) for e in events[2:])


if sys.argv[2] == "1":
    assert median(lambda e: e["wait_share"]) > 0.05 and median(lambda e: e["busy_share"]) > 0.5
    assert median(lambda e: e["capacity_images_per_s"] / e["demand_images_per_s"]) < 1
    assert events[-1]["longest_wait_s"] > 0
PY
        fail "$(cat "$work/run-$ranks/metrics.jsonl")"
done
