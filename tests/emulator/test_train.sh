#!/bin/bash
# Training on the emulated GPU in every precision, recorded and not, on one and two ranks, stopped
# and resumed; and settings that are refused.
. "$(dirname "$0")/../e2e/common.sh"
here=$(cd "$(dirname "$0")" && pwd)
export DTRAIN_EMULATED_GPUS=1
cat > "$work/config.json" <<JSON
{
  "model": {"name": "tiny", "num_classes": 10, "image_size": 16},
  "data": {"source": "synthetic", "synthetic_train": 24, "synthetic_val": 8, "workers": 1, "augment": "none"},
  "train": {"epochs": 100, "max_steps": 8, "global_batch_size": 8,
            "precision": "fp32", "deterministic": true},
  "eval": {"every_epochs": 0, "batch_size_per_rank": 8},
  "schedule": {"kind": "constant", "lr": 0.05, "lr_scaling": "none", "warmup_epochs": 0},
  "device": {"kind": "cuda", "threads": 1, "cache_dir": "$work/cache"},
  "output": {"log_every": 1, "log_every_s": 0},
  "checkpoint": {"every_epochs": 0}
}
JSON
refuses() { # exit code, text, ranks, folder, settings...
    ends "$1" "$2" on_ranks "$3" "$dtrain" --config "$work/config.json" --out "$work/$4" "${@:5}"
}
losses() {
    echo -n "$*: "
    (cd "$work" && /usr/bin/python3 "$here/losses.py" "$@") || fail "losses of $*"
}

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

# The same with algorithms that are measured, on two ranks by rank 0 for both, and with each of
# cuDNN's list.
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

# Stages: each with a new plan, a new recording and other pinned memory, on two ranks and resumed.
stages=(--set 'train.stages=[{"epoch":1,"image_size":12},{"epoch":3,"image_size":20,"batch":12}]'
    --set train.max_steps=13)
train 1 cpu-stages --set device.kind=cpu "${stages[@]}"
train 1 stages-1 "${stages[@]}"
train 2 stages-2 --set device.allow_shared_gpu=true "${stages[@]}"
says "after 3 epochs: images of 20 x 20, batch 12 = 2 ranks x 1 micro-batch x 6 images"
for ranks in 1 2; do losses stages-$ranks cpu-stages 1e-3; done
train 1 stages-parts "${stages[@]}" --set train.max_steps=8
train 1 stages-parts "${stages[@]}"
[ "$(hash_of "$work/stages-1")" = "$(hash_of "$work/stages-parts")" ] || fail "resumed in a stage"

# A detector, whose gradients are divided by what the ranks count in a step, also in a recorded one.
detector=(--set model.name=retinanet_resnet18_fpn --set model.image_size=32 --set model.fpn_channels=8
    --set model.anchor_base=8 --set model.frozen_norm=true --set train.loss_normalizer=global
    --set train.box_loss=smooth_l1 --set train.global_batch_size=2 --set train.max_steps=5)
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
for precision in bf16 fp16; do
    grep '"event": *"step"' "$work/$precision/metrics.jsonl" | tail -1 > "$work/$precision-step"
done
grep -q '"loss_scale":65536,"skipped_steps":0}' "$work/fp16-step" ||
    fail "no loss scale in the step event: $(cat "$work/fp16-step")"
! grep -q "loss_scale\|comm_s" "$work/bf16-step" || fail "$(cat "$work/bf16-step")"

# Recorded or not, in one pass or two, the numbers are the same.
for settings in "" "--set train.micro_batch_size=4" "--set train.precision=fp16"; do
    train 1 recorded $settings
    train 1 unrecorded $settings --set device.cuda_graph=false
    [ "$(hash_of "$work/recorded")" = "$(hash_of "$work/unrecorded")" ] ||
        fail "recording changes the weights: $settings"
    losses recorded unrecorded 0
    rm -r "$work/recorded" "$work/unrecorded"
