#!/bin/bash
# model.initial_checkpoint: the body is loaded, a head with another number of classes is replaced,
# and anything else that does not fit is reported as PyTorch does.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 10 1
shapes val 2 2
small_config > "$work/config.json"
train 1 base
weights=$(model_of "$work/base")
run() { # out settings...
    train 1 "$@" --set model.initial_checkpoint="$weights"
}
# A tiny learning rate keeps the loaded weights.
still="--set train.max_steps=1 --set schedule.lr=1e-20 --set optim.weight_decay=0"
run same $still
/usr/bin/python3 "$here/compare.py" "$(model_of "$work/same")" "$weights" 1e-7
printf "%s\n" $(ls "$work/train" | head -7 | tac) > "$work/classes"
seven="--set data.class_map=$work/classes --set model.num_classes=0"
run more $still $seven
head="of [0-9]* tensors from $weights; classifier fc new (10 -> 7 classes)"
says "weights .* $head"
grep '"run_start"' "$work/more/metrics.jsonl" | grep -q "\"weights\":\".*$head\"" ||
    fail "no weights in run_start"
"$dtrain" --config "$work/config.json" --out "$work/dry" --dry-run $seven \
    --set model.initial_checkpoint="$weights" | grep -q "^weights: .* $head" || fail "the dry run"
ends 66 "" "$dtrain" --config "$work/config.json" --out "$work/dry" --dry-run \
    --set model.initial_checkpoint="$work/nowhere"
/usr/bin/python3 - "$(model_of "$work/more")" "$weights" <<'PY'
import sys
import safetensors_np
new, old = (safetensors_np.load(path) for path in sys.argv[1:])
assert new.keys() == old.keys()
for name in new:
    if name.startswith("fc."):
        assert new[name].shape[0] == 7, name
    else:
        assert new[name].shape == old[name].shape and new[name].tobytes() == old[name].tobytes(), name
PY
ends 78 'Unexpected key(s) in state_dict: "' "$dtrain" --config "$work/config.json" --out "$work/wrong" \
    --set model.name=resnet20 --set model.initial_checkpoint="$weights"
says 'Missing key(s) in state_dict: "'
[ "$(grep -o '"[^"]*"' "$work/log" | wc -l)" -le 10 ] || fail "too many names: $(cat "$work/log")"
grep "Missing key" "$work/log" | grep -q '" and [0-9]* more\.$' ||
    fail "no number of omitted names: $(cat "$work/log")"
# A value that is not finite, behind which ReLU and the maximum give plausible results.
mkdir "$work/bad"
cp "$(dirname "$weights")/config.json" "$work/bad"
/usr/bin/python3 - "$weights" "$work/bad/w.safetensors" <<'PY'
import sys
import safetensors_np
tensors = safetensors_np.load(sys.argv[1])
tensors["conv1.weight"] = tensors["conv1.weight"].copy()
tensors["conv1.weight"][0, 0, 0, 0] = float("nan")
safetensors_np.save(sys.argv[2], tensors)
PY
bad=$work/bad/w.safetensors
for command in "eval $bad" "predict $bad $work/val" \
    "--config $work/config.json --out $work/nan --set model.initial_checkpoint=$bad"; do
    # shellcheck disable=SC2086 # several words
    ends 81 "error\[NUMERICAL\] tensor conv1.weight of $bad holds NaN" "$dtrain" $command
done
