#!/bin/bash
# Training on the emulated GPU on one and two ranks, stopped and resumed, with what is chosen
# automatically; and settings that are refused.
. "$(dirname "$0")/train_common.sh"

train 1 cpu --set device.kind=cpu
for precision in fp32 bf16 fp16; do train 1 $precision --set train.precision=$precision; done

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
says "$fits" "images of 16 x 16, batch 64 = 1 rank x 64 images"
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
