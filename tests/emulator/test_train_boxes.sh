#!/bin/bash
# A detector on the emulated GPU, whose gradients are divided by what the ranks count in a step, also in a recorded one.
. "$(dirname "$0")/train_common.sh"

detector=(--set model.name=retinanet_resnet18_fpn --set model.image_size=32 --set model.fpn_channels=8
    --set model.anchor_base=8 --set model.frozen_norm=true --set train.loss_normalizer=global
    --set train.box_loss=smooth_l1 --set train.global_batch_size=2 --set train.max_steps=5
    --set model.trainable_layers=1)
train 1 cpu-detector --set device.kind=cpu "${detector[@]}"
train 1 fp16-detector --set train.precision=fp16 "${detector[@]}"
train 2 fp32-detector --set device.allow_shared_gpu=true "${detector[@]}"
losses fp16-detector cpu-detector 0.01
losses fp32-detector cpu-detector 1e-3
for device in cuda cpu; do
    ends 0 "" "$dtrain" eval "$work/fp32-detector" --set device.kind=$device \
        --set eval.score_threshold=0.001 --predictions "$work/$device.json"
done
/usr/bin/python3 - "$work/cuda.json" "$work/cpu.json" <<'PY' || fail "detections differ"
import json, sys
a, b = ([next(d for d in json.load(open(p)) if d["image_id"] == i) for i in range(8)] for p in sys.argv[1:])
assert all(abs(x["score"] - y["score"]) < 1e-4 for x, y in zip(a, b)), (a, b)
PY
