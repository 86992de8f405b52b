#!/usr/bin/env bash
# Installs, builds and runs the tests: scripts/test.sh [PRESET] [ctest options]
#
# Runs one test more in parallel than the machine has cores, as many tests mostly wait; -j 1 runs
# them one at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/mpi_env.sh
. scripts/mpi_env.sh
preset=${1:-dev}
shift || true
scripts/setup.sh test "$preset"
ctest --preset "$preset" -j $(($(nproc) + 1)) "$@"
