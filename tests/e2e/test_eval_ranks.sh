#!/bin/bash
# dtrain eval prints the same line on 1, 2 and 3 ranks, for a number of images that does not divide
# evenly, and the last evaluation of the training run agrees. Label: numeric.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 10 1
shapes val 7 2
small_config > "$work/config.json"
on_ranks 2 "$dtrain" --config "$work/config.json" --out "$work/run" --set model.name=resnet20 \
    --set train.max_steps=30
for ranks in 1 2 3; do
    on_ranks $ranks "$dtrain" eval --config "$work/config.json" --set model.name=resnet20 \
        --weights "$work/run" > "$work/eval$ranks" 2> "$work/log" || fail "$(cat "$work/log")"
    echo "$ranks: $(cat "$work/eval$ranks")"
    cmp "$work/eval1" "$work/eval$ranks" || fail "the numbers differ on $ranks ranks"
done
"$dtrain" eval --config "$work/config.json" --set model.name=resnet20 \
    --weights "$(model_of "$work/run")" 2> "$work/log" | cmp - "$work/eval1" ||
    fail "file and run folder differ"
"$dtrain" eval --config "$work/config.json" --set model.name=resnet20 \
    --weights "$work/run/checkpoints" 2> "$work/log" | cmp - "$work/eval1" ||
    fail "run folder and folder of checkpoints differ"
grep -q '"images": *70[,}]' "$work/eval1" || fail "not every image was counted once"
grep '"event": *"eval"' "$work/run/metrics.jsonl" | /usr/bin/python3 -c '
import json, sys
event, line = json.loads(sys.stdin.readline()), json.load(open(sys.argv[1]))
for key in ("loss", "top1", "top5"):
    assert abs(event[key] - line[key]) < 1e-4, (key, event, line)
' "$work/eval1" || fail "the evaluation of the training run differs"

# Ranks that see different images are refused, as their rows could not be told apart.
mkdir -p "$work/elsewhere"
cp -r "$work/val" "$work/elsewhere/"
rm "$work/elsewhere/val/ring/00000.jpg"
got=0
# shellcheck disable=SC2016
on_ranks 2 bash -c 'cd "$1"; [ "$OMPI_COMM_WORLD_RANK" = 0 ] || cd elsewhere; shift; exec "$@"' - \
    "$work" "$(realpath "$dtrain")" eval --config "$work/config.json" --set model.name=resnet20 \
    --weights "$work/run" --set data.val=val > "$work/out" 2> "$work/log" || got=$?
[ "$got" = 76 ] || fail "exit code $got for ranks with different images: $(cat "$work/log")"
grep -q "rank 1 (.*) has different files in data.val" "$work/log" || fail "$(cat "$work/log")"
