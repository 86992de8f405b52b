#!/usr/bin/env bash
# Line coverage of src/ by room: tests/tools/coverage.sh [ctest options], as in -j 2 -LE gpu
#
# Builds everything in build-coverage, forgets the counts of earlier runs, runs the tests and prints the
# lines that ran. A line of which there are several objects (instruction sets, inlined headers) counts
# once. Processes add their counts to the same files under a lock when they end; of those that are killed
# or call _exit nothing is counted, so tests of crashes count too little. Red tests are listed, no more.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/mpi_env.sh
. scripts/mpi_env.sh
# Less optimization sees fewer values, so it warns of more; the dev build has warned of what counts.
build=$PWD/build-coverage
flags="-w -O1 -g -DNDEBUG --coverage -fprofile-update=atomic -fprofile-filter-files=src/"
cmake --preset dev -G Ninja -B "$build" -DCMAKE_C_FLAGS_RELWITHDEBINFO="$flags" \
    -DCMAKE_EXE_LINKER_FLAGS=--coverage -DCMAKE_SHARED_LINKER_FLAGS=--coverage >/dev/null
cmake --build "$build" -j "$(nproc)"
find "$build" -name '*.gcda' -delete
# Counting takes time.
find "$build" -name CTestTestfile.cmake -exec sed -i 's/TIMEOUT "600"/TIMEOUT "3600"/' {} +
# What gcov has to say (a folder that a test made read-only) must not get into a program's messages.
export GCOV_ERROR_FILE=$build/gcov.log
(cd "$build" && ctest --output-on-failure "$@") || echo "coverage: some tests are red, see above"

python3 - "$build" <<'END'
import collections, json, pathlib, subprocess, sys

build = pathlib.Path(sys.argv[1])
source = build.parent / "src"
ran = collections.defaultdict(dict)  # room -> (file, line) -> has run
notes = sorted(map(str, build.glob("**/dt*.dir/**/*.gcno")))
for first in range(0, len(notes), 50):
    gcov = ["gcov", "--json-format", "--stdout", *notes[first : first + 50]]
    for text in subprocess.run(gcov, capture_output=True, check=True).stdout.splitlines():
        unit = json.loads(text)
        for file in unit["files"]:
            path = pathlib.Path(unit["current_working_directory"], file["file"]).resolve()
            if path.is_relative_to(source):
                lines = ran[path.relative_to(source).parts[0]]
                for line in file["lines"]:
                    key = (path, line["line_number"])
                    lines[key] = lines.get(key, False) or line["count"] > 0
ran["sum"] = {key: value for lines in list(ran.values()) for key, value in lines.items()}
for room, lines in ran.items():
    covered = sum(lines.values())
    print(f"{room:12} {covered:6} of {len(lines):6} lines {100 * covered / len(lines):6.2f} %")
END
