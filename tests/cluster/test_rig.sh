#!/usr/bin/env bash
# The machines of support/cluster.sh are separate and connected as they say, and leave nothing behind.
cluster=$(dirname "$0")/../support/cluster.sh

# Those of all processes that can be seen.
namespaces() { readlink /proc/[0-9]*/ns/{net,pid,mnt,uts} 2> /dev/null | sort -u || true; }

if [[ ${1:-} == inside ]]; then
    # shellcheck source-path=SCRIPTDIR source=../support/cluster.sh
    . "$cluster"
    set -e
    marks=$2
    fail() {
        echo "FAILED: $1"
        exit 1
    }
    reach() { [[ $(cluster_exec "$1" ssh -o ConnectTimeout="$3" "$2" hostname) == "$2" ]]; }
    reachable() { reach node1 node2 20 || fail "node1 does not reach node2 after $1"; }
    unreachable() { ! reach node1 node2 1 2> /dev/null || fail "node1 reaches node2 after $1"; }
    namespaces > "$marks/namespaces"
    touch "$marks/up"
    [[ $3 != stay ]] || sleep 1000

    reachable "the start"
    reach node2 node3 20 || fail "node2 does not reach node3"
    for folder in /tmp /root /run /dev/shm /media/own; do
        cluster_exec node1 touch "$folder/mine"
        ! cluster_exec node2 test -e "$folder/mine" || fail "$folder is shared"
    done
    cluster_exec node1 touch /media/shared/ours
    cluster_exec node2 test -e /media/shared/ours || fail "/media/shared is not shared"

    cluster_cut node2
    unreachable "a cut"
    cluster_heal node2
    reachable "a cut healed"
    cluster_unplug node2
    unreachable "the loss of its port"
    cluster_plug node2
    reachable "its port returned"
    cluster_kill node2
    unreachable "a kill"
    cluster_restart node2
    reachable "a new start"

    mkdir /media/shared/data
    echo same > /media/shared/data/file
    cluster_private node2 /media/shared/data
    cluster_exec node2 rm /media/shared/data/file
    cluster_exec node1 cat /media/shared/data/file > /dev/null || fail "the copy of node2 is not its own"
    cluster_small node3 /media/shared/data 8192
    ! cluster_exec node3 dd if=/dev/zero of=/media/shared/data/large bs=16k count=1 2> /dev/null ||
        fail "16 kB fit on a disk of 8 kB"

    cluster_env node2 ONEDNN_MAX_CPU_ISA=AVX2
    # shellcheck disable=SC2016 # for the shell there
    [[ $(cluster_exec node1 ssh node2 'echo $ONEDNN_MAX_CPU_ISA') == AVX2 ]] || fail "no environment"
    cluster_clock node2 +5
    ahead=$(($(cluster_exec node1 ssh node2 date +%s) - $(date +%s)))
    ((ahead >= 17990 && ahead < 19000)) || fail "the clock of node2 is $ahead s ahead"

    megabyte() { cluster_exec node1 bash -c 'head -c 1000000 /dev/zero | ssh node3 wc -c'; }
    cluster_rate node3 10mbit
    begin=$(date +%s%N)
    [[ $(megabyte) == 1000000 ]] || fail "a megabyte does not arrive"
    (($(date +%s%N) - begin > 700000000)) || fail "a megabyte took less than 0.7 s at 10 Mbit/s"
    cluster_delay node3 100
    begin=$(date +%s%N)
    [[ $(megabyte) == 1000000 ]] || fail "a megabyte does not arrive through the relay"
    (($(date +%s%N) - begin > 800000000)) || fail "four round trips of 0.2 s took less than that"
    exit 0
fi

work=$(mktemp -d)
rig=0
trap '[[ $rig == 0 ]] || kill -9 $rig 2> /dev/null; rm -rf "$work"' EXIT

# Fails if the rig has left a process, and with it a namespace and its links and mounts, or a mount
# or link here.
gone() {
    local left=1
    [[ -s $work/namespaces ]] || { echo "FAILED: no namespaces noted"; exit 1; }
    for _ in $(seq 1000); do
        left=$(namespaces | comm -12 - "$work/namespaces" | comm -23 - "$work/before")
        [[ -n $left ]] || break
        sleep 0.1
    done
    [[ -z $left ]] || { echo "FAILED: left after $1: $left"; exit 1; }
    ! grep -E "^cluster | /media/(own|shared) " /proc/mounts || { echo "FAILED: a mount after $1"; exit 1; }
    ! ip link show switch 2> /dev/null || { echo "FAILED: a link after $1"; exit 1; }
    rm -f "$work/up" "$work/namespaces"
}
namespaces > "$work/before"
bash "$cluster" run 3 bash "$0" inside "$work" go
code=$?
[[ $code == 0 ]] || exit $code
gone "the end"
bash "$cluster" run 2 bash "$0" inside "$work" stay &
rig=$!
until [[ -e $work/up ]]; do
    kill -0 $rig || exit 1
    sleep 0.1
done
kill -9 $rig
wait $rig 2> /dev/null
gone "SIGKILL"
rig=0
