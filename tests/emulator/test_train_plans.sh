#!/bin/bash
# Training on the emulated GPU in different ways with the same numbers: algorithms measured and given, plans
# of frozen layers, batch norm, recorded or not.
. "$(dirname "$0")/train_common.sh"

train 1 cpu --set device.kind=cpu

# Algorithms are measured, on two ranks by rank 0 for both, or each of cuDNN's list.
train 2 measured --set device.allow_shared_gpu=true --set train.deterministic=false
losses measured cpu 1e-3
grep -q '"plan": "eng' "$work/cache/cudnn-plans.json" || fail "the choices are not kept"
for candidate in 1 2 3 4 5; do
    train 1 forced-$candidate --set device.conv_candidate=$candidate --set train.deterministic=false
    losses forced-$candidate cpu 1e-3
done

# Freezing: after two epochs a new plan and, after the warm-up, a new recording.
freeze=(--set 'optim.freeze=["conv2"]' --set optim.unfreeze_epoch=2 --set train.max_steps=12)
train 1 cpu-frozen --set device.kind=cpu "${freeze[@]}"
for ranks in 1 2; do
    train $ranks frozen-$ranks --set device.allow_shared_gpu=true "${freeze[@]}"
    says "after 2 epochs: all parameters are trained"
    losses frozen-$ranks cpu-frozen 1e-3
done
train 1 frozen-bf16 --set train.precision=bf16 "${freeze[@]}"
losses frozen-bf16 cpu-frozen 0.03
if (losses cpu-frozen cpu 1e-5) > /dev/null 2>&1; then fail "freezing changes nothing"; fi

# Batch norm amplifies rounding from step to step, so this takes few steps, at a small rate.
norm_agrees() { # seed
    local bn=(--set model.name=resnet20 --set train.max_steps=3 --set train.seed=$1
        --set schedule.lr=0.0005 --set model.image_size=8)
    train 1 cpu-bn-$1 --set device.kind=cpu "${bn[@]}"
    train 1 fp32-bn-$1 "${bn[@]}"
    losses fp32-bn-$1 cpu-bn-$1 1e-3
    echo -n "batch norm, seed $1: "
    /usr/bin/python3 "$here/../e2e/compare.py" "$(momentum_of "$work/fp32-bn-$1")" \
        "$(momentum_of "$work/cpu-bn-$1")" 1e-4 0.3
}
some_seed norm_agrees

# Recorded or not, in one pass or two, the numbers are the same.
for settings in "" "--set train.micro_batch_size=4" "--set train.precision=fp16"; do
    train 1 recorded $settings
    train 1 unrecorded $settings --set device.cuda_graph=false
    [ "$(hash_of "$work/recorded")" = "$(hash_of "$work/unrecorded")" ] ||
        fail "recording changes the weights: $settings"
    losses recorded unrecorded 0
    rm -r "$work/recorded" "$work/unrecorded"
done
