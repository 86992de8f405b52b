#!/bin/bash
# --dry-run prints learning rates and memory of a run, and with =plan every action. If the data are
# missing, what is known is printed first and the exit code is theirs.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 10 1
shapes val 2 2
small_config > "$work/config.json"
dry() { # code settings...
    ends "$1" "" "$dtrain" --config "$work/config.json" --out "$work/run" "${@:2}"
}
dry 0 --dry-run
! grep -q "^train: " "$work/out" || fail "a list of actions that was not asked for"
dry 0 --dry-run=plan
shows "^train: "
shows "^eval: .* batch 8"
shows "^tiny, images of 32 x 32, 10 classes"
shows "100 training images, 8 steps per epoch, 20 steps in all; the incomplete last batch of an epoch is dropped (4 images, different ones each epoch)$"
shows "^optimizer sgd, momentum 0.9, weight decay 0.0001 except on batch norm and bias$"
! grep -q MiB "$work/out" || fail "two units of memory"
[ ! -e "$work/run" ] || fail "a dry run created the run folder"

shows "^available: .*B per rank$"
never_says "the plan takes"

# Without the data only the number of steps is missing, and the memory is the same.
sed -n '/^memory/,/^  total/p' "$work/out" > "$work/memory"
[ -s "$work/memory" ] || fail "no memory summary"
dry 66 --dry-run --set data.train="$work/nowhere"
says "nowhere"
shows "steps per epoch, learning rates and classes: unknown, since data.train"
dry 66 --dry-run --set data.val="$work/nowhere"
shows "100 training images"
sed -n '/^memory/,/^  total/p' "$work/out" | cmp - "$work/memory" || fail "the memory differs"

# The optimizer's own numbers are shown.
dry 0 --dry-run --set optim.name=lamb --set optim.clip_norm=1
shows "^optimizer lamb, momentum 0.9, beta2 0.999, epsilon 1e-06, weight .*, norm of the gradients at most 1$"

# A recipe as a paper's table has it: trained smaller than evaluated.
dry 0 --dry-run --set 'train.stages=[{"epoch":0,"image_size":24}]' --set train.label_smoothing=0.1 --set data.mixup=0.2
shows "^tiny, images of 24 x 24, evaluated at 32 x 32, 10 classes"
shows "^regularisation label smoothing 0.1, mixup 0.2$"

# Without validation data the evaluation is omitted.
dry 0 --dry-run=plan --set data.val=
! grep -q "^eval: " "$work/out" || fail "an evaluation without validation data"

# Only milestones that the run reaches are shown: steps 8 and 24 of 20.
dry 0 --dry-run --set schedule.kind=step --set schedule.milestones=[1,3]
shows "step  *8 .*(milestone)"
shows "^learning rate 0.02, step, then 0.002 from step 8, 0.0002 from step 24$"
[ "$(grep -c milestone "$work/out")" = 1 ] || fail "$(cat "$work/out")"

# A name without a folder, with or without .json, is looked for in several; a pipe and - are read.
here() { # code, text, name, settings...
    ends "$1" "$2" "$dtrain" --config "$3" --out "$work/run" --dry-run "${@:4}"
}
mkdir "$work/mine"
sed 's/"max_steps": 20/"max_steps": 7/' "$work/config.json" > "$work/mine/first.json"
for name in first first.json; do
    DTRAIN_CONFIG_PATH=$work/nowhere:$work/mine here 0 "" $name
    shows " 7 steps in all"
done
DTRAIN_CONFIG_PATH=$work/mine here 66 "no such file in .:$work/mine:/.*/configs:.*; did you mean first?" frist.json
for name in resnet50 resnet50.json; do
    here 0 "" $name --set data.source=synthetic --set train.global_batch_size=2
    shows "^resnet50, images of 224 x 224, 1000 classes"
done
here 0 "data.val: data/imagenet/.* of /.*/resnet50.json does not exist, so nothing is evaluated" resnet50 \
    --set data.train="$work/train" --set train.global_batch_size=2
