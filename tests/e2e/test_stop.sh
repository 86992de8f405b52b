#!/bin/bash
# SIGUSR1 and --max-time: a checkpoint at the present step and exit code 75; resuming
# goes on from it.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 10 1
shapes val 2 2
small_config > "$work/config.json"
long="--set train.max_steps=0 --set train.epochs=100000"
got=0
on_ranks 2 "$dtrain" --config "$work/config.json" --out "$work/time" $long --max-time 2s || got=$?
[ $got = 75 ] || fail "--max-time: exit code $got"
[ -s "$work/time/checkpoints/latest" ] || fail "--max-time: no checkpoint"

mpirun --oversubscribe --bind-to none -np 2 "$dtrain" --config "$work/config.json" \
    --out "$work/signal" $long &
pid=$!
for _ in $(seq 100); do
    sleep 0.1
    if grep -q '"event": *"step"' "$work/signal/metrics.jsonl" 2> /dev/null; then break; fi
done
kill -USR1 $pid
got=0
wait $pid || got=$?
[ $got = 75 ] || fail "SIGUSR1: exit code $got"
tail -1 "$work/signal/metrics.jsonl" | grep '"run_end"' | grep -q '"exit_code": *75' ||
    fail "SIGUSR1: no run_end event"
step=$(sed 's/step-0*//' "$work/signal/checkpoints/latest")
on_ranks 2 "$dtrain" --config "$work/config.json" --out "$work/signal" --resume must \
    --set train.max_steps=$((step + 5))
grep -q "step-0*$((step + 5))" "$work/signal/checkpoints/latest" ||
    fail "it did not go on from $step"
grep '"run_start"' "$work/signal/metrics.jsonl" | tail -1 | grep -q "\"start_step\": *$step[,}]" ||
    fail "it did not start at $step"

# An evaluation that was due at the stop is the first thing the next run does. Every step ends an
# epoch here, so one always is.
each="--set train.global_batch=100 --set train.eval_every=1"
got=0
"$dtrain" --config "$work/config.json" --out "$work/due" $long $each --max-time 2s || got=$?
[ $got = 75 ] || fail "evaluation due: exit code $got"
step=$(sed 's/step-0*//' "$work/due/checkpoints/latest")
"$dtrain" --config "$work/config.json" --out "$work/due" --resume must $each \
    --set train.epochs=100000 --set train.max_steps=$((step + 1))
/usr/bin/python3 - "$work/due/metrics.jsonl" "$step" <<'PY'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
stop = int(sys.argv[2])
evals = [e["step"] for e in events if e["event"] == "eval"]
assert evals == list(range(1, stop + 2)), (stop, evals)
PY
