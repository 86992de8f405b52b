#!/usr/bin/env bash
# From a fresh machine to a trained network: installs, builds, generates labelled JPEG files, packs
# them into shards, trains on them with two ranks and prints the accuracy on the validation set.
# Where dtrain is installed, its copy of this script does the rest, in the current folder. Arguments go
# to CMake: -DDTRAIN_CUDA=OFF builds without kernels for GPUs.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=scripts/mpi_env.sh
. "$root/scripts/mpi_env.sh"
case $root in */share/dtrain) ;; *) cd "$root" ;; esac
gpus=() # the first build is for those that are there
[[ -e build/CMakeCache.txt || $(nvidia-smi -L 2>/dev/null) != GPU* ]] || gpus=(-DCMAKE_CUDA_ARCHITECTURES=native)
[ ! -e "$root/scripts/setup.sh" ] || scripts/setup.sh build release ${gpus[@]+"${gpus[@]}"} "$@"

data=data/quickstart
if [ ! -e $data/val/_info.json ]; then
    rm -rf $data
    echo "quickstart: generating JPEG files"
    "$DTRAIN" demo-data $data/jpeg-train --images-per-class 1000 --size 32 --seed 1
    "$DTRAIN" demo-data $data/jpeg-val --images-per-class 200 --size 32 --seed 2
    "$DTRAIN" shard $data/jpeg-train $data/train --prefix train --per-shard 2500 --seed 1
    "$DTRAIN" shard $data/jpeg-val $data/val --prefix val --per-shard 1000 --seed 1
fi

echo "quickstart: training on 2 ranks, $SECONDS s after the start"
out=runs/quickstart
rm -rf $out
"$DTRAIN" --ranks 2 --config quickstart --out $out --set device.threads=1 \
    --set device.kind=cpu

# The last evaluation: {"event":"eval", ..., "top1":97.15, ...}
top1=$(sed -n 's/.*"event":"eval".*"top1":\([0-9.]*\).*/\1/p' $out/metrics.jsonl | tail -n 1)
LC_ALL=C awk -v top1="$top1" 'BEGIN {
    printf "quickstart: top-1 %.2f %% on the validation set (expected: above 90 %%)\n", top1
    exit !(top1 > 90)
}'
"$DTRAIN" report $out -o $out/report.html
echo "quickstart: curves in $out/report.html, weights in $out/model.safetensors"
