#!/bin/bash
# A rank that crashes prints its number, where it was and that nothing is lost; then the job ends.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 10 1
shapes val 2 2
small_config > "$work/config.json"
mpirun --oversubscribe --bind-to none -np 2 "$dtrain" --config "$work/config.json" \
    --out "$work/run" --set train.max_steps=0 --set train.epochs=100000 2> "$work/log" &
pid=$!
for _ in $(seq 3000); do
    sleep 0.1
    if grep -q '"event": *"step"' "$work/run/metrics.jsonl" 2> /dev/null; then break; fi
done
victim=$(pgrep -P $pid | tail -1)
kill -SEGV "$victim"
code=0
wait $pid || code=$?
[ $code = 139 ] || fail "exit code $code: $(cat "$work/log")"
grep -Eq "error\[CRASH\] rank [01] \(pid $victim\) died of SIGSEGV at step [0-9]+, section [a-z]+;" \
    "$work/log" || fail "no message about the crash: $(cat "$work/log")"
