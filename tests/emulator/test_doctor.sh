#!/bin/bash
# dtrain doctor with GPUs, and with only a driver.
. "$(dirname "$0")/../e2e/common.sh"
export DTRAIN_EMULATED_GPUS=2 XDG_CACHE_HOME=$work
doctor() { # exit code, settings...
    ends "$1" "" "$dtrain" doctor "${@:2}"
}
doctor 0 --set train.precision=fp16
finds ok driver "runs CUDA up to [0-9]"
finds ok "device 0" "emulated H200, compute capability 9.0, 4.0 GiB$"
finds ok "device 1" "emulated H200"
finds ok device "cuda:0 emulated H200, .*fp16$"
finds ok precision fp16$
doctor 0
finds ok precision "fp16 (auto)"
finds ok gradients NCCL

# How much memory is free is known from the driver's library, which makes no context on the GPUs.
FAKE_NVML=0:0 FAKE_NVML_FREE=3758096384 LD_LIBRARY_PATH=$(dirname "$dtrain")/nvml doctor 0
finds ok "device 0" "4.0 GiB (3.5 free)"
finds ok "device 1" "4.0 GiB (3.5 free)"

# Settings that work with one rank only, and settings that never work.
doctor 0 --set comm.backend=mpi
finds -- gradients "one rank only: comm.backend mpi"
doctor 0 --set device.kind=cpu
finds ok "device 0" "emulated H200"
finds ok device "cpu, oneDNN"
finds ok gradients MPI
DTRAIN_EMULATED_GPUS=0 doctor 69 --set device.kind=cuda
finds ok driver "runs CUDA"
finds '!!' devices "none: there is an NVIDIA driver but no GPU"
says "error\[DEVICE\] device.kind: cuda is not possible"

# On two ranks, each with its GPU, and on two that would share one.
on_ranks 2 "$dtrain" doctor --set device.kind=cuda > "$work/out" 2> "$work/log" ||
    grep -q "1\. the GPU of rank" "$work/out" || # emulated on a busy CPU
    fail "$(cat "$work/out" "$work/log")"
shows "2 x emulated H200" "by NCCL"
DTRAIN_EMULATED_GPUS=1 refused 78 "these ranks are not fit" on_ranks 2 "$dtrain" doctor
shows "1\. .*GPU"