done
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
bench=("$dtrain" bench --config "$work/config.json" --json "$work/bench.json" --set bench.rounds=1)
ends 0 "" "${bench[@]}" --set bench.steps_per_round=2
grep -q '"recorded": true' "$work/bench.json" || fail "not recorded: $(cat "$work/bench.json")"
! grep -q compute_s "$work/bench.json" || fail "the host's clock is no time of the device"
ends 0 "" "$dtrain" --config "$work/config.json" --dry-run
grep -q "^  input  *[0-9.]* MB$" "$work/out" || fail "no blocks for input: $(cat "$work/out")"
ends 0 "" "${bench[@]}" --set bench.steps_per_round=2 --profile
grep -q "^conv2  *conv_bwd_weights  *[0-9]" "$work/out" || fail "no table: $(cat "$work/out")"
# What a deterministic run takes is not measured, what another one takes is.
grep -q "^conv2  *conv_bwd_weights  *-  *-  eng[0-9_k=]*$" "$work/out" || fail "$(cat "$work/out")"
/usr/bin/python3 - "$work/bench.json" <<'PY'
import json, sys
result = json.load(open(sys.argv[1]))
assert result["backend"] == "cuda" and result["precision"] == "fp32", result
assert not result["recorded"] and result["compute_s"] > 0, result
nodes = {(node["name"], node["op"]): node for node in result["nodes"]}
assert all(node["ms"] > 0 and node["mb"] > 0 for node in nodes.values()), nodes
ms = sum(node["ms"] for node in nodes.values())
assert ms <= 1e3 * result["compute_s"] * 1.001, (ms, result)
choices = {(choice["name"], choice["op"]): choice for choice in result["choices"]}
assert choices.keys() == {key for key in nodes if key[1].startswith("conv")}, choices
assert all(choice["ms"] is None and not choice["runner_up"] for choice in choices.values()), choices
# The logits of 8 images and 10 classes, padded to 16, their gradient, and the labels.
assert nodes["softmax_xent", "softmax_xent"]["mb"] < 0.005, nodes
PY
ends 0 "" "${bench[@]}" --set bench.steps_per_round=2 --set train.deterministic=false --profile
grep -Eq "^conv2 +conv_bwd_weights +[0-9.]+ +[0-9.]+  eng[0-9_k=]+, eng[0-9_k=]+$" "$work/out" ||
    fail "$(cat "$work/out")"
# What nodes together gain: measured, or counted without running.
groups=(--set model.name=resnet20 --set train.precision=fp16)
ends 0 "" "${bench[@]}" "${groups[@]}" --set train.deterministic=false --set bench.steps_per_round=1 --profile
grep -Eq "^layer2.0.bn2 +bn_pair +[0-9.]+ +[0-9.]+  (apart, together|together, apart)$" \
    "$work/out" || fail "$(cat "$work/out")"
for fusion in on off; do
    ends 0 "" "$dtrain" --config "$work/config.json" "${groups[@]}" --set device.fusion=$fusion --dry-run=plan
    mv "$work/out" "$work/plan-$fusion"
done
/usr/bin/python3 - "$work" <<'PY'
import json, sys
choices = json.load(open(sys.argv[1] + "/bench.json"))["choices"]
ways = {(choice["name"], choice["op"]): choice for choice in choices}
pair = ways["layer2.0.bn2", "bn_pair"]
assert {pair["algorithm"], pair["runner_up"]} == {"apart", "together"}, pair
assert 0 < pair["ms"] <= pair["runner_up_ms"], pair
def mb(fusion, ops):
    rows = [line.split() for line in open(sys.argv[1] + "/plan-" + fusion)]
    return sum(float(row[5]) for row in rows if len(row) > 6 and row[1] in ops)
assert mb("on", ["conv"]) < mb("off", ["conv"]), "bn computes convolutions"
assert 0 < mb("on", ["bn_bwd", "conv_bwd_data"]) < mb("off", ["bn_bwd", "conv_bwd_data"])
PY
DTRAIN_EMULATED_MEMORY_MB=32 ends 0 "" "${bench[@]}" --forward-only --profile \
    --set bench.steps_per_round=1 --batch-size-per-rank auto
grep -q "^Batch size auto: [0-9]* images per rank, which take [23].* MB of 3. MB$" \
    "$work/out" || fail "$(cat "$work/out")"
grep -q "% of the data sheet's 67 TFLOP/s" "$work/out" || fail "$(cat "$work/out")"
grep -q "^conv2  *conv  *[0-9]" "$work/out" || fail "no table: $(cat "$work/out")"

