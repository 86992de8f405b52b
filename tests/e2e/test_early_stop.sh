#!/bin/bash
# Training ends early at a target or without progress, alike when it is interrupted and resumed; the
# best checkpoint is found by name, and RUN/model.safetensors is the result.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 6 1
shapes val 4 2
small_config > "$work/config.json"
# On noise (a large learning rate for ten images per class) the loss soon stops falling.
settings="--set eval.every_epochs=1 --set train.max_steps=0 --set schedule.lr=0.3
    --set early_stop.metric=loss --set early_stop.patience=3 --set checkpoint.every_epochs=1
    --set checkpoint.keep=2"
run() { # ranks folder settings...
    # shellcheck disable=SC2086
    train "$1" "$2" $settings "${@:3}"
}
killed() { # step ranks folder
    ! (DTRAIN_FAULT=kill@$1:0 run "$2" "$3" 2> /dev/null) || fail "not killed"
}
last_event() {
    grep '"event":"run_end"' "$work/$1/metrics.jsonl" | tail -1
}

for ranks in 1 2; do
    run "$ranks" "whole$ranks"
    says "end: OK after [0-9]* steps, .* images/s: no better loss in 3 evaluations" \
        "; best loss [0-9.]* in epoch [0-9]* (.*/checkpoints/step-[0-9]*); model "
    steps=$(last_event "whole$ranks" | grep -o '"steps":[0-9]*' | cut -d: -f2)
    # Killed within an epoch; ended within one by train.max_steps, which forces an evaluation that counts
    # for nothing; killed after an evaluation that is not saved yet.
    cut=cut$ranks
    killed $((steps - 12)) "$ranks" "$cut"
    run "$ranks" "$cut" --set train.max_steps=$((steps - 7))
    killed $((steps - 5)) "$ranks" "$cut"
    run "$ranks" "$cut"
    [ "$(hash_of "$work/$cut")" = "$(hash_of "$work/whole$ranks")" ] ||
        fail "interrupted and continued: another end on $ranks ranks"
    # On whichever rank decides: the others took the same decision, or they would still wait.
    run "$ranks" "whole$ranks"
    says "already finished after $steps steps (best loss .*).*; to train longer, raise early_stop.patience: "
done

# What keep_every keeps is also saved where the one before is still being written; others wait until that has ended.
train 1 often --set train.max_steps=60 --set checkpoint.every_steps=1 --set checkpoint.keep=1 --set checkpoint.keep_every=3 \
    --set checkpoint.keep_best=false
for ((step = 3; step <= 60; step += 3)); do
    [ -d "$work/often/checkpoints/step-$(printf %09d $step)" ] || fail "no checkpoint of step $step: $(ls "$work/often/checkpoints")"
done

# A metric that is never defined is waited for no longer than another, also when started again.
printf 'circle\nring\n' > "$work/two"
mkdir "$work/one_class"
cp -r "$work/val/circle" "$work/one_class/"
for end in "end: OK .*: no better auc in 2 evaluations" "already finished"; do
    run 1 undefined --set model.num_classes=0 --set data.class_map="$work/two" \
        --set data.val="$work/one_class" --set early_stop.metric=auc --set early_stop.patience=2
    says "$end"
done

# Weights by name.
whole=$work/whole1
best=$(readlink "$whole/checkpoints/best")
latest=$(readlink "$whole/checkpoints/latest")
[ "$best" != "$latest" ] || fail "the best is the latest: choose other settings"
evaluate() {
    "$dtrain" eval "$@" 2> "$work/log" || fail "$* $(cat "$work/log")"
}
first=$(evaluate "$whole")
for name in "$whole@best" "$whole/checkpoints/best" "$whole@$(sed 's/-0*/-/' <<< "$best")" "$whole/checkpoints"; do
    [ "$(evaluate "$name")" = "$first" ] || fail "$name is not $whole"
done
last=$(evaluate "$whole@latest")
[ "$last" != "$first" ] || fail "@latest is @best"
for name in "$whole/model.safetensors" "$whole/checkpoints/latest"; do
    [ "$(evaluate "$name")" = "$last" ] || fail "$name is not the last"
done
[ "$(evaluate --weights "$whole" --config "$work/config.json")" = "$first" ] || fail "--weights RUN"
cmp "$whole/model.safetensors" "$whole/checkpoints/$latest/model.safetensors" || fail "model.safetensors"
# Where no other save is due, the best evaluation causes one.
run 1 restored --set train.restore_best=true --set checkpoint.every_epochs=0
[ "$(evaluate "$work/restored/model.safetensors")" = "$first" ] || fail "train.restore_best"

# Without an evaluation that counts no checkpoint is the best.
run 1 short --set train.max_steps=3
{ last_event short | grep -q '"top1":' && ! last_event short | grep -q '"best'; } ||
    fail "end of a run within the first epoch: $(last_event short)"
evaluate "$work/short" > /dev/null
says "no checkpoint is the best one yet; using the newest, .*/step-0*3\$"
# A damaged best checkpoint is not used silently.
truncate -s 100 "$work/restored/checkpoints/$best/model.safetensors"
[ "$(evaluate "$work/restored")" = "$last" ] || fail "a damaged best checkpoint was used"
says "the best checkpoint, .*/$best, is missing or damaged; using the newest"

refused 64 "after the @ write best, latest or step-N" "$dtrain" eval "$whole@newest"
kept=$(basename -a "$whole"/checkpoints/step-* | sed 's/step-0*//' | paste -sd, | sed 's/,/, /g')
refused 66 "$whole has no checkpoint of step 999; it has $kept\$" "$dtrain" eval "$whole@step-999"
refused 66 "nowhere" "$dtrain" eval "$work/nowhere@best"
refused 64 "dtrain eval needs a run folder, or --weights PATH" "$dtrain" eval
refused 64 "give one of them" "$dtrain" eval "$whole" --weights "$whole"
cp "$whole/model.safetensors" "$work/"
mv "$work/config.json" "$work/other.json"
refused 64 "has no config.json next to its weights" "$dtrain" eval "$work/model.safetensors"
refused 78 "0.75 is in per cent; did you mean 75?" "$dtrain" --config "$work/other.json" \
    --out "$work/new" --set early_stop.target=0.75
refused 78 "train.restore_best: needs checkpoint.keep_best" "$dtrain" --config "$work/other.json" \
    --out "$work/new" --set train.restore_best=true --set checkpoint.keep_best=false
for n in 1 2; do
    refused 66 "cannot load weights from $work/none" on_ranks $n "$dtrain" --config "$work/other.json" \
        --out "$work/new" --set model.initial_checkpoint="$work/none"
done
[ ! -e "$work/new" ] || fail "a refused run left a folder"
