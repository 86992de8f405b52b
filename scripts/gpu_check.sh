#!/usr/bin/env bash
# The checks that need a GPU, in four parts of at most 560 s each, also for a machine without access
# to packages (README.md in this folder):
#
#   scripts/gpu_check.sh pack [FOLDER [RESULTS [CMAKE OPTIONS]]]  # packs what travels with the source
#   scripts/gpu_check.sh 1|2|3|4 [FOLDER [RESULTS [OPTIONS]]]     # on the GPU machine: one part
#
# FOLDER (default runs/gpu) may contain:
#   build.tar.xz    made by pack: the programs, for the case that they cannot be built there
#   use-deps.sh     sourced with dtrain-deps.tar.xz and a folder to unpack it in as arguments, to make
#                   CMake, gcc and mpirun find the libraries that are not installed there
#   *.c             programs that ask cuDNN; built and run
#   last/           RESULTS of the part before
# RESULTS (default runs/gpu_check) gets gpu.json, reports, logs and the algorithms chosen. OPTIONS go
# to tests/perf/gpu_check.py. Uses the PyTorch of $PYTHON (default python3, at least 3.11).
set -euo pipefail
cd "$(dirname "$0")/.."
part=$1 folder=${2:-runs/gpu} results=${3:-runs/gpu_check}
shift $(($# < 3 ? $# : 3))
python=${PYTHON:-python3}
mkdir -p "$folder" "$results"

if [ "$part" = pack ]; then
    mapfile -t programs < <("$python" tests/perf/gpu_check.py programs)
    DTRAIN_TARGETS="${programs[*]##*/}" scripts/setup.sh test release -DDTRAIN_CUDA=ON "$@"
    # With -9, xz finds in a program what it shares with the one before.
    XZ_OPT=-9 tar -C build -cJf "$folder/build.tar.xz" "${programs[@]}"
    du -h "$folder"/*
    exit
fi

about_machine() {
    nvidia-smi || echo "no nvidia-smi"
    df -h /dev/shm
    ip -brief address || echo "no ip"
    uname -srm
    nproc
    free -g
    for program in "$python" gcc cmake ninja nvcc mpirun; do
        echo "$program: $("$program" --version 2>&1 | grep -m 1 -E '[0-9]\.[0-9]' || echo none)"
    done
}

run_part() {
    local cuda=${CUDA_HOME:-/usr/local/cuda}
    export PATH=$PATH:$cuda/bin PYTHONUNBUFFERED=1 DTRAIN_NO_INSTALL=1
    if [ -e "$folder/use-deps.sh" ]; then
        # shellcheck source=/dev/null
        . "$folder/use-deps.sh" "$folder/dtrain-deps.tar.xz" build-deps
    fi
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$cuda/lib64
    # shellcheck source=scripts/mpi_env.sh
    . scripts/mpi_env.sh
    about_machine || true # whatever is missing
    if ! timeout 20 mpirun --oversubscribe -np 2 true; then
        echo "mpirun: without other interfaces than lo"
        export OMPI_MCA_oob_tcp_if_include=lo OMPI_MCA_btl=self,vader
    fi
    "$python" tests/perf/gpu_check.py "$part" "$folder" --out "$results" --seconds $((545 - SECONDS)) "$@"
}
run_part "$@" 2>&1 | tee -a "$results/report-$part.txt"
