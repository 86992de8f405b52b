#!/usr/bin/env bash
# From a fresh machine to a trained network: installs, builds, generates labelled JPEG files, packs them
# into shards and trains on them with two MPI ranks. Ends with the accuracy on the validation set.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/mpi_env.sh
. scripts/mpi_env.sh
scripts/setup.sh build

data=data/quickstart
if [ ! -e $data/val/_info.json ]; then
    echo "quickstart: generating JPEG files"
    build/dtrain shapes $data/jpeg-train --per-class 1000 --size 32 --seed 1
    build/dtrain shapes $data/jpeg-val --per-class 200 --size 32 --seed 2
    build/dtrain shard $data/jpeg-train $data/train --prefix train --per-shard 2500 --seed 1
    build/dtrain shard $data/jpeg-val $data/val --prefix val --per-shard 1000 --seed 1
fi

echo "quickstart: training on 2 ranks"
out=runs/quickstart
rm -rf $out
$MPIRUN -np 2 build/dtrain --config configs/quickstart.json --out $out --set device.threads=1
echo "quickstart: curves in $out/metrics.jsonl, weights in $out/checkpoints"