# Two ranks with half the batch each: on one GPU, and on two.
train 2 ranks --set device.allow_shared_gpu=true
losses ranks fp32 1e-4
DTRAIN_EMULATED_GPUS=2 train 2 gpus --set comm.bucket_cap_mb=0.01 --set comm.last_bucket_cap_mb=0.005
losses gpus fp32 1e-4
/usr/bin/python3 "$here/../e2e/compare.py" "$(model_of "$work/gpus")" \
    "$(model_of "$work/fp32")" 0.02
for dtype in auto fp32; do
    train 2 "dtype-$dtype" --set device.allow_shared_gpu=true --set train.precision=fp16 --set comm.grad_dtype=$dtype
    losses "dtype-$dtype" fp16 0.01
done

# Evaluation of the same weights.
for kind in cpu cuda; do
    ends 0 "" "$dtrain" eval --config "$work/config.json" --weights "$work/fp32" --set device.kind=$kind
    mv "$work/out" "$work/eval-$kind"
done
/usr/bin/python3 - "$work/eval-cpu" "$work/eval-cuda" <<'PY'
import json, sys
cpu, cuda = (json.load(open(path)) for path in sys.argv[1:])
assert cpu["images"] == cuda["images"] == 8 and cpu["top1"] == cuda["top1"], (cpu, cuda)
assert abs(cpu["loss"] - cuda["loss"]) < 1e-4 * cpu["loss"], (cpu, cuda)
PY

# Stopped and resumed in fp16: the same bits, loss scale included.
half="--set train.precision=fp16"
train 1 resumed $half --set train.max_steps=4
train 1 resumed $half --resume must
fp16=$(hash_of "$work/fp16")
[ "$(hash_of "$work/resumed")" = "$fp16" ] || fail "the resumed run differs"
losses resumed fp16 0
state=$work/resumed/checkpoints/step-000000008/state.json
grep -q '"clean_steps": 8' "$state" || fail "no loss scale in $(cat "$state")"

# Overflow, with a fixed scale and with one that adapts, which is the checkpoint's.
train 1 fixed $half --set train.loss_scale=16777216 --set train.max_steps=2
says "Gradient overflow. Skipping step, train.loss_scale is 16777216"
DTRAIN_FAULT=nan@8:0,nan@9:0 train 1 resumed $half --set train.max_steps=10
says "Gradient overflow. Skipping step, loss scale reduced to 32768"
says "Gradient overflow. Skipping step, loss scale reduced to 16384"
DTRAIN_FAULT=nan@8:0,nan@9:0 train 1 fp16 $half --set train.max_steps=10 --set output.log_every=2
says "Gradient overflow. Skipping 2 steps, loss scale reduced to 16384"
always=$(printf 'nan@%d:0,' $(seq 10 49))
DTRAIN_FAULT=${always%,} refuses 81 "gradients are not finite whatever the loss scale" 1 fp16 $half \
    --set train.max_steps=50

# Another precision may continue from a checkpoint.
train 1 bf16 --set train.max_steps=10
says "resuming a run of train.precision bf16 with fp32"

# auto is fp16 on a GPU and fp32 on a CPU. A resumed run keeps what it has, unless the CPU cannot.
automatic="--set train.precision=auto"
train 1 automatic $automatic --set train.max_steps=4
says "parameters, fp16 (train.precision auto; or set it to"
grep -q '"precision": "fp16"' "$work/automatic/config.json" || fail "not resolved in config.json"
train 1 automatic $automatic --resume must
[ "$(hash_of "$work/automatic")" = "$fp16" ] || fail "auto is not fp16"
train 1 bf16 $automatic --set train.max_steps=12
says "parameters, fp32 (train.precision auto"
never_says "bit-identical"
train 1 automatic $automatic --set device.kind=cpu --set train.max_steps=12
says "resuming a run of train.precision fp16 with fp32; results agree up to rounding"
for kind in cpu:fp32 cuda:fp16; do
    ends 0 "" "${bench[@]}" $automatic --set device.kind=${kind%:*} --set bench.steps_per_round=1
    grep -q "^Precision:  *${kind#*:}$" "$work/out" || fail "$kind: $(cat "$work/out")"
done
ends 0 "" "$dtrain" --config "$work/config.json" $automatic --dry-run
grep -q "^device .*fp16" "$work/out" || fail "$(cat "$work/out")"

