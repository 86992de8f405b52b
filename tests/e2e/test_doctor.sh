#!/bin/bash
# dtrain doctor shows what the build and the machine support and which device a run would use; it
# explains, by message and exit code, why a requested device is unavailable.
. "$(dirname "$0")/common.sh"
export CUDA_VISIBLE_DEVICES= # hides any GPU
doctor() { # exit code, settings...
    local code=$1 got=0
    shift
    "$dtrain" doctor "$@" > "$work/out" 2> "$work/err" || got=$?
    [ "$got" = "$code" ] ||
        fail "exit code $got instead of $code: $*: $(cat "$work/out" "$work/err")"
    ! grep -vE '^(build|CPU|GPU|a run)$|^  (ok|--|!!)  [^ ].{13} [^ ]' "$work/out" > "$work/odd" ||
        fail "unexpected lines: $(cat "$work/odd")"
    [ $code != 0 ] || [ ! -s "$work/err" ] || fail "stderr: $(cat "$work/err")"
}
has() { # mark, label, text
    grep -q -- "^  $1  $2  *.*$3" "$work/out" || fail "no $1 $2 $3 in: $(cat "$work/out")"
}
doctor 0
has ok dtrain "$("$dtrain" --version | cut -d' ' -f2)"
has ok communication MPI
has ok CPUs "$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) allowed"
has ok library oneDNN
has ok device "cpu, oneDNN"
has ok precision fp32
has ok gradients MPI
has -- devices "none: "
! grep -q '!!' "$work/out" || fail "something is wrong: $(cat "$work/out")"

# Requested, but unavailable.
doctor 69 --set device.kind=cuda
has '!!' devices "none: "
has '!!' device "device.kind: "
doctor 78 --set train.precision=fp16
has '!!' device "train.precision: fp16"
doctor 0 --set device.kind=cpu
has -- devices "none: "
if has_cuda; then
    doctor 0
    has ok CUDA "[0-9], cuDNN [0-9].*, cuBLAS [0-9]"
    has ok communication "NCCL [0-9]"
    has -- devices "none: .*\(driver\|CUDA_VISIBLE_DEVICES\)"
    grep -q "^  \(--\|ok\)  driver  " "$work/out" || fail "the driver is not named"
else
    doctor 0
    has -- CUDA "not in this build"
    has ok communication "no NCCL"
fi

# Configurations.
small_config > "$work/config.json"
doctor 0 --config "$work/config.json"
has ok device "1 thread$"
doctor 66 --config "$work/nowhere.json"
[ ! -s "$work/out" ] || fail "a report for a missing configuration"

# The cache folder is named but not created.
XDG_CACHE_HOME=$work/cache doctor 0
has ok "cache folder" "$work/cache/dtrain$"
XDG_CACHE_HOME=relative HOME=$work/home doctor 0
has ok "cache folder" "$work/home/.cache/dtrain$"
doctor 0 --set device.cache_dir="$work/own"
has ok "cache folder" "$work/own$"
HOME='' XDG_CACHE_HOME='' doctor 0
has -- "cache folder" "none: "
touch "$work/file"
doctor 0 --set device.cache_dir="$work/file/in"
has -- "cache folder" "$work/file/in is not writable: "
[ ! -e "$work/cache" ] && [ ! -e "$work/home" ] && [ ! -e "$work/own" ] ||
    fail "the doctor created a folder"
