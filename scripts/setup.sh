#!/usr/bin/env bash
# Installs what dtrain needs on Debian 12+ or Ubuntu 24.04+ and builds it.
#
#   scripts/setup.sh [build|test] [PRESET] [CMAKE OPTIONS]
#
# build: installs the packages to build and run, builds the program. test: also those for the tests,
# and the tests. PRESET: release (default), dev, asan, tsan. Uses sudo unless run as root.
# DTRAIN_NO_INSTALL=1 installs nothing; DTRAIN_TARGETS="A B" builds these only.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-build}
preset=${2:-release}
shift $(($# < 2 ? $# : 2))
# shellcheck source=scripts/packages.sh
. scripts/packages.sh

packages=$BUILD_PACKAGES
[ "$what" = test ] && packages="$packages $TEST_PACKAGES"
missing=()
for package in $packages; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -q '^installed$' ||
        missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ] && [ "${DTRAIN_NO_INSTALL:-0}" != 1 ]; then
    echo "setup: installing ${missing[*]}"
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get -qq update
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

build=build
[ "$preset" = release ] || build=build-$preset
echo "setup: building $preset in $build"
cmake --preset "$preset" -G Ninja "$@" >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }
rm -f "$build.log"
target=all
[ "$what" = test ] || target=dtrain
# shellcheck disable=SC2086 # a list
cmake --build "$build" -j "$(nproc)" --target ${DTRAIN_TARGETS:-$target}
