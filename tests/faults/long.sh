#!/usr/bin/env bash
# The full campaigns, with figures: tests/faults/long.sh [BUILD FOLDER] [OUTPUT FOLDER]
#
# Takes hours. The output of each part is written to OUTPUT/<part>.log, and its last lines to the
# terminal; the figures in README.md come from here. The fuzzers have their own script,
# tests/fuzz/run.sh.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
# shellcheck source=scripts/mpi_env.sh
. scripts/mpi_env.sh
build=${1:-build}
out=${2:-/tmp/dtrain-faults}
parts=${PARTS:-kills power lost disk hang stops numerics corruption config tar_index safetensors jpeg cluster}
mkdir -p "$out"
failed=0

part() {
    local name=$1
    shift
    [[ " $parts " == *" $name "* ]] || return 0
    printf '==== %s\n' "$name"
    local begin=$SECONDS
    if "$@" > "$out/$name.log" 2>&1; then verdict=ok; else verdict=FAILED failed=1; fi
    tail -n 12 "$out/$name.log"
    printf '==== %s: %s in %d s\n' "$name" "$verdict" $((SECONDS - begin))
}

python=/usr/bin/python3
part kills $python tests/faults/test_kills.py "$build/dtrain" --long
part power $python tests/faults/test_power.py "$build/dtrain" --long
part file_systems $python tests/faults/test_file_systems.py "$build/dtrain" --long
part lost $python tests/faults/test_lost_folder.py "$build/dtrain" --long
part disk $python tests/faults/test_disk.py "$build/dtrain" --long
part hang $python tests/faults/test_hang.py "$build/dtrain" --long
part stops $python tests/faults/test_stops.py "$build/dtrain" --long
part numerics bash tests/faults/test_numerics.sh "$build/dtrain" --long
part corruption env DTRAIN_LONG=1 "$build/tests/faults_checkpoint_corruption"
for target in config tar_index safetensors jpeg coco; do
    part $target $python tests/fuzz/${target}_cases.py "$build/tests/fuzz/replay_$target" --long
done
part cluster $python tests/cluster/test_campaign.py "$build/dtrain" --long
exit $failed
