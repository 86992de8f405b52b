#!/usr/bin/env bash
# Tries the last commit on another system, in a chroot that debootstrap makes, as root:
#
#   scripts/try_on.sh SYSTEM FOLDER [ctest options]     # SYSTEM: debian12 debian13 ubuntu24.04 arm64
#
# arm64 is cross-built on Debian 12 and run by qemu, which stays registered until the machine restarts;
# there only tests run, by default -L 'unit|ops|plan|fuzz', for an hour.
# STEPS='tests|tr_TR' runs only these of the steps below. FOLDER keeps the logs and the chroots: later
# calls use them again, with a fresh clone.
# shellcheck disable=SC2317 # the steps are called by their names
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh
system=$1 folder=$(realpath -m "$2")
shift 2
steps="quickstart tests tr_TR de_DE tmpdir read_only package user"
sources="/home/user/dtrain sources"
export DEBIAN_FRONTEND=noninteractive

# The README's commands.
quickstart() { scripts/quickstart.sh; }
tests() { scripts/test.sh dev "$@"; }

# Quick start, and the tests of what reads or prints numbers and text, and makes temporary files.
part='^(fuzz|docs)/|^unit/(base|boxes_coco|checkpoint|cli|config|data_csv|events|page)'
part+='|^e2e/(bench|eval|predict|report|resume|shard|trace)'
some() {
    scripts/quickstart.sh
    scripts/test.sh dev -R "$part"
}

with_locale() {
    apt-get -qq install -y locales >/dev/null
    localedef -i "$1" -f UTF-8 "$1.UTF-8"
    LANG=$1.UTF-8 LC_ALL=$1.UTF-8 some
}
tr_TR() { with_locale tr_TR; }
de_DE() { with_locale de_DE; }

tmpdir() {
    local folder
    folder="/var/tmp/my own $(printf 'x%.0s' {1..100})"
    mkdir -p "$folder"
    TMPDIR=$folder some
}

# Builds elsewhere, and everything in the sources stays as it is.
read_only() {
    local build="/var/tmp/built elsewhere"
    mount --bind "$PWD" "$PWD"
    mount -o remount,bind,ro "$PWD"
    cmake -S "$PWD" -B "$build" -G Ninja -DDTRAIN_CUDA=OFF
    cmake --build "$build"
    ctest --test-dir "$build" -j "$(nproc)" --output-on-failure -R "$part|^unit/"
}

package() {
    scripts/setup.sh build
    rm -f build/*.deb
    (cd build && cpack -G DEB)
}

# In a fresh system: installs the package, and an ordinary user trains.
user() {
    apt-get -qq update
    apt-get -qq install -y --no-install-recommends /tmp/dtrain_*.deb openmpi-bin mandoc >/dev/null
    useradd -m someone
    su - someone -c 'set -e; /usr/share/dtrain/scripts/quickstart.sh
        mandoc -Tlint -Wwarning /usr/share/man/man1/dtrain*
        test -f /usr/share/bash-completion/completions/dtrain'
}

# Compilers and tools of this machine's architecture; libraries and mpirun are arm64's.
arm64() {
    local packages
    dpkg --add-architecture arm64
    apt-get -qq update
    packages=$(printf '%s\n' gcc-aarch64-linux-gnu qemu-user-static "$@" |
        sed -E '/random123/! s/^(lib.*|openmpi.*|zlib.*)/\1:arm64/')
    # shellcheck disable=SC2086 # a list
    apt-get -qq install -y --no-install-recommends $packages >/dev/null
    local formats=/proc/sys/fs/binfmt_misc
    [ -e "$formats/register" ] || mount -t binfmt_misc binfmt_misc "$formats"
    [ -e "$formats/qemu-aarch64" ] || cat /usr/lib/binfmt.d/qemu-aarch64.conf >"$formats/register"
    printf 'set(CMAKE_%s)\n' 'SYSTEM_NAME Linux' 'SYSTEM_PROCESSOR aarch64' \
        'C_COMPILER aarch64-linux-gnu-gcc' >/root/arm64.cmake
}

# enter CHROOT FUNCTION [ARGUMENTS]. The mounts vanish with their namespace. The chroot must be a mount,
# so that tests can create namespaces in it.
# shellcheck disable=SC2016 # for the inner shell
enter() {
    unshare -m bash -euc '
        mount --rbind "$1" "$1"
        for dir in proc sys dev; do mount --rbind "/$dir" "$1/$dir"; done
        if [ -d ../shared ]; then
            mkdir -p "$1/home/user/shared"
            mount --bind ../shared "$1/home/user/shared"
        fi
        exec chroot "$@"' mounts "$folder/$1" \
        bash -euc "$(declare -f); part='$part'; cd \"\$1\"; shift; \"\$@\"" steps "$2" "${@:3}"
}

mirror=http://deb.debian.org/debian components=main
case $system in
debian12 | arm64) suite=bookworm ;;
debian13) suite=trixie ;;
ubuntu24.04) suite=noble mirror=http://archive.ubuntu.com/ubuntu components=main,universe ;;
*) echo "try_on: '$system' is none of debian12, debian13, ubuntu24.04, arm64" >&2 && exit 2 ;;
esac
mkdir -p "$folder"
[ -d "$folder/fresh/root" ] ||
    debootstrap --variant=minbase "--components=$components" "$suite" "$folder/fresh" $mirror
cp /etc/hosts /etc/resolv.conf "$folder/fresh/etc/"
[ -d "$folder/system" ] || cp -a "$folder/fresh" "$folder/system"
rm -rf "${folder:?}/system$sources"
git clone -q . "$folder/system$sources"
if [ "$system" = arm64 ]; then
    # shellcheck disable=SC2086 # a list
    enter system / arm64 $BUILD_PACKAGES libcmocka-dev python3
    export CMAKE_TOOLCHAIN_FILE=/root/arm64.cmake DTRAIN_NO_INSTALL=1
    export PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig
    steps=tests
    [ $# -gt 0 ] || set -- -L 'unit|ops|plan|fuzz'
fi

result=0
for step in $steps; do
    [[ $step =~ ^(${STEPS:-.*})$ ]] || continue
    began=$SECONDS says=passed chroot=system place=$sources
    if [ "$step" = user ]; then
        chroot=user place=/
        rm -rf "$folder/user"
        cp -a "$folder/fresh" "$folder/user"
        cp "$folder/system$sources"/build/dtrain_*.deb "$folder/user/tmp" || true
    fi
    enter $chroot "$place" "$step" "$@" >"$folder/$step.log" 2>&1 || says=FAILED result=1
    echo "try_on: $system: $step $says, $((SECONDS - began)) s: $folder/$step.log"
done
exit $result
