#!/bin/bash
# A job of make_job.py under a real Slurm of two nodes, started here (tests/support/cluster.sh): the
# signal arrives before the time limit, the run saves and exits with 75, Slurm requeues the job, and
# the second start resumes from the checkpoint, loses a node, and ends on the other one with 0.
for tool in slurmctld slurmd sbatch scontrol squeue; do
    command -v $tool > /dev/null || {
        echo "no $tool: skipped"
        exit 77
    }
done
# shellcheck source=../support/cluster.sh
. "$(dirname "$0")/../support/cluster.sh"
cluster_test 2 "$0" "$@"
# shellcheck source=../e2e/common.sh
. "$(dirname "$0")/../e2e/common.sh"
on_first() { cluster_exec node1 "$@"; }

mkdir "$work/state"
export SLURM_CONF=$work/slurm.conf
# cred_expire: how long a requeued job has to wait.
cat > "$SLURM_CONF" <<CONF
ClusterName=dtrain
SlurmctldHost=node1
SlurmUser=root
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
NodeName=node[1-2] CPUs=2
PartitionName=main Nodes=node[1-2] Default=YES State=UP OverSubscribe=FORCE
CONF
on_first slurmctld -D -c > "$work/slurmctld.log" 2>&1 &
daemons=($!)
for node in node1 node2; do
    cluster_exec "$node" slurmd -D > "$work/slurmd-$node.log" 2>&1 &
    daemons+=($!)
done
until [ "$(on_first sinfo -h -N -t idle 2> /dev/null | wc -l)" = 2 ]; do
    for daemon in "${daemons[@]}"; do
        kill -0 "$daemon" || {
            tail -5 "$work"/slurm*.log
            echo "Slurm does not start on this machine: skipped"
            exit 77
        }
    done
    sleep 0.5
done

shapes train 10 1
shapes val 2 2
small_config > "$work/config.json"
# The job script finds this wrapper on PATH: endless at first, so out of the way of other tests, and five more steps
# after a restart, in which rank 1 stops for good.
mkdir "$work/bin"
cat > "$work/bin/dtrain" <<SH
#!/bin/bash
steps=0
if [ "\${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then
    steps=\$((\$(readlink run/checkpoints/latest | sed 's/step-0*//') + 5))
    export DTRAIN_FAULT=stop@\$((steps - 2)):1
fi
exec nice "$dtrain" "\$@" --set train.epochs=100000 --set train.max_steps=\$steps
SH
chmod +x "$work/bin/dtrain"
export PATH="$work/bin:$PATH"
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
cd "$work" || exit
"$here/../../scripts/make_job.py" --for slurm --nodes 2 --ranks-per-node 1 --cpus 1 --out run \
    --interface eth0 > dtrain.sbatch
job=$(on_first sbatch --parsable --time=60 --signal=B:USR1@600 dtrain.sbatch)
state_of() { on_first scontrol show job "$job" | sed -n "s/.*\\b$1=\\([^ ]*\\).*/\\1/p"; }
is_over() { [[ $(state_of JobState) =~ ^(COMPLETED|FAILED|TIMEOUT|CANCELLED|NODE_FAIL)$ ]]; }
wait_for() { until "$@" || is_over; do sleep 0.5; done; }
# Slurm looks every 30 s whether the end is 10 minutes away. It is once the run trains, however long that has taken,
# and no longer for the second start.
wait_for grep -qs '"event":"step"' run/metrics.jsonl
wait_for on_first scontrol update JobId="$job" TimeLimit=10
wait_for grep -q SIGUSR1 "dtrain-$job.log"
wait_for on_first scontrol update JobId="$job" TimeLimit=60
has_stopped() { [[ $(grep -c '"event":"run_start"' run/metrics.jsonl) == 2 && -n $(pgrep -r T -x dtrain) ]]; }
wait_for has_stopped
cluster_kill node2
wait_for grep -q '"exit_code":0' run/metrics.jsonl
on_first scontrol update NodeName=node2 State=DOWN Reason=lost # Slurm would notice it after minutes
wait_for false
show() {
    cat "dtrain-$job.log" >&2
    on_first scontrol show job "$job" >&2
    fail "$1"
}
state=$(state_of JobState)
[ "$state" = COMPLETED ] || show "the job ended as $state"
[ "$(state_of Restarts)" = 1 ] || show "not one restart"
[ "$(state_of ExitCode)" = 0:0 ] || show "exit code"
/usr/bin/python3 - run/metrics.jsonl <<'PY' || show "events"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
runs = [e for e in events if e["event"] == "run_start"]
starts = [e["start_step"] for e in runs]
ends = [(e["exit_code"], e["steps"]) for e in events if e["event"] == "run_end"]
stop = ends[0][1]
assert [code for code, _ in ends] == [75, 0], ends
assert starts == [0, stop, stop] and ends[1][1] == stop + 5, (starts, ends)
two, one = {"node1": 1, "node2": 1}, {"node1": 1}
assert [e["hosts"] for e in runs] == [two, two, one], runs
print(f"two nodes, stop after step {stop} with 75, restart, a node lost, restart on the other, exit with 0")
PY
grep -q "SIGUSR1" "dtrain-$job.log" || show "stopped, but not by the signal"
