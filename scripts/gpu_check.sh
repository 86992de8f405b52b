#!/usr/bin/env bash
# Everything that needs a GPU, on any machine that has one: builds, runs the tests labelled gpu,
# PyTorch parity and the memory checker, measures dtrain and PyTorch in turns, and writes tables and
# gpu.json.
#
#   scripts/gpu_check.sh [OUTDIR] [SECONDS] [options of tests/perf/gpu_check.py]
#
# OUTDIR (default: runs/gpu_check) gets gpu.json, report.txt and the logs. The whole ends within
# SECONDS (default 470): what does not fit is left out and named, and can be had by a later call:
#
#   scripts/gpu_check.sh runs/gpu_check2 400 --parts build,memcheck,sweep
#
# Expected on one H200 with 16 CPU cores, in seconds, what matters most first: build 45 (meanwhile
# PyTorch starts, compiles and tries its algorithms: 45 more), ceilings 3, comparison with PyTorch
# 50, profile 8; beside each other 75: tests 40, training curves 25, recorded against walked steps
# 10, PyTorch parity 60, memory checker 75; two NCCL ranks 15; the table of all precisions and
# batches 160.
#
# PyTorch is taken from $PYTHON (default python3, at least 3.11); without it, its columns are left
# out. Needs no network. Where packages cannot be installed, bring those that scripts/packages.sh
# names, unpacked into a folder P, with Random123's headers in P/usr/include, and say where they are
# (Debian's layout):
#
#   export CMAKE_PREFIX_PATH=P/usr PKG_CONFIG_PATH=P/usr/lib/x86_64-linux-gnu/pkgconfig
#   export C_INCLUDE_PATH=P/usr/include LIBRARY_PATH=P/usr/lib/x86_64-linux-gnu
#   export LD_LIBRARY_PATH=P/usr/lib/x86_64-linux-gnu PATH=P/usr/bin:$PATH OPAL_PREFIX=P/usr
#   export CUDNN_ROOT=... NCCL_ROOT=...   # folders with include/ and lib/, such as those of pip
#   DTRAIN_NO_INSTALL=1 scripts/gpu_check.sh
#
# Headers that lie elsewhere (Random123): export CMAKE_INCLUDE_PATH=FOLDER, which has Random123/.
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
