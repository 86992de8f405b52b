#!/bin/bash
# dtrain doctor shows what the build and the machine support and which device a run would use; it
# explains, by message and exit code, why a requested device is unavailable.
. "$(dirname "$0")/common.sh"
export CUDA_VISIBLE_DEVICES= # hides any GPU
doctor() { # exit code, settings...
    ends "$1" "" "$dtrain" doctor "${@:2}"
    ! grep -vE '^(build|CPU|GPU|a run)$|^  (ok|--|!!)  [^ ].{13} [^ ]' "$work/out" > "$work/odd" ||
        fail "unexpected lines: $(cat "$work/odd")"
    [ "$1" != 0 ] || [ ! -s "$work/log" ] || fail "stderr: $(cat "$work/log")"
}
doctor 0
finds ok dtrain "$("$dtrain" --version | cut -d' ' -f2)"
finds ok communication MPI
finds ok CPUs "$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) allowed"
finds ok library oneDNN
finds ok device "cpu, oneDNN"
finds ok precision "fp32 (auto)"
finds ok gradients MPI
finds -- devices "none: "
! grep -q '!!' "$work/out" || fail "something is wrong: $(cat "$work/out")"

# Requested, but unavailable.
doctor 69 --set device.kind=cuda
finds '!!' devices "none: "
finds '!!' device "device.kind: "
doctor 78 --set train.precision=fp16
finds '!!' device "train.precision: fp16"
doctor 0 --set device.kind=cpu
finds -- devices "none: "
if has_cuda; then
    doctor 0
    finds ok CUDA "[0-9], cuDNN [0-9].*, cuBLAS [1-9]"
    finds ok communication "NCCL [0-9]"
    finds -- devices "none: .*\(driver\|CUDA_VISIBLE_DEVICES\)"
    grep -q "^  \(--\|ok\)  driver  " "$work/out" || fail "the driver is not named"
else
    doctor 0
    finds -- CUDA "not in this build"
    finds ok communication "no NCCL"
fi

# Configurations.
small_config > "$work/config.json"
doctor 0 --config "$work/config.json"
finds ok device "1 thread$"
doctor 66 --config "$work/nowhere.json"
[ ! -s "$work/out" ] || fail "a report for a missing configuration"

# The cache folder is named but not created.
XDG_CACHE_HOME=$work/cache doctor 0
finds ok "cache folder" "$work/cache/dtrain$"
XDG_CACHE_HOME=relative HOME=$work/home doctor 0
finds ok "cache folder" "$work/home/.cache/dtrain$"
doctor 0 --set device.cache_dir="$work/own"
finds ok "cache folder" "$work/own$"
HOME='' XDG_CACHE_HOME='' doctor 0
finds -- "cache folder" "none: "
touch "$work/file"
doctor 0 --set device.cache_dir="$work/file/in"
finds -- "cache folder" "$work/file/in is not writable: "
[ ! -e "$work/cache" ] && [ ! -e "$work/home" ] && [ ! -e "$work/own" ] ||
    fail "the doctor created a folder"
