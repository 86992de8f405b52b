#!/usr/bin/env bash
# Two to four "machines" on one host, to test what dtrain does on a cluster.
#
#     tests/support/cluster.sh run 3 COMMAND...    # COMMAND sees the machines node1, node2 and node3
#     tests/support/cluster.sh exec node1 mpirun --host node1:2,node2:2 ...    # in COMMAND
#
# A machine is a process tree with namespaces (network, PID, UTS, IPC, mount) and an sshd of its own.
# Everything hangs under one PID namespace whose first process dies with `run`, so nothing is left
# behind, also after SIGKILL: processes, links, mounts and files (they are in a tmpfs) go with it.
# A machine has its own host name, /proc, /tmp, /run, /dev/shm, HOME and /media/own; /media/shared
# and the rest of the file system are the same on all. It reaches the others by name, with ssh as
# root without a password, through a bridge ("switch") that no other network is connected to.
#
# To source it instead: cluster_exec node1 ..., and so on.
set -uo pipefail
CLUSTER=/media
CLUSTER_SELF=$(realpath "${BASH_SOURCE[0]}")
CLUSTER_REPOSITORY=$(realpath "$(dirname "$CLUSTER_SELF")/../..")

# Why there can be no cluster here; nothing if there can.
cluster_missing() {
    [[ $(id -u) == 0 ]] || { echo "not root"; return; }
    local tool
    for tool in ip tc unshare nsenter setpriv ssh ssh-keygen /usr/sbin/sshd mpirun python3; do
        [[ -n $(type -p "$tool") ]] || { echo "$tool is missing"; return; }
    done
    unshare --pid --fork --mount --mount-proc --net ip link add name left type veth peer name right 2> /dev/null ||
        echo "no permission to create namespaces and links"
}

# COMMAND...: runs it in the rig's own namespaces, without machines yet. Exits with its code, 77
# where that is not possible.
cluster_inside() {
    local reason
    reason=$(cluster_missing)
    [[ -z $reason ]] || { echo "skipped: $reason"; exit 77; }
    # The first process of a PID namespace gets no signal it has no handler for.
    # shellcheck disable=SC2016
    exec setpriv --pdeathsig KILL unshare --pid --fork --kill-child --mount --mount-proc --net bash -c '
        trap "exit 143" INT TERM HUP
        mount -t tmpfs -o mode=755 cluster "$0" && ip link set lo up || exit
        "$@" <&0 &
        wait $!' "$CLUSTER" "$@"
}

# N COMMAND...: N machines and then COMMAND, in namespaces of their own.
cluster_run() {
    # shellcheck disable=SC2016
    cluster_inside bash -c '"$0" up "$1" && shift && exec "$@"' "$CLUSTER_SELF" "$@"
}

# N "$0" "$@": runs a test of the program $1 again, with N machines; there it goes on behind this call,
# with its temporary files in the shared folder.
cluster_test() {
    if [ "${4:-}" != inside ]; then
        export CLUSTER_KEEP
        CLUSTER_KEEP=$(dirname "$(realpath "$3")")
        cluster_run "$1" bash "$2" "$3" inside
    fi
    export TMPDIR=$CLUSTER/shared
}

