#!/bin/bash
# --dry-run prints learning rates and memory of a run, and with =plan every action. If the data are
# missing, what is known is printed first and the exit code is theirs.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 10 1
shapes val 2 2
small_config > "$work/config.json"
dry() { # code settings...
    local code=$1 got=0
    shift
    "$dtrain" --config "$work/config.json" --out "$work/run" "$@" \
        > "$work/plan" 2> "$work/log" || got=$?
    [ $got = "$code" ] || fail "exit code $got instead of $code: $*: $(cat "$work/log")"
}
has() {
    grep -q -- "$1" "$work/plan" || fail "no \"$1\" in: $(cat "$work/plan")"
}
dry 0 --dry-run
! grep -q "^train: " "$work/plan" || fail "a list of actions that was not asked for"
dry 0 --dry-run=plan
has "^train: "
has "^eval: .* batch 8"
has "^tiny, images of 32 x 32, 10 classes"
has "100 training images, 8 steps per epoch, 20 steps in all"
has "^optimizer sgd, momentum 0.9, weight decay 0.0001 except on batch norm and bias$"
! grep -q MiB "$work/plan" || fail "two units of memory"
[ ! -e "$work/run" ] || fail "a dry run created the run folder"

# Without the data only the number of steps is missing, and the memory is the same.
sed -n '/^memory/,/^  all/p' "$work/plan" > "$work/memory"
[ -s "$work/memory" ] || fail "no memory summary"
dry 66 --dry-run --set data.train="$work/nowhere"
grep -q "nowhere" "$work/log" || fail "$(cat "$work/log")"
has "steps per epoch, learning rates and classes: unknown without data.train"
dry 66 --dry-run --set data.val="$work/nowhere"
has "100 training images"
sed -n '/^memory/,/^  all/p' "$work/plan" | cmp - "$work/memory" || fail "the memory differs"

# The optimizer's own numbers are shown.
dry 0 --dry-run --set optim.name=lamb --set optim.clip_norm=1
has "^optimizer lamb, momentum 0.9, beta2 0.999, epsilon 1e-06, weight .*, norm of the gradients at most 1$"

# A recipe as a paper's table has it: trained smaller than evaluated.
dry 0 --dry-run --set 'train.stages=[{"epoch":0,"image_size":24}]' --set train.label_smoothing=0.1 --set data.mixup=0.2
has "^tiny, images of 24 x 24, evaluated at 32 x 32, 10 classes"
has "^regularisation label smoothing 0.1, mixup 0.2$"

# Without validation data the evaluation is omitted.
dry 0 --dry-run=plan --set data.val=
! grep -q "^eval: " "$work/plan" || fail "an evaluation without validation data"

# Only milestones that the run reaches are shown: steps 8 and 24 of 20.
dry 0 --dry-run --set schedule.kind=step --set schedule.milestones=[1,3]
has "step  *8 .*(milestone)"
has "^learning rate 0.02, step, then 0.002 from step 8, 0.0002 from step 24$"
[ "$(grep -c milestone "$work/plan")" = 1 ] || fail "$(cat "$work/plan")"

# A warm-up that is longer than the run.
dry 78 --dry-run --set schedule.warmup_steps=801
grep -q "schedule.warmup_steps: a warm-up of 801 steps is longer than the run of 800 steps" "$work/log" ||
    fail "$(cat "$work/log")"

# Stages: their steps, memory and learning rates.
dry 0 --dry-run --set train.max_steps=0 --set train.epochs=4 --set schedule.lr_scaling=linear \
    --set schedule.lr_base_size=12 --set 'train.stages=[{"epoch":1,"image_size":24,"batch":24}]'
has "20 steps in all"
has "^stage epochs 1 to 1: 32 x 32, batch 12, 8 steps per epoch$"
has "^stage epochs 2 to 4: 24 x 24, batch 24, 4 steps per epoch, learning rate times 2, .* per rank$"
has "step  *8  epoch  *1.000  0.04  (stage)"

# A detector has a plan, though these data have no boxes.
detector="--set model.name=retinanet_resnet18_fpn --set model.fpn_channels=32"
dry 78 --dry-run=plan $detector
has " focal_loss.4 "
has " top_detections  *detections4 "
! grep -q "batch norm" "$work/log" || fail "$(cat "$work/log")"
dry 78 --dry-run $detector --set train.micro_batch_size=2
grep -q "warning: batch norm takes its statistics from 2 image" "$work/log" || fail "$(cat "$work/log")"
dry 78 --dry-run $detector --set train.micro_batch_size=2 --set model.frozen_norm=true
! grep -q "batch norm" "$work/log" || fail "$(cat "$work/log")"
