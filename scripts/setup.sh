#!/usr/bin/env bash
# Installs what dtrain needs on Debian 12+ or Ubuntu 24.04+ and builds it.
#
#   scripts/setup.sh [--user] [build|test] [PRESET] [CMAKE OPTIONS]
#
# build: installs the packages to build and run, builds the program. test: also those for the tests,
# and the tests. PRESET: release (default), dev, asan, tsan. Uses sudo unless run as root. --user: on
# any Linux, installs nothing, builds with what modules, Spack, conda and Python offer, and says how to
# get what is missing.
# DTRAIN_NO_INSTALL=1 installs nothing; DTRAIN_TARGETS="A B" builds these only.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --user ]; then
    shift
    # shellcheck source=scripts/user.sh
    . scripts/user.sh
    check_needs
    DTRAIN_NO_INSTALL=1
fi
what=${1:-build}
preset=${2:-release}
shift $(($# < 2 ? $# : 2))
# shellcheck source=scripts/packages.sh
. scripts/packages.sh

# The packages that are not installed.
missing_of() {
    comm -23 <(printf '%s\n' "$@" | sort) <(
        dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
            sed -n 's/^installed //p' | sort
    )
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

apt_install() {
    echo "setup: installing $*"
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install -y --no-install-recommends "$@" >/dev/null
}

# In build-python, for all presets, a Python that has what only PyPI has, and sees Debian's packages.
make_python() {
    local wanted
    wanted=$(/usr/bin/python3 --version && cat tests/requirements.txt)
    [ "$(cat build-python/installed 2>/dev/null)" != "$wanted" ] || return 0
    echo "setup: installing tests/requirements.txt in build-python"
    /usr/bin/python3 -m venv --clear --system-site-packages build-python &&
        build-python/bin/pip install -qq --retries 1 -r tests/requirements.txt &&
        echo "$wanted" >build-python/installed
}

# What a few tests need: without it they are skipped.
install_for_few() {
    local missing known
    # shellcheck disable=SC2086 # a list
    mapfile -t missing < <(missing_of $FEW_TESTS_PACKAGES)
    if [ ${#missing[@]} -gt 0 ]; then
        as_root apt-get -qq update
        mapfile -t known < <(apt-cache pkgnames | grep -xF "$(printf '%s\n' "${missing[@]}")")
        [ ${#known[@]} = 0 ] || apt_install "${known[@]}"
        mapfile -t missing < <(missing_of "${missing[@]}")
    fi
    make_python || missing+=(tests/requirements.txt)
    [ ${#missing[@]} = 0 ] ||
        echo "setup: the tests are skipped that need what cannot be installed: ${missing[*]}"
}

if [ "${DTRAIN_NO_INSTALL:-0}" != 1 ]; then
    packages=$BUILD_PACKAGES
    [ "$what" = test ] && packages="$packages $TEST_PACKAGES"
    # shellcheck disable=SC2086 # a list
    mapfile -t missing < <(missing_of $packages)
    if [ ${#missing[@]} -gt 0 ]; then
        as_root apt-get -qq update
        apt_install "${missing[@]}"
    fi
    # The build does not need them.
    if [ "$what" = test ]; then install_for_few & fi
fi

build=build
[ "$preset" = release ] || build=build-$preset
echo "setup: building $preset in $build"
cmake --preset "$preset" -G Ninja "$@" >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }
kernels='with kernels for GPU generations \1, most of a build; -DDTRAIN_CUDA=OFF leaves them out,'
sed -n "s/^-- CUDA backend: .*, architectures \(.*\)/setup: $kernels -DCMAKE_CUDA_ARCHITECTURES=90 takes one/p" "$build.log"
rm -f "$build.log"
target=all
[ "$what" = test ] || target=dtrain
# shellcheck disable=SC2086 # a list
cmake --build "$build" -j "$(nproc)" --target ${DTRAIN_TARGETS:-$target}
wait