shows "^resnet50, images of 224 x 224, 10 classes"
here 0 "" - < "$work/mine/first.json"
shows " 7 steps in all"
here 0 "" <(cat "$work/mine/first.json")
shows " 7 steps in all"
here 78 "standard input:1:9: zoo: unknown key" - <<< '{"zoo": 1}'

# Recipes of other networks; their data are not there.
for network in resnext50 mobilenet_v2 efficientnet_b0 convnext_tiny; do
    here 0 "" $network --set data.source=synthetic --set train.global_batch_size=2
    shows "^$network.*, images of 224 x 224, 1000 classes"
done

# A file to start from.
"$dtrain" config new --data "$work/train" --model tiny --gpus 0 > "$work/new.json"
here 0 "" "$work/new.json"
shows "^tiny, images of 224 x 224, 10 classes" "^optimizer sgd" "^device cpu"
"$dtrain" config new --model retinanet_resnet18_fpn --gpus 8 | "$dtrain" config show --config - > "$work/out"
shows '"source": "synthetic"' '"kind": "cuda"' '"precision": "bf16"' '"name": "adamw"'
refused 78 'there is no model "resnet19"; did you mean' "$dtrain" config new --model resnet19
refused 64 "it takes only --data, --model and --gpus" "$dtrain" config new --set train.epochs=3
refused 64 "only dtrain config new takes --data" "$dtrain" config show --gpus 2

# A warm-up that is longer than the run: the default one shrinks, and a recipe's if --set makes the run short.
here 0 "5 epochs are longer than train.epochs 2; it is 0.5 here" - --set train.epochs=2 <<JSON
{"model": {"name": "tiny"}, "data": {"source": "synthetic"}, "device": {"kind": "cpu"}, "schedule": {"warmup_epochs": 5}}
JSON
here 0 "5 epochs are longer than train.epochs 2; it is 0.5 here" - --set train.epochs=2 <<JSON
{"model": {"name": "tiny"}, "data": {"source": "synthetic"}, "device": {"kind": "cpu"}}
JSON
dry 78 --dry-run --set schedule.warmup_steps=801
says "schedule.warmup_steps: a warm-up of 801 steps is longer than the run of 800 steps"

# Stages: their steps, memory and learning rates.
dry 0 --dry-run --set train.max_steps=0 --set train.epochs=4 --set schedule.lr_scaling=linear \
    --set schedule.lr_base_size=12 --set 'train.stages=[{"epoch":1,"image_size":24,"batch":24}]'
shows "20 steps in all"
shows "^stage epochs 1 to 1: 32 x 32, batch 12, 8 steps per epoch$"
shows "^stage epochs 2 to 4: 24 x 24, batch 24, 4 steps per epoch, learning rate times 2, .* per rank$"
shows "step  *8  epoch  *1.000  0.04  (stage)"

# A detector has a plan, though these data have no boxes.
detector="--set model.name=retinanet_resnet18_fpn --set model.fpn_channels=32"
dry 78 --dry-run=plan $detector
shows " focal_loss.4 "
shows " top_detections  *detections4 "
never_says "batch norm"
dry 78 --dry-run $detector --set train.micro_batch_size=2
says "warning: batch norm takes its statistics from 2 image"
dry 78 --dry-run $detector --set train.micro_batch_size=2 --set model.frozen_norm=true
never_says "batch norm"

# What to do if the memory is too little: a million images at once fit nowhere.
dry 0 --dry-run --set data.source=synthetic --set data.train= --set data.val= --set data.val_resize=0 \
    --set data.synthetic_train=1048576 --set model.num_classes=10 --set train.max_steps=1 \
    --set train.global_batch_size=1048576 --set model.image_size=224
grep -E "the plan takes [0-9.]+ TB of .*; train.micro_batch_size=[0-9]+ would fit with .*: the same global batch in [0-9]+ parts" \
    "$work/log" || fail "no advice: $(cat "$work/log")"
