#!/bin/bash
# A small network overfits a small set of real JPEG files; early_stop.target ends the run.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 12 1
cp -r "$work/train" "$work/val"
small_config > "$work/config.json"
"$dtrain" --config "$work/config.json" --out "$work/run" --set data.augment=none \
    --set train.max_steps=6000 --set train.epochs=600 --set eval.every_epochs=5 \
    --set early_stop.target=99
grep '"event": *"run_end"' "$work/run/metrics.jsonl" | grep -q '"exit_code": *0' ||
    fail "no good run_end event"
grep '"event": *"eval"' "$work/run/metrics.jsonl" | tail -1 | /usr/bin/python3 -c '
import json, sys
event = json.loads(sys.stdin.readline())
assert event["top1"] >= 99, event
assert event["images"] == 120, event
' || fail "the training set was not learned"
for file in config.json metrics.jsonl checkpoints/latest; do
    [ -s "$work/run/$file" ] || fail "$file is missing"
done
