#!/usr/bin/env bash
# Installs, builds and runs the tests: scripts/test.sh [PRESET] [ctest options]
#
# Runs four tests more in parallel than the machine has cores, as many tests mostly wait; -j 1 runs
# them one at a time. At the end it says which tests were skipped and why; in CI (the variable CI is
# set) that is an error but for tests that need a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/mpi_env.sh
. scripts/mpi_env.sh
preset=${1:-dev}
shift || true
scripts/setup.sh test "$preset"
results=build/tests.xml code=0
[ "$preset" = release ] || results=build-$preset/tests.xml
ctest --preset "$preset" -j $(($(nproc) + 4)) --output-junit "$PWD/$results" "$@" || code=$?
scripts/test_summary.py "$results" || code=1
exit $code
