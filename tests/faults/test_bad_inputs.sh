#!/bin/bash
# Wrong command lines, configurations and data: each causes one clear message and its exit code.
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

# json CODE TEXT 'content': the same for a configuration file.
json() {
    printf '%s' "$3" > case.json
    bad "$1" "$2" config show --config case.json
}

# key CODE TEXT key=value...: the same for overrides.
key() {
    local code=$1 text=$2 sets=()
    shift 2
    for set in "$@"; do sets+=(--set "$set"); done
    bad "$code" "$text" config show "${sets[@]}"
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
bad 64 "did you mean demo-data" shapes there
bad 64 "did you mean --config" --confg good.json
bad 64 "did you mean --max-time" train --max-tine=2h --config good.json
bad 64 "needs --config FILE"
bad 64 "needs a run folder, or --weights PATH" eval --config good.json
bad 64 "--config requires a value" --config
bad 64 "not a time" --config good.json --max-time soon
bad 64 "not a time" --config good.json --max-time -5s
bad 64 "unexpected argument" --config good.json again
bad 64 "needs SRC DST" shard only-one
bad 64 "not an integer" shard a b --per-shard 0
bad 64 "not an integer" demo-data there --size 12cm
bad 64 "did you mean show" config shwo
bad 64 "needs show|schema|help" config
bad 64 "no such option" eval --config good.json --weights x --dry-run
bad 64 "-x: dtrain train has no such option" -x
bad 64 "-config: dtrain train has no such option; did you mean --config" -config good.json
bad 64 "-s: dtrain shard has no such option" shard a b -s
bad 64 "--dry-run=1: write --dry-run or --dry-run=plan" --config good.json --dry-run=1
bad 64 "--resume: the value is empty" --config good.json --resume ""
bad 64 "--weights: the value is empty" eval --config good.json --weights ""
bad 64 "--out: the value is empty" --config good.json --out=
bad 64 "did you mean train" help trian
bad 64 "-hx: dtrain train has no such option" -hx
bad 64 "did you mean --help" -help
bad 64 "use --set train.global_batch_size=..." --batch-size 32
bad 64 "use --set train.global_batch_size=..." -b 32
bad 64 "use --set schedule.lr=..." eval --lr=0.1
bad 64 "use --set train.precision=fp16 (or bf16)" --amp
bad 64 "use --set model.initial_checkpoint=FILE" --pretrained
bad 64 "--lr: dtrain shard has no such option; see dtrain --help" shard a b --lr 1
bad 64 "did you mean train.epochs" config help train.epohs
bad 64 "did you mean train.global_batch_size" config help batch_size
bad 64 "unexpected argument of dtrain config show" config show train
bad 66 "nowhere.json" --config nowhere.json
bad 64 "--set requires a value" config show --set
bad 66 "nowhere" eval --config good.json --weights nowhere
bad 66 "nowhere" shard nowhere to

# Configuration files
json 78 "case.json:1:" ''
json 78 "case.json:1:" '{"train": {"epochs": 3}'
json 78 "case.json:2:" $'{"train": {"epochs": 3},\n "train": {"epochs": 4}}'
json 78 "case.json:1:" '{"train": {"epochs": 3}} more'
json 78 "case.json:1:" '{"train": {"epochs": 03}}'
json 78 "case.json:1:" '{"train": {"epochs": 1e999}}'
json 78 "case.json:1:" '{"train": {"epochs": NaN}}'
json 78 "case.json:1:" '[1, 2]'
json 78 "case.json:1:" '{"train": 5}'
json 78 "train.epochs" '{"train": {"epochs": "3"}}'
json 78 "train.epochs" '{"train": {"epochs": 2.5}}'
json 78 "train.epochs" '{"train": {"epochs": null}}'
json 78 "train.epochs" '{"train": {"Epochs": 3}}'
json 78 "model.name" '{"model": {"name": 50}}'
json 78 "data.mean" '{"data": {"mean": [0.5, 0.5]}}'
json 78 "schedule.milestones" '{"schedule": {"milestones": [30, "60"]}}'
json 78 "case.json:1:" $'{"output": {"dir": "a\tb"}}'
json 78 "case.json:1:" $'{"output": {"dir": "\xff"}}'
json 78 "case.json:1:" "$(printf '[%.0s' $(seq 40))"
mkdir folder.json
bad 66 "folder.json" config show --config folder.json

# Keys
key 78 "did you mean train.global_batch_size" train.global_batch_sise=8
key 78 "did you mean" trian.epochs=8
key 78 "train.epochs" train.epochs=0
key 78 "train.epochs" train.epochs=100001
key 78 "train.global_batch_size" train.global_batch_size=-4
key 78 "optim.momentum" optim.momentum=1
key 78 "schedule.lr" schedule.lr=0
key 78 "schedule.kind" schedule.kind=cosin
key 78 "train.precision" train.precision=fp8
key 78 "data.source" data.source=imagenet
key 78 "train.deterministic" train.deterministic=yes
key 78 "data.train" data.source=shards
key 78 "data.std" data.std=[0,1,1]
key 78 "train.micro_batch_size" train.global_batch_size=8 train.micro_batch_size=3
key 78 "schedule.milestones" schedule.kind=step schedule.milestones=[60,30]
key 78 "schedule.warmup_epochs" train.epochs=3 schedule.warmup_epochs=5
key 78 "train.loss_scale" train.loss_scale=1024
key 78 "train.loss_scale" train.loss_scale=1024 train.precision=bf16
key 78 "train.loss_scale" train.loss_scale=33554432 train.precision=fp16
key 78 "comm.backend" device.kind=cpu comm.backend=nccl
key 78 "--set" train.epochs
key 78 "did you mean \"resnet50\"" model.name=resnet5O
key 78 "model.name: there is no model \"mobilenet_v2\"; the models are" model.name=mobilenet_v2 train.epochs=0
key 78 "use train.precision=fp16 (or bf16)" amp=true

# Only a run can detect these
run 78 "too small" model.name=alexnet
run 78 "train.precision" train.precision=bf16
run 78 "train.precision" train.precision=fp16 train.loss_scale=128
if has_cuda; then
    export CUDA_VISIBLE_DEVICES= # hides any GPU
    run 69 "device.kind: cuda is not possible: " device.kind=cuda
    run 78 "comm.backend: nccl sums in GPU memory" device.kind=auto comm.backend=nccl
    run 78 "(the GPU is not used: " device.kind=auto train.precision=bf16
    bad 69 "device.kind: cuda is not possible: " doctor --set device.kind=cuda
else
    run 69 "no CUDA backend" device.kind=cuda
    run 69 "no NCCL backend" device.kind=auto comm.backend=nccl
    bad 69 "no CUDA backend" doctor --set device.kind=cuda
fi
run 78 "more than the 30 training images" train.global_batch_size=31
run 78 "2 weights for 10 classes; list one per class" "train.class_weights=[1, 2]"
run 78 "no training image is of class 12" train.class_weights=balanced data.source=synthetic data.train= data.val= \
    data.synthetic_train=12 model.num_classes=13
run 81 "steps in a row were skipped" schedule.lr=1000 train.max_steps=100 optim.momentum=0.99
run 66 "nowhere" model.initial_checkpoint=nowhere.safetensors
touch file
bad 73 "file" --config good.json --out file/run
run 71 "train.micro_batch_size" data.train= data.val= data.synthetic_train=65536 \
    data.source=synthetic \
    train.global_batch_size=65536 model.image_size=256 model.name=vgg16 data.val_resize=0
bad 83 "no complete checkpoint" --config good.json --out run2 --resume must
bad 83 "nowhere" --config good.json --out run2 --resume nowhere

# Data
run 66 "nowhere" data.train=nowhere
run 66 "nowhere-0001.tar" data.source=shards "data.train=nowhere-{0000..0001}.tar"
mkdir empty
run 65 "empty" data.train=empty
mkdir -p flat
cp train/circle/*.jpg flat/
run 65 "flat holds 3 images, but no class folders: move" data.train=flat
run 78 "num_classes" model.num_classes=5
"$dtrain" shard train shards --prefix s --per-shard 15
shard=$(ls shards/*.tar | head -1)
run 65 "shards holds shards, not class folders: set data.source=shards" data.train=shards
run 66 "train holds no .tar files; for class folders set data.source=folder" data.source=shards \
    data.train=train
cp -r train loop
ln -s .. loop/ring/up
run 65 "loop/ring/up leads back to loop," data.train=loop
run 78 "data.val is given too" data.val_fraction=0.1
run 78 "more than the 20 training images" data.max_train=20 train.global_batch_size=24
table() { # code text 'lines'
    printf "$3" > table.csv
    run "$1" "$2" data.source=csv data.train=table.csv
}
table 65 'table.csv:1: no column "label"' 'path,class\n'
table 65 "table.csv:3: 1 column(s), but the first line names 2" 'path,label\nflat/00000.jpg,1\n1\n'
table 65 "table.csv:2: label 10 is out of range" 'path,label\nflat/00000.jpg,10\n'
table 66 "1 of 2 images in table.csv are missing, the first in line 3: flat/1.jpg" \
    'path,label\nflat/00000.jpg,1\nflat/1.jpg,1\n'
run 66 "nowhere.csv" data.source=csv data.train=nowhere.csv
run 66 "train is not a regular file" data.source=csv data.train=train
run_shards() { # code text
    rm -rf run
    bad "$1" "$2" --config good.json --out run --set data.source=shards --set data.train="$shard" \
        --set data.val="$shard"
}
run 65 "label 0" data.source=shards data.train=shards data.val=shards data.label_offset=1
mv shards/_info.json info.json
cp "$shard" whole
head -c 5000 whole > "$shard"
run_shards 65 "$(basename "$shard")"
: > "$shard"
run_shards 65 "$(basename "$shard")"
head -c 20000 /dev/urandom > "$shard"
run_shards 65 "$(basename "$shard")"
gzip -c whole > "$shard"
run_shards 65 "$(basename "$shard")"
mkdir t
pack() { (cd t && tar -cf "../$shard" --format=ustar -- *); }
cp train/circle/00000.jpg t/a.jpg
pack
run_shards 65 "a" # no label
echo seven > t/a.cls
pack
run_shards 65 "a"
echo 77 > t/a.cls
pack
run_shards 65 "77"
echo -1 > t/a.cls
pack
run_shards 65 "-1"

# Bad images: more than data.max_bad_fraction ends the run and names one.
for damage in cut text empty png; do
    rm -rf broken
    cp -r train broken
    for file in broken/*/0000[01].jpg; do
        case $damage in
        cut) truncate -s 400 "$file" ;;
        text) echo "<html>not found</html>" > "$file" ;;
        empty) : > "$file" ;;
        png) printf '\x89PNG\r\n\x1a\n0000000000' > "$file" ;;
        esac
    done
    run 65 "broken/" data.train=broken
    grep -qF "data.max_bad_fraction allows at most 0.1 % of 30 images (0)" err ||
        fail "the limit is not named: $(cat err)"
