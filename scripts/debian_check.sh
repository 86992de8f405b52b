#!/usr/bin/env bash
# Runs the quick start and all tests of the last commit in a chroot with another Debian, as root:
#
#   scripts/debian_check.sh SUITE FOLDER [ctest options]      # SUITE: trixie (13), bookworm (12)
#
# debootstrap installs that Debian in FOLDER; later calls reuse it with a fresh clone.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=$1 root=$(realpath -m "$2")
shift 2

[ -d "$root/root" ] || debootstrap --variant=minbase "$suite" "$root" http://deb.debian.org/debian
cp /etc/hosts /etc/resolv.conf "$root/etc/"
rm -rf "$root/root/dtrain"
git clone -q . "$root/root/dtrain"

# The mounts vanish with their namespace. The chroot must be a mount, so that tests can create
# namespaces in it.
# shellcheck disable=SC2016 # for the inner shells
unshare -m bash -euc '
    mount --rbind "$1" "$1"
    for dir in proc sys dev; do mount --rbind /$dir "$1/$dir"; done
    if [ -d ../shared ]; then
        mkdir -p "$1/root/shared"
        mount --bind ../shared "$1/root/shared"
    fi
    exec chroot "$@"' mounts \
    "$root" bash -euc 'cd /root/dtrain; scripts/quickstart.sh; scripts/test.sh dev "$@"' checks "$@"
