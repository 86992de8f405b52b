#!/bin/bash
# What a CPU with AMX is for, in ten minutes; AMX is rare, so this says all that one visit should:
#
#     tests/perf/amx_check.sh BUILD/dtrain FOLDER
#
# The op tables with channels innermost and in blocks (if BUILD has the tests), one hash of two
# deterministic runs, then for each network images/s in fp32 and in bf16, and in FOLDER the profile of
# each with the name of every convolution's code. Run it on a quiet machine.
set -euo pipefail
program=$(realpath "$1") folder=$2
mkdir -p "$folder"
grep -q amx_bf16 /proc/cpuinfo || echo "amx_check: this CPU has no AMX; what follows is of its other instructions"

train() {
    "$program" "$@" --set model.num_classes=1000 --set data.source=synthetic --set data.synthetic_train=320 \
        --set data.synthetic_val=32 --set train.global_batch_size=16 --set device.kind=cpu
}

for table in nhwc bf16; do
    test=$(dirname "$program")/tests/ops_cpu_ops_$table
    if [ -x "$test" ]; then "$test" 2>&1 | grep -E '^FAIL|^cpu '; fi
done

for run in 1 2; do
    train --set model.name=resnet18 --set model.image_size=64 --set train.precision=bf16 --set train.deterministic=true \
        --set train.max_steps=5 --set train.epochs=1 --out "$folder/run$run" 2>&1 | grep -o 'XXH128 .*'
done | sort | uniq -c | sed 's/^ *2 /the same bits twice: /; t; s/^/DIFFERENT BITS: /'

for network in resnet50 resnet18 mobilenet_v2 resnext50_32x4d convnext_tiny; do
    for precision in fp32 bf16; do
        profile=$folder/$network-$precision.txt
        train bench --profile --set model.name=$network --set model.image_size=224 --set train.precision=$precision \
            --set bench.warmup_steps=1 --set bench.rounds=3 --set bench.steps_per_round=2 >"$profile" 2>&1
        echo "$network $precision: $(sed -n 's/^Total img.sec[^:]*: //p' "$profile") images/s"
    done
done
