#!/usr/bin/env bash
# An emulated program uses nothing from the real CUDA libraries: every CUDA function that the
# backend and the comm module call is the emulator's. test_symbols.sh PROGRAM LIBRARY...
set -euo pipefail
program=$1
shift
failed=0

defined=$(nm --defined-only "$program" | awk '{print $NF}' | sort -u)
wanted=$(nm -u "$@" | awk '{print $NF}' | grep -E '^(cuda|cudnn|cublas|nccl)[A-Z]' | sort -u)
missing=$(comm -13 <(echo "$defined") <(echo "$wanted"))
n=$(echo "$wanted" | wc -l)
if [ "$n" -lt 40 ]; then
    echo "only $n functions of CUDA's libraries are called in $*: is this the right list?"
    failed=1
fi
if [ -n "$missing" ]; then
    printf 'not emulated:\n%s\n' "$missing"
    failed=1
fi

needed=$(readelf -d "$program" | grep NEEDED | grep -E 'cudart|cudnn|cublas|nccl|libcuda' || true)
if [ -n "$needed" ]; then
    printf '%s still needs:\n%s\n' "$program" "$needed"
    failed=1
fi
if echo "$defined" | grep -qE '^(__cudart[0-9]|libcudart_static)'; then
    echo "$program contains the static CUDA runtime"
    failed=1
fi
echo "$n functions checked"
exit $failed
