#!/usr/bin/env bash
# The quick start and all tests of the last commit in another Debian, as root, in a chroot:
#
#   scripts/debian_check.sh SUITE FOLDER [ctest options]      # SUITE: trixie (13), bookworm (12)
#
# debootstrap installs that Debian in FOLDER; a later call uses it again, with a fresh clone.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=$1 root=$(realpath -m "$2")
shift 2

[ -d "$root/root" ] || debootstrap --variant=minbase "$suite" "$root" http://deb.debian.org/debian
cp /etc/hosts /etc/resolv.conf "$root/etc/"
rm -rf "$root/root/dtrain"
git clone -q . "$root/root/dtrain"

# The mounts end with their namespace. The chroot is a mount too: in it, tests make namespaces.
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
