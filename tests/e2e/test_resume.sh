#!/bin/bash
# 20 uninterrupted steps and 10 + resume + 10, with evaluations, give bit-identical files.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 10 1
shapes val 2 2
small_config > "$work/config.json"
run() { # ranks out settings...
    train "$@" --set checkpoint.every_steps=10
}
for name in tiny-1 resnet20-2; do
    ranks=${name#*-} model=${name%-*}
    run "$ranks" "$name-a" --set model.name=$model
    run "$ranks" "$name-b" --set model.name=$model --set eval.every_epochs=1 --set train.max_steps=10
    run "$ranks" "$name-b" --set model.name=$model --set eval.every_epochs=1 --resume must
    [ "$(hash_of "$work/$name-a")" = "$(hash_of "$work/$name-b")" ] || fail "$name: the resumed run differs"
    [ "$(grep -c '"event": *"run_start"' "$work/$name-b/metrics.jsonl")" = 2 ] ||
        fail "metrics.jsonl of a resumed run must be appended to"
done

# Another seed must give another result, or the comparison above is meaningless.
run 1 other --set train.seed=2
[ "$(hash_of "$work/other")" != "$(hash_of "$work/tiny-1-a")" ] || fail "the seed changes nothing"

# Resuming on another number of ranks is allowed and agrees up to rounding (which may cross a kink,
# see some_seed). Batch norm sees the same micro-batches, but amplifies differences: one step only.
run 2 tiny-mixed --set train.max_steps=10
run 1 tiny-mixed
says "a run of 2 ranks on 1: same samples and schedule, the same micro-batches"
/usr/bin/python3 "$here/compare.py" "$(model_of "$work/tiny-mixed")" \
    "$(model_of "$work/tiny-1-a")" 0.02
run 2 norm-mixed --set model.name=resnet20 --set train.max_steps=10
cp -r "$work/norm-mixed" "$work/norm-ranks"
run 1 norm-mixed --set model.name=resnet20 --set train.max_steps=11
run 2 norm-ranks --set model.name=resnet20 --set train.max_steps=11
grep -q '"micro_batch_size": *6,.*"passes": *2' "$work/norm-mixed/metrics.jsonl" ||
    fail "12 images in passes of 6 were expected"
same_momentum() {
    /usr/bin/python3 "$here/compare.py" "$(momentum_of "$work/$1")" "$(momentum_of "$work/$2")" 0.1
}
same_momentum norm-mixed norm-ranks || fail "not the micro-batches of two ranks"
run 1 norm-back --set model.name=resnet20 --set train.max_steps=10
cp -r "$work/norm-back" "$work/norm-alone"
run 1 norm-alone --set model.name=resnet20 --set train.max_steps=11
run 2 norm-back --set model.name=resnet20 --set train.max_steps=11
! same_momentum norm-alone norm-back 2> /dev/null || fail "micro-batches make no difference"
says "micro-batches of 6 images instead of 12"

# What follows computes nothing else.
[ -z "${ONEDNN_MAX_CPU_ISA:-}" ] || exit 0

# Settings that must agree, and requests that --resume rejects.
expect() { # code text settings...
    ends "$1" "$2" "$dtrain" train --config "$work/config.json" "${@:3}"
}
expect 78 "train.seed: was 1, now 5" --out "$work/tiny-1-a" --set train.seed=5
expect 78 "model.name: was \"tiny\", now \"resnet20\"" --out "$work/tiny-1-a" --set model.name=resnet20
expect 78 "train.global_batch_size: was 12" --out "$work/tiny-1-a" --set train.global_batch_size=6
expect 78 "allow-config-change" --out "$work/tiny-1-a" --set schedule.lr=0.01
expect 78 "fingerprint" --out "$work/tiny-1-a" --set data.train="$work/val"
expect 83 "no complete checkpoint" --out "$work/empty" --resume must
expect 83 "cannot resume" --out "$work/empty" --resume "$work/nothing"
expect 73 "choose another --out" --out "$work/tiny-1-a" --resume never

# A rejected run, or one that fails before training, does not touch config.json and metrics.jsonl.
folder=$work/tiny-1-a
cp -r "$folder" "$work/whole"
cp -r "$work/tiny-1-b" "$work/first"
mkdir "$work/before"
cp "$folder/config.json" "$folder/metrics.jsonl" "$work/before/"
unchanged() {
    for file in config.json metrics.jsonl; do
        cmp "$folder/$file" "$work/before/$file" || fail "$1 has changed $file"
    done
}
expect 78 "train.seed: was 1, now 7" --out "$folder" --set train.seed=7
unchanged "a rejected run"
expect 66 "nowhere" --out "$folder" --set data.train="$work/nowhere"
unchanged "a run without data"
rm -r "$folder/checkpoints"
expect 66 "nowhere" --out "$folder" --set data.train="$work/nowhere"
unchanged "a first run without data"

# Restarting a finished run says so and changes nothing.
folder=$work/tiny-1-b
cp "$folder/config.json" "$folder/metrics.jsonl" "$work/before/"
expect 0 "already finished after 20 steps (best top1 [0-9.]* in epoch [0-9]*); its model is $folder/model.safetensors.*; to train longer, raise train.max_steps: dtrain resume $folder --set" \
    --out "$folder" --set checkpoint.every_steps=10
unchanged "a finished run"
expect 0 "already finished after 20 steps.*raise early_stop.target: .*choose another --out" \
    --out "$folder" --set train.max_steps=40 --set early_stop.target=1.5
expect 0 "its model is $folder/checkpoints/step-000000020/model.safetensors; to train" --out "$work/new" --resume "$folder"
never_says "$work/new"

# Changes that do not alter the result, or are allowed explicitly.
uncut=$(hash_of "$folder")
expect 0 "the resumed run will not be bit-identical: train.micro_batch_size: was 0, now 6" \
    --out "$folder" --set train.max_steps=21 --set train.epochs=90 --set train.micro_batch_size=6
expect 0 "continuing as a different run: train.global_batch_size: was 12, now 10; schedule.lr: " \
    --out "$folder" --set train.max_steps=24 --set train.global_batch_size=10 --set schedule.lr=0.01 \
    --allow-config-change

# More epochs alone are no other run, and need no more than the folder; fewer are, and the line says how to go on.
longer() { # code text epochs
    expect "$1" "$2" --out "$work/longer" --set schedule.kind=cosine --set train.max_steps=0 --set train.epochs="$3"
}
longer 0 "end: OK" 1
longer 0 "already finished after .*; to train longer, raise train.epochs: dtrain resume $work/longer --set" 1
longer 0 "train.epochs was 1 and is now 2: .* after 1 of 2 epochs; .* rate was 0.0007612 in the last step, goes on with 0.01 " 2
(cd "$work" && ends 0 "end: OK after 24 steps" "$dtrain" resume longer --set train.epochs=3)
longer 78 " with the old values: dtrain resume $work/longer; with the new ones: add --allow" 1

# From a checkpoint of another folder. A stop before the first step copies it to the run's own, and
# repeating the command resumes from there.
first=$work/first/checkpoints/step-000000010
SLURM_JOB_END_TIME=$(date +%s) expect 75 "" --out "$work/moved" --resume "$first"
[ -f "$work/moved/checkpoints/step-000000010/MANIFEST.json" ] || fail "the stop saved nothing"
for steps in 15 20; do
    expect 0 "moved/checkpoints/step-0000000.*, which began with $first, already exists" \
        --out "$work/moved" --resume "$first" --set train.max_steps=$steps
done
says "resuming from $work/moved/checkpoints/step-000000015"
[ "$(hash_of "$work/moved")" = "$uncut" ] || fail "other bits after moving"
expect 73 "or use --resume auto to continue" --out "$work/moved" \
    --resume "$work/moved/checkpoints/step-000000015"
expect 73 "or use --resume auto to continue" --out "$work/moved" \
    --resume "$work/tiny-mixed/checkpoints/step-000000010"

# Damage: the previous checkpoint is used, and the result is the same.
ends 0 "" "$dtrain" verify "$work/whole"
[ "$(grep -c '^ok  ' "$work/out")" = 2 ] || fail "two checkpoints: $(cat "$work/out")"
good=$work/whole/checkpoints/step-000000010
newest=$work/whole/checkpoints/step-000000020
printf 'xyz' | dd of="$newest/optim.safetensors" bs=1 seek=5000 conv=notrunc status=none
ends 65 "1 of 2 checkpoints in $work/whole/checkpoints cannot be used" "$dtrain" verify "$work/whole"
grep -q "^!!  $newest  tensor momentum\..* in optim.safetensors is damaged" "$work/out" ||
    fail "the tensor is not named: $(cat "$work/out")"
grep -q "^ok  $good  step 10, " "$work/out" || fail "the good one: $(cat "$work/out")"
expect 83 "cannot resume from $newest: tensor" --out "$work/other-out" --resume "$newest"
ends 65 "$newest: tensor" "$dtrain" eval --config "$work/config.json" --weights "$newest"
ends 0 "$newest is not usable" "$dtrain" eval --config "$work/config.json" --weights "$work/whole"
expect 0 "$newest is not usable: tensor .*; trying the previous one" --out "$work/whole" \
    --set checkpoint.every_steps=10
says "resuming from $good"
[ "$(hash_of "$work/whole")" = "$uncut" ] || fail "other bits after damage"
rm "$good/MANIFEST.json"
: > "$newest/state.json"
bad="damaged: step-000000020, step-000000010; repair or remove them, or choose another --out"
for rule in must auto never; do
    expect 83 "$bad" --out "$work/whole" --resume $rule
done
mkdir "$work/none"
ends 66 "holds no checkpoint" "$dtrain" verify "$work/none"
ends 66 "nowhere" "$dtrain" verify "$work/nowhere"
