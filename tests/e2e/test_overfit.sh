#!/bin/bash
# A small network overfits a small set of real JPEG files; early_stop.target ends the run. Every optimizer trains at its
# default rate: at 0.1 the loss of those with squared gradients stays at chance, log 10 = 2.3.
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
/usr/bin/python3 - "$work/config.json" "$work/own.json" <<'PY'
import json, sys
config = json.load(open(sys.argv[1]))
del config["schedule"]["lr"]
json.dump(config, open(sys.argv[2], "w"))
PY
for own in adam=0.001 adamw=0.001 lamb=0.005 rmsprop=0.001; do
    "$dtrain" --config "$work/own.json" --out "$work/$own" --set data.augment=none --set optim.name="${own%=*}" \
        --set train.max_steps=600 --set train.epochs=60 --set eval.every_epochs=0 2> "$work/log" || fail "$(cat "$work/log")"
    grep -q "; schedule.lr ${own#*=} is the default of ${own%=*}$" "$work/log" || fail "no rate: $(cat "$work/log")"
    loss=$(grep '"event":"step"' "$work/$own/metrics.jsonl" | tail -1 | grep -o '"loss":[0-9.]*')
    awk "BEGIN { exit !(${loss#*:} < 2.1) }" || fail "$own ends with $loss"
    echo "$own: $loss"
done
