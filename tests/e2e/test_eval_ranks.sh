#!/bin/bash
# dtrain eval prints the same line on 1, 2 and 3 ranks, for a number of images that does not divide
# evenly, and the last evaluation of the training run agrees.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 10 1
shapes val 7 2
small_config | sed 's/"tiny"/"resnet20"/' > "$work/config.json"
train 2 run --set train.max_steps=30
evaluate() { # ranks weights: the line in $work/out
    ends 0 "" on_ranks "$1" "$dtrain" eval --config "$work/config.json" --weights "$2"
    [ -e "$work/eval1" ] || cp "$work/out" "$work/eval1"
    cmp "$work/eval1" "$work/out" || fail "the numbers differ on $1 ranks, weights $2"
}
for ranks in 1 2 3; do
    evaluate $ranks "$work/run"
done
evaluate 1 "$(model_of "$work/run")"
evaluate 1 "$work/run/checkpoints"
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
# shellcheck disable=SC2016
ends 76 "rank 1 (.*) has different files in data.val" on_ranks 2 bash -c \
    'cd "$1"; [ "$OMPI_COMM_WORLD_RANK" = 0 ] || cd elsewhere; shift; exec "$@"' - "$work" "$dtrain" eval \
    --config "$work/config.json" --weights "$work/run" --set data.val=val
