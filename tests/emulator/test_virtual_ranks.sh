#!/bin/bash
# train.virtual_ranks on emulated GPUs: the same weights, optimizer and moving averages on any number
# of ranks, with recorded steps and without, whole and resumed by another number.
. "$(dirname "$0")/train_common.sh"
virtual=(--set train.virtual_ranks=6 --set train.global_batch_size=12 --set device.allow_shared_gpu=true --set train.ema_decay=0.9)

for case in "" "--set train.precision=fp16" "--set model.name=resnet20 --set train.max_steps=5"; do
    # shellcheck disable=SC2206 # words
    settings=("${virtual[@]}" $case)
    train 1 one "${settings[@]}"
    train 3 many "${settings[@]}"
    never_says "cannot be recorded"
    [ "$(hash_of "$work/many")" = "$(hash_of "$work/one")" ] || fail "3 ranks differ: $case"
    losses many one 0
    train 3 walked "${settings[@]}" --set device.cuda_graph=false
    [ "$(hash_of "$work/walked")" = "$(hash_of "$work/one")" ] || fail "walked steps differ: $case"
    train 3 changing "${settings[@]}" --set train.max_steps=4
    train 2 changing "${settings[@]}" --resume must
    [ "$(hash_of "$work/changing")" = "$(hash_of "$work/one")" ] || fail "the resumed run differs: $case"
    rm -r "$work/one" "$work/many" "$work/walked" "$work/changing"
done
refuses 78 "set train.deterministic to true" 1 timed "${virtual[@]}" --set train.deterministic=false
refuses 78 "on GPUs has no model.sync_bn" 1 synced "${virtual[@]}" --set model.name=resnet20 --set model.image_size=32 \
    --set model.sync_bn=true