done

# Help
for words in "help" "help train" "train help" "train --help" "demo-data help" "--help" "-h" "eval -h"; do
    "$dtrain" $words > out 2> err || fail "$words: $(cat err)"
    grep -q "usage:" out || fail "$words: no help"
done

# Weights
printf 'x' > short.safetensors
run 65 "short.safetensors" model.initial_checkpoint=short.safetensors
head -c 4096 /dev/urandom > noise.safetensors
run 65 "noise.safetensors" model.initial_checkpoint=noise.safetensors

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
class_list 65 "list:2: an empty line" 'circle\n\nring\n'
class_list 65 "list is not a list of class names" ''
class_list 65 "holds none of the 2 classes, which begin with ant" 'ant\nbee\n'
class_list 65 "data.class_map lists 1 class(es) that" 'ring\nstarr\n'
class_list 65 "train holds one class only" 'ring\n'
class_list 78 "has 2 classes (the last is star), but model.num_classes is 3" 'ring\nstar\n' model.num_classes=3
refused 66 "nowhere" data.class_map=nowhere
cp -r val other
mv other/ring other/donut
refused 65 "other holds 1 class(es) that the model is not trained for: donut" data.val=other
refused 78 "model.num_classes: 1 class leaves nothing to learn" model.num_classes=1
refused 78 "auc" 'eval.metrics=["loss", "auc"]'
refused 78 "sensitivity" early_stop.metric=sensitivity early_stop.patience=3
refused 78 "top2" 'eval.metrics=["top2"]'
refused 78 "0.75 is in per cent; did you mean 75?" early_stop.target=0.75
refused 78 "train.restore_best: no validation data" train.restore_best=true data.val=
refused 78 "early_stop.patience: no validation data" early_stop.patience=2 data.val=
refused 78 "train.class_weights" 'train.class_weights=[1, 2, 3]'
refused 78 "train.class_weights" train.class_weights=balance
refused 78 "train.class_weights" 'train.class_weights=[1, 0]'
refused 78 "train.batch_size_per_rank" train.batch_size_per_rank=4
refused 78 "optim.freeze" 'optim.freeze=["layer9"]'
refused 78 "optim.freeze" 'optim.freeze=["conv1", "bn1", "conv2", "bn2", "conv3", "bn3", "fc"]'
refused 78 "optim.freeze" optim.freeze=conv1
weights_file() { # code text name 'first bytes'
    printf "$4" > "$3"
    refused "$1" "$2" model.initial_checkpoint="$3"
}
weights_file 65 "scripts/to_safetensors.py w.pth w.safetensors" w.pth '\x80\2}q\1.0123456789'
weights_file 65 "w.h5 is an HDF5 file" w.h5 '\x89HDF\r\n\x1a\n'
weights_file 65 "w.onnx is a model in ONNX" w.onnx '\b\7\x12\7pytorch'
weights_file 65 "w.safetensors is a pointer of git-lfs" w.safetensors 'version https://git-lfs.github.com/spec/v1'
weights_file 65 "w.bin is a web page" w.bin '<!doctype html><html>'
bad 64 "must end in .csv or .svg" eval --config good.json --weights w.pth --confusion matrix.png
bad 64 "dtrain predict needs" predict
bad 66 "nowhere" predict nowhere train/ring/00000.jpg

echo "$n_cases cases, $n_failed failed"
[ "$n_failed" = 0 ]
