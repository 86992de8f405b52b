#!/bin/bash
# With the same global batch, 1, 2 and 3 ranks, and gradient accumulation, train the same network
# (without batch norm) up to rounding.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 10 1
shapes val 2 2
small_config | sed "s/\"max_steps\": 20/\"max_steps\": 10/" > "$work/config.json"
agrees() { # seed, out, ranks, settings...: with one rank. A lost part of a gradient exceeds 0.1.
    local seed=$1 out=$2-$1 ranks=$3 one=one${mix:+-mixed}-$1
    shift 3
    [ -e "$work/$one" ] || train 1 "$one" --set train.seed=$seed "${mix[@]}"
    train "$ranks" "$out" --set train.seed=$seed --set data.workers=$((ranks % 2 + 1)) \
        "${mix[@]}" "$@"
    echo -n "$out: "
    /usr/bin/python3 "$here/compare.py" "$(model_of "$work/$out")" "$(model_of "$work/$one")" 1e-5 0.02
}
mix=()
for ranks in 2 3; do
    some_seed agrees ranks$ranks $ranks
done
some_seed agrees passes 1 --set train.micro_batch_size=3
some_seed agrees automatic 2 --set comm.algorithm=library --set train.deterministic=false \
    --set comm.bucket_cap_mb=0.01 --set comm.last_bucket_cap_mb=0.005

# Pairs are adjacent in the shuffled order, so mixing does not depend on the number of ranks either.
mix=(--set data.color_jitter=0.4 --set data.random_erasing=0.25 --set data.mixup=0.2
    --set data.cutmix=1)
some_seed agrees mixed 3
! /usr/bin/python3 "$here/compare.py" "$(model_of "$work/one-1")" "$(model_of "$work/one-mixed-1")" \
    0.1 2> /dev/null || fail "mixing changes nothing"
# All time of a step belongs to one kind.
/usr/bin/python3 - "$work"/*/metrics.jsonl << 'PY' || fail "the parts of a step do not add up to it"
import json, math, sys

parts = ("data_wait_s", "compute_s", "comm_s", "sync_s", "other_s")
lines = [json.loads(line) for name in sys.argv[1:] for line in open(name, encoding="utf-8")]
steps = [line for line in lines if line["event"] == "step"]
assert len(steps) >= len(sys.argv) - 1
for step in steps:
    assert min(step[part] for part in parts) >= 0 and step["compute_s"] > 0, step
    assert math.isclose(sum(step[part] for part in parts), step["step_s"], rel_tol=1e-9), step
PY
some_seed agrees uneven 5
ends 78 "mix pairs, so 13 must be even" on_ranks 2 "$dtrain" --config "$work/config.json" --out "$work/odd" \
    "${mix[@]}" --set train.global_batch_size=13
