#!/usr/bin/env bash
# Sets everything up and runs the tests: scripts/test.sh [PRESET] [ctest options]
#
# One test more at a time than there are cores, as many of them wait; -j 1 for one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/mpi_env.sh
. scripts/mpi_env.sh
preset=${1:-dev}
shift || true
scripts/setup.sh test "$preset"
ctest --preset "$preset" -j $(($(nproc) + 1)) "$@"
