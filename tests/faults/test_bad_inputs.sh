#!/bin/bash
# Wrong command lines, configurations and data: each causes one clear message and its exit code. Here
# is what needs the whole program, and each code; single mistakes are rows of unit/cli_commands,
# fuzz/config, fuzz/tar_index, unit/data_csv, unit/data_dataset and their neighbours.
. "$(dirname "$0")/../e2e/common.sh"
cd "$work"
n_cases=0
n_failed=0

# bad CODE TEXT arguments...: dtrain must end with CODE and one error line that contains TEXT.
bad() {
    local code=$1 text=$2 got=0
    shift 2
    "$dtrain" "$@" > out 2> err < /dev/null || got=$?
    n_cases=$((n_cases + 1))
    if [ "$got" != "$code" ] || [ "$(grep -c 'dtrain: error\[' err)" != 1 ] ||
        ! grep -qF -- "$text" err; then
        n_failed=$((n_failed + 1))
        echo "--- wanted $code \"$text\", got $got: dtrain $*" >&2
        cat err >&2
    fi
}

# run CODE TEXT key=value...: the same for a training run on good data.
run() {
    local code=$1 text=$2 sets=()
    shift 2
    for set in "$@"; do sets+=(--set "$set"); done
    rm -rf run
    bad "$code" "$text" --config good.json --out run "${sets[@]}"
}

shapes train 3 1
shapes val 1 2
small_config > good.json

# Command lines
bad 64 "did you mean train" trian
bad 64 "did you mean show" config shwo
bad 64 "did you mean train.global_batch_size" config help batch_size
bad 64 "unexpected argument of dtrain config show" config show train
bad 64 "--dry-run=1: write --dry-run or --dry-run=plan" --config good.json --dry-run=1
bad 64 "must end in .csv or .svg" eval --config good.json --weights w.pth --confusion matrix.png
bad 66 "nowhere" eval --config good.json --weights nowhere
bad 66 "nowhere" shard nowhere to
bad 66 "nowhere" predict nowhere train/ring/00000.jpg
for words in "help train" "--help"; do
    "$dtrain" $words > out 2> err || fail "$words: $(cat err)"
    grep -q "usage:" out || fail "$words: no help"
done

# Configurations
bad 66 "nowhere.json" --config nowhere.json
echo '{"train": {"epochs": 0}}' > case.json
bad 78 "case.json:1:22: train.epochs: expected" config show --config case.json
bad 78 "--set: train.epochs: expected" config show --set train.epochs=0

# Only a run can detect these
run 78 "too small" model.name=alexnet
run 78 "train.precision" train.precision=fp16
run 78 "train.precision" train.precision=fp16 train.loss_scale=128
run 78 "MPI's own sums, comm.algorithm library, send no 16 bits" comm.grad_dtype=bf16 comm.algorithm=library \
    train.deterministic=false
if has_cuda; then
    export CUDA_VISIBLE_DEVICES= # hides any GPU
    run 69 "device.kind: cuda is not possible: " device.kind=cuda
    run 78 "comm.backend: nccl sums in GPU memory" device.kind=auto comm.backend=nccl
    run 78 "(the GPU is not used: " device.kind=auto train.precision=fp16
    bad 69 "device.kind: cuda is not possible: " doctor --set device.kind=cuda
else
    run 69 "no CUDA backend" device.kind=cuda
    run 69 "no NCCL backend" device.kind=auto comm.backend=nccl
    bad 69 "no CUDA backend" doctor --set device.kind=cuda
fi
run 78 "more than the 30 training images" train.global_batch_size=31
run 78 "more than the 20 training images" data.max_train=20 train.global_batch_size=24
run 78 "no training image is of class 12" train.class_weights=balanced data.source=synthetic data.train= data.val= \
    data.synthetic_train=12 model.num_classes=13
run 81 "steps in a row were skipped" schedule.lr=1000 train.max_steps=100 optim.momentum=0.99
touch file
bad 73 "file" --config good.json --out file/run
run 71 "train.micro_batch_size" data.train= data.val= data.synthetic_train=65536 \
    data.source=synthetic \
    train.global_batch_size=65536 model.image_size=256 model.name=vgg16 data.val_resize=0
bad 83 "no complete checkpoint" --config good.json --out run2 --resume must
bad 83 "nowhere" --config good.json --out run2 --resume nowhere

# Data
run 66 "nowhere" data.train=nowhere
run 78 "num_classes" model.num_classes=5
cp -r train loop
ln -s .. loop/ring/up
run 65 "loop/ring/up leads back to loop," data.train=loop
printf 'path,label\n%s,10\n' "$work/train/ring/00000.jpg" > table.csv
run 65 "table.csv:2: label 10 is out of range" data.source=csv data.train=table.csv
run 66 "nowhere.csv" data.source=csv data.train=nowhere.csv
run 66 "train is not a regular file" data.source=csv data.train=train
"$dtrain" shard train shards --prefix s --per-shard 15
run 65 "label 0" data.source=shards data.train=shards data.val=shards data.label_offset=1
rm shards/_info.json
shard=$(ls shards/*.tar | head -1)
truncate -s 5000 "$shard"
run 65 "$(basename "$shard")" data.source=shards data.train="$shard" data.val="$shard"

# Bad images: more than data.max_bad_fraction ends the run and names one.
cp -r train broken
truncate -s 400 broken/*/0000[01].jpg
run 65 "broken/" data.train=broken
grep -qF "data.max_bad_fraction allows at most 0.1 % of 30 images (0)" err ||
    fail "the limit is not named: $(cat err)"

# Classes, metrics, weights, frozen modules: nothing is trained, and nothing saved.
refused() { # code text key=value...
    run "$@"
    if [ -e run/config.json ] || [ -e run/checkpoints ]; then
        n_failed=$((n_failed + 1))
        echo "--- $* left $(ls run)" >&2
    fi
}
class_list() { # code text 'lines' key=value...
    printf "$3" > list
    refused "$1" "$2" data.class_map=list model.num_classes=0 "${@:4}"
}
class_list 65 "list lists class ring twice" 'ring\nring\n'
class_list 65 "list is not a list of class names" ''
class_list 65 "data.class_map lists 1 class(es) that" 'ring\nstarr\n'
class_list 65 "train holds one class only" 'ring\n'
refused 66 "nowhere" data.class_map=nowhere
cp -r val other
mv other/ring other/donut
refused 65 "other holds 1 class(es) that the model is not trained for: donut" data.val=other
refused 78 "auc" 'eval.metrics=["loss", "auc"]'
refused 78 "sensitivity" early_stop.metric=sensitivity early_stop.patience=3
refused 78 "2 weights for 10 classes; list one per class" "train.class_weights=[1, 2]"
refused 78 "optim.freeze" 'optim.freeze=["layer9"]'
refused 78 "optim.freeze" 'optim.freeze=["conv1", "bn1", "conv2", "bn2", "conv3", "bn3", "fc"]'
refused 66 "nowhere" model.initial_checkpoint=nowhere.safetensors
printf '\x80\2}q\1.0123456789' > w.pth
refused 65 "scripts/to_safetensors.py w.pth w.safetensors" model.initial_checkpoint=w.pth

echo "$n_cases cases, $n_failed failed"
[ "$n_failed" = 0 ]
