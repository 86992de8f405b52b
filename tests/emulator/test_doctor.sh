#!/bin/bash
# dtrain doctor with GPUs, and with only a driver.
. "$(dirname "$0")/../e2e/common.sh"
export DTRAIN_EMULATED_GPUS=2 XDG_CACHE_HOME=$work
doctor() { # exit code, settings...
    local code=$1 got=0
    shift
    "$dtrain" doctor "$@" > "$work/out" 2> "$work/err" || got=$?
    [ "$got" = "$code" ] ||
        fail "exit code $got instead of $code: $*: $(cat "$work/out" "$work/err")"
}
has() { # mark, label, text
    grep -q -- "^  $1  $2  *.*$3" "$work/out" || fail "no $1 $2 $3 in: $(cat "$work/out")"
}
doctor 0 --set train.precision=fp16
has ok driver "runs CUDA up to [0-9]"
has ok "device 0" "emulated H200, compute capability 9.0, 4.0 GiB$"
has ok "device 1" "emulated H200"
has ok device "cuda:0 emulated H200, .*fp16$"
has ok precision fp16
has ok gradients NCCL

# How much memory is free is known from the driver's library, which makes no context on the GPUs.
FAKE_NVML=0:0 FAKE_NVML_FREE=3758096384 LD_LIBRARY_PATH=$(dirname "$dtrain")/nvml doctor 0
has ok "device 0" "4.0 GiB (3.5 free)"
has ok "device 1" "4.0 GiB (3.5 free)"

# Settings that work with one rank only, and settings that never work.
doctor 0 --set comm.backend=mpi
has -- gradients "one rank only: comm.backend mpi"
doctor 0 --set device.kind=cpu
has ok "device 0" "emulated H200"
has ok device "cpu, oneDNN"
has ok gradients MPI
DTRAIN_EMULATED_GPUS=0 doctor 69 --set device.kind=cuda
has ok driver "runs CUDA"
has '!!' devices "none: there is an NVIDIA driver but no GPU"
grep -q "error\[DEVICE\] device.kind: cuda is not possible" "$work/err" || fail "$(cat "$work/err")"

# On two ranks, each with its GPU, and on two that would share one.
on_ranks 2 "$dtrain" doctor --set device.kind=cuda > "$work/out" 2> "$work/err" ||
    grep -q "1\. the GPU of rank" "$work/out" || # emulated on a busy CPU
    fail "$(cat "$work/out" "$work/err")"
grep -q "2 x emulated H200" "$work/out" && grep -q "by NCCL" "$work/out" || fail "$(cat "$work/out")"
DTRAIN_EMULATED_GPUS=1 refused 78 "these ranks are not fit" on_ranks 2 "$dtrain" doctor
grep -q "1\. .*GPU" "$work/out" || fail "$(cat "$work/out")"
