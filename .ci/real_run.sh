#!/usr/bin/env bash
# A short real run of the release build: ResNet-20 on CIFAR-10 JPEG shards with two ranks must beat a
# stated accuracy.
# Without the shards (they are not part of the repository) the quick start takes its place.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/mpi_env.sh
. scripts/mpi_env.sh

shards=${DTRAIN_CIFAR10:-../shared/data/cifar10}
if [ ! -d "$shards" ]; then
    echo "real run: NO CIFAR-10 SHARDS in $shards (DTRAIN_CIFAR10), the quick start has to do"
    exec scripts/quickstart.sh
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
build/dtrain --ranks 2 --config configs/cifar10_resnet20.json --out "$out" \
    --set data.train="$shards/cifar10-train-{0000..0009}.tar" \
    --set data.val="$shards/cifar10-test-{0000..0001}.tar" \
    --set train.epochs=1 --set schedule.warmup_epochs=0.2 --set device.threads=1 \
    --set device.kind=cpu
python3 - "$out/metrics.jsonl" 45 <<'PY'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
top1 = [e["top1"] for e in events if e["event"] == "eval"][-1]
images = [e["images"] for e in events if e["event"] == "eval"][-1]
print(f"real run: top-1 {top1:.2f} % of {images} images after one epoch, {sys.argv[2]} % wanted")
assert images == 10000
sys.exit(0 if top1 > float(sys.argv[2]) else 1)
PY
