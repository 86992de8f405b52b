#!/bin/bash
# scripts/slurm/dtrain.sbatch under a real Slurm of one node, started here: the signal arrives
# before the time limit, the run saves and exits with 75, Slurm requeues the job, and the second
# start resumes from the checkpoint and exits with 0.
. "$(dirname "$0")/../e2e/common.sh"
for tool in slurmctld slurmd sbatch scontrol squeue; do
    command -v $tool > /dev/null || {
        echo "no $tool: skipped"
        exit 77
    }
done
[ "$(id -u)" = 0 ] || {
    echo "slurmd needs root: skipped"
    exit 77
}

node=$(hostname -s)
port=$(/usr/bin/python3 -c 'import socket
s = [socket.socket() for _ in range(2)]
[x.bind(("127.0.0.1", 0)) for x in s]
print(*[x.getsockname()[1] for x in s])')
mkdir "$work/state" "$work/spool"
export SLURM_CONF=$work/slurm.conf
# cred_expire: how long a requeued job has to wait.
cat > "$SLURM_CONF" <<CONF
ClusterName=dtrain
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
SlurmctldPort=${port% *}
SlurmdPort=${port#* }
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
NodeName=$node NodeAddr=127.0.0.1 CPUs=2
PartitionName=main Nodes=$node Default=YES State=UP OverSubscribe=FORCE
CONF
daemons=()
stop_slurm() {
    [ -z "${job:-}" ] || scancel "$job" 2> /dev/null || true
    for pid in "${daemons[@]}"; do
        kill "$pid" 2> /dev/null || true
        wait "$pid" 2> /dev/null || true
    done
    rm -rf "$work"
}
trap stop_slurm EXIT
slurmctld -D -c > "$work/slurmctld.log" 2>&1 &
daemons+=($!)
slurmd -D > "$work/slurmd.log" 2>&1 &
daemons+=($!)
is_up() { sinfo -h -o %T 2> /dev/null | grep -q idle; }
for _ in $(seq 60); do
    if is_up; then break; fi
    sleep 0.5
done
is_up || {
    tail -5 "$work"/slurm*.log
    echo "Slurm does not start on this machine: skipped"
    exit 77
}

shapes train 10 1
shapes val 2 2
small_config > "$work/config.json"
# The job script finds this wrapper on PATH: endless at first, five more steps after a restart.
mkdir "$work/bin"
cat > "$work/bin/dtrain" <<SH
#!/bin/bash
steps=0
if [ "\${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then
    steps=\$((\$(readlink run/checkpoints/latest | sed 's/step-0*//') + 5))
fi
exec "$dtrain" "\$@" --set train.epochs=100000 --set train.max_steps=\$steps
SH
chmod +x "$work/bin/dtrain"
export PATH="$work/bin:$PATH"
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
cd "$work" || exit
# The limit is two minutes; the signal is sent 80 s before the end or up to half a minute earlier.
job=$(sbatch --parsable --time=2 --signal=B:USR1@80 --nodes=1 --ntasks-per-node=2 \
    --cpus-per-task=1 "$here/../../scripts/slurm/dtrain.sbatch")
state_of() { scontrol show job "$job" | sed -n "s/.*\\b$1=\\([^ ]*\\).*/\\1/p"; }
for _ in $(seq 300); do
    state=$(state_of JobState)
    case $state in
    COMPLETED | FAILED | TIMEOUT | CANCELLED | NODE_FAIL) break ;;
    esac
    sleep 0.5
done
show() {
    cat "dtrain-$job.log" >&2
    scontrol show job "$job" >&2
    fail "$1"
}
[ "$state" = COMPLETED ] || show "the job ended as $state"
[ "$(state_of Restarts)" = 1 ] || show "not one restart"
[ "$(state_of ExitCode)" = 0:0 ] || show "exit code"
/usr/bin/python3 - run/metrics.jsonl <<'PY' || show "events"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
starts = [e["start_step"] for e in events if e["event"] == "run_start"]
ends = [(e["exit_code"], e["steps"]) for e in events if e["event"] == "run_end"]
stop = ends[0][1]
assert [code for code, _ in ends] == [75, 0], ends
assert starts == [0, stop] and ends[1][1] == stop + 5, (starts, ends)
print(f"signal, stop after step {stop} with 75, restart at {stop}, exit with 0")
PY
grep -q "SIGUSR1" "dtrain-$job.log" || show "stopped, but not by the signal"
