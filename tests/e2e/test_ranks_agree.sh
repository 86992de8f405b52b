#!/bin/bash
# For one global batch 1, 2, 3 and 4 ranks, and passes with accumulation, train the same network
# (without batch norm) up to rounding.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 10 1
shapes val 2 2
small_config > "$work/config.json"
run() { # ranks out settings...
    local ranks=$1 out=$2
    shift 2
    on_ranks "$ranks" "$dtrain" --config "$work/config.json" --out "$work/$out" "$@" \
        2> "$work/log" || {
        cat "$work/log" >&2
        fail "$out"
    }
}
for ranks in 1 2 3 4; do
    run $ranks "ranks$ranks" --set data.workers=$((ranks % 2 + 1))
done
run 1 passes --set train.micro_batch_size=3
run 2 automatic --set comm.algorithm=auto --set train.deterministic=false \
    --set comm.bucket_cap_mb=0.01 --set comm.last_bucket_cap_mb=0.005
for out in ranks2 ranks3 ranks4 passes automatic; do
    echo -n "$out: "
    /usr/bin/python3 "$here/compare.py" "$(model_of "$work/$out")" "$(model_of "$work/ranks1")" 1e-5
done

# Pairs are neighbours in the order, so mixing does not depend on the number of ranks either.
mix=(--set data.color_jitter=0.4 --set data.random_erasing=0.25 --set data.mixup=0.2
    --set data.cutmix=1)
for ranks in 1 2 3; do
    run $ranks "mixed$ranks" "${mix[@]}"
done
for out in mixed2 mixed3; do
    echo -n "$out: "
    /usr/bin/python3 "$here/compare.py" "$(model_of "$work/$out")" "$(model_of "$work/mixed1")" 1e-5
done
! /usr/bin/python3 "$here/compare.py" "$(model_of "$work/ranks1")" "$(model_of "$work/mixed1")" 1e-3 \
    2> /dev/null || fail "mixing changes nothing"
got=0
on_ranks 4 "$dtrain" --config "$work/config.json" --out "$work/odd" "${mix[@]}" 2> "$work/log" || got=$?
[ "$got" = 78 ] || fail "exit code $got instead of 78 for pairs of 3 images"
grep -q "must be even, not 3" "$work/log" || fail "odd micro-batch: $(cat "$work/log")"
