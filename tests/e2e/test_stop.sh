#!/bin/bash
# Signals and --max-time save a checkpoint at the current step and exit with 75; resuming continues
# from it.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 10 1
shapes val 2 2
small_config > "$work/config.json"
long=(--set train.max_steps=0 --set train.epochs=100000)
stopped_at() { # run folder
    local name
    name=$(readlink "$1/checkpoints/latest")
    echo $((10#${name#step-}))
}
wait_for_step() { # run folder
    for _ in $(seq 600); do
        if grep -q '"event": *"step"' "$1/metrics.jsonl" 2> /dev/null; then return; fi
        sleep 0.1
    done
    fail "$1: no step"
}
ends 75 "" on_ranks 2 "$dtrain" --config "$work/config.json" --out "$work/time" "${long[@]}" --max-time 2s
[ -d "$work/time/checkpoints/latest" ] || fail "--max-time: no checkpoint"

$DTRAIN_MPIRUN -np 2 "$dtrain" --config "$work/config.json" --out "$work/signal" "${long[@]}" &
pid=$!
wait_for_step "$work/signal"
kill -USR1 $pid
ends 75 "" wait $pid
tail -1 "$work/signal/metrics.jsonl" | grep '"run_end"' | grep -q '"exit_code": *75' ||
    fail "SIGUSR1: no run_end event"
step=$(stopped_at "$work/signal")
on_ranks 2 "$dtrain" --config "$work/config.json" --out "$work/signal" --resume must \
    --set train.max_steps=$((step + 5))
readlink "$work/signal/checkpoints/latest" | grep -q "step-0*$((step + 5))" ||
    fail "it did not continue from $step"
grep '"run_start"' "$work/signal/metrics.jsonl" | tail -1 |
    grep -q "\"start_step\": *${step}[,}]" ||
    fail "it did not start at $step"

# What mpirun passes on from Ctrl-C, to a rank here, so that it has the time: the line tells of mpirun's 1.
on_ranks 2 "$dtrain" --config "$work/config.json" --out "$work/passed" "${long[@]}" 2> "$work/passed.log" &
pid=$!
wait_for_step "$work/passed"
kill -TERM "$(pgrep -f "^$dtrain .*--out $work/passed " | head -1)"
ends 75 "" wait $pid
why="by SIGTERM; .*"
$DTRAIN_MPIRUN --version 2>&1 | grep -q "HYDRA\|Intel" || why+=" returns 1, not 75: send it SIGUSR1"
grep -q "$why" "$work/passed.log" || fail "$(cat "$work/passed.log")"

# Without mpirun, every stop signal leaves enough time to save.
for name in USR1 USR2 TERM INT; do
    "$dtrain" --config "$work/config.json" --out "$work/$name" "${long[@]}" 2> "$work/$name.log" &
    pid=$!
    wait_for_step "$work/$name"
    kill -$name $pid
    ends 75 "" wait $pid
    grep -q "after step $(stopped_at "$work/$name") by SIG$name;" "$work/$name.log" ||
        fail "SIG$name: $(tail -3 "$work/$name.log")"
done

# The next run starts with an evaluation that was due at the stop. One always is here, as every step
# ends an epoch.
each=(--set train.global_batch_size=100 --set eval.every_epochs=1)
ends 75 "" "$dtrain" --config "$work/config.json" --out "$work/due" "${long[@]}" "${each[@]}" --max-time 2s
step=$(stopped_at "$work/due")
"$dtrain" --config "$work/config.json" --out "$work/due" --resume must "${each[@]}" \
    --set train.epochs=100000 --set train.max_steps=$((step + 1))
/usr/bin/python3 - "$work/due/metrics.jsonl" "$step" <<'PY'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
stop = int(sys.argv[2])
evals = [e["step"] for e in events if e["event"] == "eval"]
assert evals == list(range(1, stop + 2)), (stop, evals)
PY