# The largest micro-batch that fits, the same on all ranks, in every stage; a resumed run keeps it if it can.
large=(--set model.image_size=32 --set train.global_batch_size=64 --set data.synthetic_train=64)
fitting=("${large[@]}" --set train.micro_batch_size=auto)
fits="batch 64 = 1 rank x 2 micro-batches x 32 images (auto: they fit into 7.8 MB)"
DTRAIN_EMULATED_MEMORY_MB=8 train 1 fitting "${fitting[@]}" --set train.max_steps=1
says "$fits"
train 1 given "${large[@]}" --set train.micro_batch_size=32 --set train.max_steps=1
[ "$(hash_of "$work/fitting")" = "$(hash_of "$work/given")" ] || fail "auto is not what it says"
train 1 fitting "${fitting[@]}" --set train.max_steps=2
says "batch 64 = 1 rank x 2 micro-batches x 32 images (auto: "
DTRAIN_EMULATED_MEMORY_MB=4 train 1 fitting "${fitting[@]}" --set train.max_steps=3
says "micro_batch_size auto resumes with micro-batches of 16 images instead of 32, which changes the batch norm"
DTRAIN_EMULATED_MEMORY_MB=8 train 2 fitting-2 "${fitting[@]}" --set device.allow_shared_gpu=true --set train.max_steps=1
says "batch 64 = 2 ranks x 2 micro-batches x 16 images (auto: they fit into 3.9 MB)"
DTRAIN_EMULATED_MEMORY_MB=8 train 1 fitting-stages "${fitting[@]}" --set train.max_steps=2 \
    --set 'train.stages=[{"epoch":1,"image_size":16}]'
says "$fits" "images of 16 x 16, batch 64 = 1 rank x 1 micro-batch x 64 images"
DTRAIN_EMULATED_MEMORY_MB=8 ends 0 "" "$dtrain" --config "$work/config.json" "${fitting[@]}" --dry-run
grep -q "^global batch 64 = 1 rank x 2 micro-batches x 32 images" "$work/out" || fail "$(cat "$work/out")"

# Settings that are refused.
refuses 78 "both use GPU emulated H200: start at most one rank per GPU (mpirun -npernode N, or give each" \
    2 twins
[ "$(grep -c 'dtrain: error\[' "$work/log")" = 1 ] || fail "not one message: $(cat "$work/log")"
refuses 78 "comm.backend: mpi sums in host memory" 2 planes --set device.allow_shared_gpu=true \
    --set comm.backend=mpi
refuses 78 "only if they compute in it" 1 types --set train.precision=bf16 --set comm.grad_dtype=fp16
DTRAIN_EMULATED_GPUS=0 refuses 69 \
    "device.kind: cuda is not possible: there is an NVIDIA driver but no GPU" 1 none
DTRAIN_EMULATED_GPUS=0 train 2 none --set device.kind=auto
[ "$(grep -c 'warning: no GPU: [^:]*; running on the CPU (dtrain doctor says more)' "$work/log")" = 1 ] ||
    fail "not one warning: $(cat "$work/log")"
DTRAIN_EMULATED_GPUS=0 refuses 66 "nowhere" 1 nothing --set device.kind=auto --set data.source=auto \
    --set data.train="$work/nowhere"
never_says "no GPU"
DTRAIN_EMULATED_GPUS=0 ends 0 "" "$dtrain" bench --config "$work/config.json" --set device.kind=auto \
    --batch-size-per-rank 4,8 --set bench.rounds=1 --set bench.steps_per_round=1
[ "$(grep -c 'warning: no GPU' "$work/log")" = 1 ] || fail "not one warning: $(cat "$work/log")"
losses none cpu 1e-4
# shellcheck disable=SC2016 # for the inner shell
ends 76 "device.kind auto: 1 of 2 ranks have no GPU, the first is rank 1 on host" on_ranks 2 bash -c \
    '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || export DTRAIN_EMULATED_GPUS=0; exec "$@"' \
    rank "$dtrain" --config "$work/config.json" --out "$work/mixed" --set device.kind=auto
DTRAIN_EMULATED_MEMORY_MB=64 refuses 71 "train.micro_batch_size" 1 memory --set model.name=vgg11 \
    --set model.image_size=32