# PATH NEW: mounts folder NEW at PATH; what the test needs below PATH stays visible.
cluster_hide() {
    local keep
    for keep in "$CLUSTER_REPOSITORY" "$PWD" ${CLUSTER_KEEP:-}; do
        [[ $keep == "$1"/* && -e $keep ]] || continue
        mkdir -p "$2${keep#"$1"}"
        mount --rbind "$keep" "$2${keep#"$1"}"
    done
    mount --rbind "$2" "$1"
}

# The first process of machine $1, in its namespaces.
cluster_boot() {
    local own=$CLUSTER/$1
    hostname "$1"
    ip link set lo up
    mount --bind "$CLUSTER/hosts" /etc/hosts
    mount -t tmpfs none /run
    mount -t tmpfs none /dev/shm
    mkdir -p /run/sshd "$CLUSTER/own"
    mount --bind "$own/own" "$CLUSTER/own"
    cluster_hide /tmp "$own/tmp"
    cluster_hide /root "$own/home"
    exec /usr/sbin/sshd -D -e -f "$CLUSTER/sshd_config" 2> "$own/sshd.log"
}

cluster_keys() {
    mkdir -p "$CLUSTER/shared" "$CLUSTER/own" "$CLUSTER/keys"
    mount -t tmpfs shared "$CLUSTER/shared"
    ssh-keygen -q -t ed25519 -N '' -f "$CLUSTER/keys/host"
    ssh-keygen -q -t ed25519 -N '' -f "$CLUSTER/keys/user"
    cat > "$CLUSTER/sshd_config" << END
HostKey $CLUSTER/keys/host
AuthorizedKeysFile $CLUSTER/keys/user.pub
PermitRootLogin prohibit-password
PermitUserEnvironment yes
StrictModes no
UsePAM no
PidFile none
END
    cat > "$CLUSTER/ssh_config" << END
IdentityFile $CLUSTER/keys/user
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
END
    echo "127.0.0.1 localhost" > "$CLUSTER/hosts"
}

# N: starts machines node1 to nodeN and waits until their sshd answers.
cluster_up() {
    local i
    cluster_keys
    ip link add name switch type bridge forward_delay 0
    ip link set switch up
    for ((i = 1; i <= $1; i++)); do echo "10.77.0.$i node$i" >> "$CLUSTER/hosts"; done
    for ((i = 1; i <= $1; i++)); do cluster_start "node$i"; done
    for ((i = 1; i <= $1; i++)); do cluster_ready "node$i" || return; done
}

# NODE: a boot; its link is as at first.
cluster_restart() {
    cluster_kill "$1" 2> /dev/null || true
    cluster_start "$1" && cluster_ready "$1"
}

# NODE: waits until its sshd answers.
cluster_ready() {
    until cluster_exec "$1" ssh -o ConnectTimeout=1 localhost true 2> /dev/null; do
        kill -0 "$(cluster_pid "$1")" || { cat "$CLUSTER/$1"/*.log >&2; return 1; }
        sleep 0.1
    done
}

# NODE: starts one machine.
cluster_start() {
    local own=$CLUSTER/$1 outer pid=
    rm -rf --one-file-system "${own:?}/tmp" "${own:?}/home"
    mkdir -p "$own/tmp" "$own/home/.ssh" "$own/own"
    cp "$CLUSTER/ssh_config" "$own/home/.ssh/config"
    : > "$own/home/.ssh/environment"
    # CLUSTER_KEEP: the build folder. See tests/support/patient.c.
    local patient=${CLUSTER_KEEP:-}/tests/patient.so
    if [[ -e $patient ]]; then # LD_PRELOAD cuts paths at blanks
        ln -sf "$patient" "$CLUSTER/patient.so"
        echo "LD_PRELOAD=$CLUSTER/patient.so" >> "$own/home/.ssh/environment"
    fi
    unshare --net --uts --ipc --pid --fork --kill-child --mount --mount-proc \
        bash "$CLUSTER_SELF" boot "$1" < /dev/null > /dev/null 2> "$own/boot.log" &
    outer=$!
    until [[ -n $pid ]]; do
        sleep 0.02
        read -r pid < "/proc/$outer/task/$outer/children" || kill -0 $outer || return
    done
    echo "$pid" > "$own/pid"
    ip link del "$1" 2> /dev/null || true
    # The old address, because the others still know it.
    local eth0=(peer name eth0 address "02:00:00:00:00:0${1#node}" netns "$pid")
    until ip link add name "$1" type veth "${eth0[@]}" 2> /dev/null; do sleep 0.02; done
    ip link set "$1" master switch up
    nsenter -t "$pid" -n ip addr add "10.77.0.${1#node}/24" dev eth0
    nsenter -t "$pid" -n ip link set eth0 up
}

cluster_pid() { cat "$CLUSTER/$1/pid"; }

# NODE COMMAND...: runs it on the machine, in the same folder; it dies if this process is killed.
cluster_exec() {
    local node=$1 pid
    shift
    pid=$(cluster_pid "$node")
    # shellcheck disable=SC2016
    setpriv --pdeathsig KILL nsenter -t "$pid" -m -u -i -n -p setpriv --pdeathsig KILL bash -c '
        export HOME=/root TMPDIR=/tmp
        set -a; . /root/.ssh/environment; set +a
        cd "$0" && exec "$@"' "$PWD" "$@"
}

# NODE NAME=VALUE...: environment of what starts there from now on.
cluster_env() {
    local node=$1
    shift
    printf '%s\n' "$@" >> "$CLUSTER/$node/home/.ssh/environment"
}

# NODE HOURS: the clock of what starts there from now on is wrong by so much, such as +5 or -5. (Only
# the monotonic clock belongs to a namespace.)
cluster_clock() {
    local library=$CLUSTER/wrong_clock.so
    cc -shared -fPIC -O2 -o "$library" "$CLUSTER_REPOSITORY/tests/support/wrong_clock.c" || return
    cluster_env "$1" "LD_PRELOAD=$library" "WRONG_CLOCK_S=$(($2 * 3600))"
}

# NODE: the cable is pulled (the machine sees no carrier), and put back.
cluster_cut() { ip link set "$1" down; }
cluster_heal() { ip link set "$1" up; }

# NODE: the switch forgets its port (the machine sees a link, but nothing passes), and knows it again.
cluster_unplug() { ip link set "$1" nomaster; }
cluster_plug() { ip link set "$1" master switch; }

# NODE: all its processes are killed; their connections are closed.
cluster_kill() { kill -9 "$(cluster_pid "$1")"; }

# NODE: all its processes are stopped, as in a frozen virtual machine, and go on.
cluster_pause() { pkill -STOP --ns "$(cluster_pid "$1")" --nslist pid .; }
cluster_wake() { pkill -CONT --ns "$(cluster_pid "$1")" --nslist pid .; }

# NODE: the power fails; the others hear nothing.
cluster_off() { cluster_cut "$1" && cluster_kill "$1"; }

# NODE RATE: limits its link in both directions, such as 10mbit.
cluster_rate() {
    local limit=(root tbf rate "$2" burst 64kb latency 200ms)
    tc qdisc replace dev "$1" "${limit[@]}"
    nsenter -t "$(cluster_pid "$1")" -n tc qdisc replace dev eth0 "${limit[@]}"
}

# NODE MILLISECONDS: delays each of its packets, in both directions. Not with `unplug`.
cluster_delay() {
    ip link add name "relay-$1" type veth peer name "port-$1"
    ip link set "relay-$1" up
    ip link set "port-$1" master switch up
    ip link set "$1" nomaster
    python3 "$(dirname "$CLUSTER_SELF")/delay_packets.py" "$1" "relay-$1" "$2" \
        < /dev/null > "$CLUSTER/$1/relay.log" 2>&1 &
}

# NODE FOLDER: from now on the machine has a copy of its own.
cluster_private() {
    local copy
    copy=$CLUSTER/$1/copy-$(date +%N)
    cp -a "$2" "$copy"
    cluster_exec "$1" mount --bind "$copy" "$2"
}

# NODE FOLDER BYTES: from now on there is an empty disk of that size.
cluster_small() { cluster_exec "$1" mount -t tmpfs -o "size=$3" none "$2"; }

# BYTES: the size of /media/shared from now on.
cluster_shrink() { mount -o "remount,size=$1" "$CLUSTER/shared"; }

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    verb=$1
    shift
    # Nothing here may touch the host's own links and processes.
    [[ $verb =~ ^(run|inside|missing)$ ]] || grep -q "^cluster $CLUSTER " /proc/mounts ||
        { echo "cluster.sh $verb: only in a command of cluster.sh run" >&2; exit 64; }
    "cluster_$verb" "$@"
fi
