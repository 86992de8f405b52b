#!/usr/bin/env bash
# Everything that needs a GPU, on any machine that has one: builds, runs the tests labelled gpu and
# the memory checker, measures dtrain and PyTorch in turns, and writes the tables and gpu.json.
#
#   scripts/gpu_check.sh [OUTDIR] [SECONDS]
#
# OUTDIR (default: runs/gpu_check) gets gpu.json, report.txt and the logs. The whole takes at most
# about SECONDS (default 470): what does not fit any more is left out and named. Needs no network;
# packages are installed only where DTRAIN_NO_INSTALL is not 1. PyTorch is taken from $PYTHON
# (default python3); without it, its rows are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/mpi_env.sh
. scripts/mpi_env.sh
out=${1:-runs/gpu_check}
budget=${2:-470}
python=${PYTHON:-python3}
mkdir -p "$out"

section() {
    printf '\n==== %s (%d s)\n' "$1" "$SECONDS"
}

# run NAME COMMAND...: output to a log; a failure is told with the end of the log, and remembered.
failed=()
run() {
    local name=$1
    shift
    if "$@" >"$out/$name.log" 2>&1; then
        echo "ok   $name"
    else
        echo "FAIL $name: exit status $?, last lines of $out/$name.log:"
        tail -n 25 "$out/$name.log" | sed 's/^/     /'
        failed+=("$name")
    fi
}

exec > >(tee "$out/report.txt") 2>&1
section "machine"
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader
git log -1 --format='dtrain %h %cs' 2>/dev/null || true

section "build"
scripts/setup.sh test release -DDTRAIN_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native \
    -DDTRAIN_WERROR=OFF
build/dtrain doctor

section "tests"
run ctest timeout 150 ctest --test-dir build -L gpu --output-on-failure -j 4
sanitizer=$(command -v compute-sanitizer || true)
if [ -n "$sanitizer" ]; then
    for what in cuda_streams cuda_ops_fp16; do
        run "memcheck-$what" timeout 60 "$sanitizer" --tool memcheck --error-exitcode 9 \
            "build/tests/gpu_$what"
    done
else
    echo "--   no compute-sanitizer on this machine"
fi

run torch-parity timeout 90 "$python" tests/interop/test_torch_parity.py build/dtrain cuda

section "speed"
"$python" tests/perf/gpu_check.py build/dtrain --out "$out" --seconds $((budget - SECONDS)) ||
    failed+=(speed)

section "done"
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}"
    exit 1
fi
