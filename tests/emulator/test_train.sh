#!/bin/bash
# Training on the emulated GPU in every precision: mixed and weighted images, stages, timelines.
. "$(dirname "$0")/train_common.sh"

# Precisions, against the CPU.
train 1 cpu --set device.kind=cpu
for precision in fp32 tf32 bf16 fp16; do
    train 1 $precision --set train.precision=$precision
    says "cuda:0 emulated H200"
    says "8 images per GPU and micro-batch keep it waiting more than computing"
done
losses fp32 cpu 1e-3
# The logits on the host, also of mirrored images.
for device in cuda cpu; do
    ends 0 "" "$dtrain" eval "$work/fp32" --set device.kind=$device --set eval.tta=flip \
        --predictions "$work/$device.csv"
done
/usr/bin/python3 - "$work/cuda.csv" "$work/cpu.csv" <<'PY' || fail "predictions differ"
import csv, sys
a, b = ([[float(x) for x in row[3:]] for row in list(csv.reader(open(p)))[1:]] for p in sys.argv[1:])
assert len(a) == len(b) == 8
assert all(abs(x - y) < 1e-4 for r, s in zip(a, b) for x, y in zip(r, s)), (a, b)
PY
mix=(--set data.mixup=0.2 --set data.cutmix=1 --set data.random_erasing=0.5)
train 1 cpu-mixed --set device.kind=cpu "${mix[@]}"
train 1 fp16-mixed --set train.precision=fp16 "${mix[@]}"
losses fp16-mixed cpu-mixed 0.01
if (losses cpu-mixed cpu 1e-3) > /dev/null 2>&1; then fail "mixing changes nothing"; fi
# The sum of a batch's weights differs from step to step, also in a recorded one.
weights=(--set "train.class_weights=[5, 0.2, 1, 1, 1, 1, 1, 1, 1, 0.1]" --set train.label_smoothing=0.1)
train 1 cpu-weights --set device.kind=cpu "${weights[@]}"
train 1 fp32-weights "${weights[@]}"
losses fp32-weights cpu-weights 1e-3
losses tf32 cpu 0.01
losses fp16 cpu 0.01
losses bf16 cpu 0.03
for precision in fp32 tf32 bf16 fp16; do losses $precision; done

# Stages: each with a new plan, a new recording and other pinned memory, on two ranks and resumed.
stages=(--set 'train.stages=[{"epoch":1,"image_size":12},{"epoch":3,"image_size":20,"batch":12}]'
    --set train.max_steps=13)
train 1 cpu-stages --set device.kind=cpu "${stages[@]}"
train 1 stages-1 "${stages[@]}"
train 2 stages-2 --set device.allow_shared_gpu=true "${stages[@]}"
says "after 3 epochs: images of 20 x 20, batch 12 = 2 ranks x 6 images"
for ranks in 1 2; do losses stages-$ranks cpu-stages 1e-3; done
train 1 stages-parts "${stages[@]}" --set train.max_steps=8
train 1 stages-parts "${stages[@]}"
[ "$(hash_of "$work/stages-1")" = "$(hash_of "$work/stages-parts")" ] || fail "resumed in a stage"

for precision in bf16 fp16; do
    grep '"event": *"step"' "$work/$precision/metrics.jsonl" | tail -1 > "$work/$precision-step"
done
grep -q '"loss_scale":65536,"skipped_steps":0}' "$work/fp16-step" ||
    fail "no loss scale in the step event: $(cat "$work/fp16-step")"
! grep -q "loss_scale\|comm_s" "$work/bf16-step" || fail "$(cat "$work/bf16-step")"

# A traced step is not replayed, and computes the same.
train 1 traced --trace 5-6
[ "$(hash_of "$work/traced")" = "$(hash_of "$work/fp32")" ] || fail "tracing changes the weights"
train 2 traced-2 --set device.allow_shared_gpu=true --set train.micro_batch_size=2 --trace 4-8
/usr/bin/python3 - "$here/../e2e" "$work/traced/trace.json.gz" "$work/traced-2/trace.json.gz" <<'PY' ||
import sys
sys.path.insert(0, sys.argv[1])
import trace_file
for path, ranks, steps, passes in zip(sys.argv[2:], (1, 2), (2, 5), (2, 11)): # one evaluates
    header, processes = trace_file.load(path)
    assert len(processes) == ranks, processes.keys()
    for lanes in processes.values():
        names = [name for _, _, name, _ in lanes["compute"]]
        assert names.count("settle") == steps and names.count("ingest") == passes, names
        sums = [spans for lane, spans in lanes.items() if lane.startswith("reduction")]
        assert bool(sums) == (ranks == 2) and all(len(spans) == steps for spans in sums), sums
    share = header.get("comm_overlap_share")
    assert (share is None) == (ranks == 1), share
    assert share is None or abs(float(share) - trace_file.overlap(processes.values())) < 1e-3, share
PY
    fail "timeline"
train 1 passes --set train.micro_batch_size=4
losses passes fp32 1e-4
