#!/usr/bin/env bash
# Trains one small task in every parallel mode with the same number of images, and compares.
#
#   scripts/compare_modes.sh [options] [-- options of dtrain, such as --set schedule.lr=0.02]
#
#   --np 3            ranks; async uses one of them as the server
#   --steps 96        updates of allreduce
#   --out DIR         results (default: runs/modes)
#
# The images are generated; for others: -- --set data.train=FILES --set data.val=FILES. For a longer
# comparison give more --steps. DIR receives a run folder for each mode, modes.csv (the table) and
# modes.svg (accuracy over bytes sent and over time). Bytes are the sizes of gradients and weights, per
# step and rank. DTRAIN names the program (default: build/dtrain, or the installed one), and
# DTRAIN_LAUNCH_OPTIONS has options of dtrain launch.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=scripts/mpi_env.sh
. "$root/scripts/mpi_env.sh"

usage() {
    echo "compare_modes: $*; see the head of scripts/compare_modes.sh" >&2
    exit 64
}

np=3 steps=96 out=runs/modes
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    [ $# -ge 2 ] || usage "$1 requires a value"
    case $1 in
    --np) np=$2 ;;
    --steps) steps=$2 ;;
    --out) out=$2 ;;
    *) usage "unknown option $1" ;;
    esac
    shift 2
done
shift $(($# > 0))
[ "$np" -ge 2 ] || usage "--np must be at least 2"
[ $((steps % 16)) = 0 ] || usage "--steps must be a multiple of 16"

# A global batch that np and np - 1 ranks can share.
batch=$((np * (np - 1) * (64 / (np * (np - 1)) + 1)))
mkdir -p "$out"
cat >"$out/config.json" <<JSON
{
    "model": {"name": "tiny", "num_classes": 10, "image_size": 32},
    "data": {"source": "synthetic", "synthetic_train": $((batch * 16)), "synthetic_val": 1000, "workers": 1},
    "train": {"epochs": 1000, "max_steps": $steps, "global_batch_size": $batch},
    "schedule": {"kind": "constant", "lr": 0.02, "lr_scaling": "none", "warmup_epochs": 0},
    "device": {"kind": "cpu", "threads": 1},
    "comm": {"algorithm": "ring"},
    "checkpoint": {"every_epochs": 0},
    "output": {"log_every": 16, "sinks": ["jsonl"]}
}
JSON
while read -r name sets; do
    read -ra sets <<<"$sets"
    echo "compare_modes: $name"
    rm -rf "${out:?}/$name"
    "${launch[@]}" --ranks "$np" -- --config "$out/config.json" --out "$out/$name" \
        ${sets[@]+"${sets[@]}"} "$@" </dev/null >"$out/$name.log" 2>&1 || {
        tail -n 5 "$out/$name.log" >&2
        exit 1
    }
done <<'MODES'
allreduce
allreduce-bf16 --set comm.grad_dtype=bf16
allreduce-fp16 --set comm.grad_dtype=fp16
central --set comm.mode=central
local-4 --set train.sync_every=4
local-16 --set train.sync_every=16
local-16-outer --set train.sync_every=16 --set train.outer_momentum=0.3
async --set comm.mode=async
MODES
python3 "$root/scripts/compare_modes.py" "$out"
