#!/bin/bash
# On several ranks an error is printed once, with the exit code of the error, and all ranks leave.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 3 1
shapes val 1 2
small_config > "$work/config.json"
expect() { # ranks code text arguments...
    local ranks=$1 code=$2 text=$3 got=0
    shift 3
    timeout 60 mpirun --oversubscribe --bind-to none -np "$ranks" "$dtrain" "$@" \
        > "$work/log" 2>&1 || got=$?
    [ "$got" = "$code" ] || fail "exit code $got instead of $code: $*: $(cat "$work/log")"
    [ "$(grep -c 'dtrain: error\[' "$work/log")" = 1 ] || fail "not one message: $(cat "$work/log")"
    grep 'dtrain: error\[' -A 9 "$work/log" | grep -qF -- "$text" ||
        fail "no \"$text\": $(cat "$work/log")"
}
good="--config $work/config.json --out $work/run"
expect 2 64 "did you mean --config" --confg x
expect 2 66 "nowhere.json" --config nowhere.json
expect 2 78 "train.epochs" $good --set train.epochs=0
expect 3 78 "the nearest global batch that can is 9" $good --set train.global_batch=10
expect 2 78 "the nearest global batch that can is 16" $good --set train.global_batch=12 \
    --set train.micro_batch=4 --set train.max_steps=1 --set train.global_batch=20
expect 3 66 "nowhere" $good --set data.train=nowhere
expect 2 69 "no CUDA backend" $good --set device.kind=cuda
expect 2 83 "no complete checkpoint" $good --resume must
expect 2 81 "the loss is" $good --set schedule.lr=1000 --set train.max_steps=200
tail -1 "$work/run/metrics.jsonl" | grep '"run_end"' | grep -q '"exit_code": *81' ||
    fail "no run_end event after a numerical failure"
