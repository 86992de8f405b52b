#!/usr/bin/env bash
# All checks that need a GPU: builds, runs the tests labelled gpu, PyTorch parity and the memory
# checker, measures dtrain and PyTorch alternately, and writes tables and gpu.json.
#
#   scripts/gpu_check.sh [OUTDIR] [SECONDS] [options of tests/perf/gpu_check.py]
#
# OUTDIR (default: runs/gpu_check) receives gpu.json, report.txt and the logs. The script ends
# within SECONDS (default 470); parts that do not fit are skipped and listed, and can be run later:
#
#   scripts/gpu_check.sh runs/gpu_check2 400 --parts build,memcheck,sweep
#
# Expected seconds on one H200 with 16 CPU cores, most important parts first: build 45 (meanwhile
# PyTorch starts, compiles and tries its algorithms: 45 more), ceilings 3, comparison with PyTorch
# 50, profile 8; in parallel, 75 in total: tests 40, training curves 25, recorded against walked
# steps 10, PyTorch parity 60, memory checker 75; two NCCL ranks 15; the table of all precisions and
# batch sizes 160.
#
# Uses the PyTorch of $PYTHON (default python3, at least 3.11); without PyTorch, its columns are
# omitted. Needs no network. If packages cannot be installed, unpack those listed in
# scripts/packages.sh into a folder P, with Random123's headers in P/usr/include, and export
# (Debian's layout):
#
#   export CMAKE_PREFIX_PATH=P/usr PKG_CONFIG_PATH=P/usr/lib/x86_64-linux-gnu/pkgconfig
#   export C_INCLUDE_PATH=P/usr/include LIBRARY_PATH=P/usr/lib/x86_64-linux-gnu
#   export LD_LIBRARY_PATH=P/usr/lib/x86_64-linux-gnu PATH=P/usr/bin:$PATH OPAL_PREFIX=P/usr
#   export CUDNN_ROOT=... NCCL_ROOT=...   # folders with include/ and lib/, such as pip's
#   DTRAIN_NO_INSTALL=1 scripts/gpu_check.sh
#
# If Random123's headers are elsewhere: export CMAKE_INCLUDE_PATH=FOLDER, which contains Random123/.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/mpi_env.sh
. scripts/mpi_env.sh
out=${1:-runs/gpu_check}
seconds=${2:-470}
shift $(($# < 2 ? $# : 2))
mkdir -p "$out"
export PYTHONUNBUFFERED=1
"${PYTHON:-python3}" tests/perf/gpu_check.py build --out "$out" --seconds "$seconds" "$@" 2>&1 |
    tee "$out/report.txt"
