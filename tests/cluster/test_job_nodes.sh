#!/bin/bash
# Jobs of make_job.py for PBS and LSF on two machines, with stand-ins for the schedulers' commands but
# a real mpirun, which finds the nodes in the job's list of hosts and starts its daemons with ssh:
# PBS's job stops before its walltime with 75 and submits itself again, and LSF's resumes on the same
# nodes in another order, stops on SIGUSR1 and is requeued. A variable of the job names the run folder.
# shellcheck source=../support/cluster.sh
. "$(dirname "$0")/../support/cluster.sh"
if [ "${2:-}" != inside ]; then
    export CLUSTER_KEEP
    CLUSTER_KEEP=$(dirname "$(realpath "$1")")
    cluster_run 2 bash "$0" "$1" inside
fi
export TMPDIR=$CLUSTER/shared
# shellcheck source=../e2e/common.sh
. "$(dirname "$0")/../e2e/common.sh"
cd "$work" || exit
mkdir bin
ln -s "$dtrain" bin/dtrain
cat > bin/qstat <<'SH'
#!/bin/bash
echo "    Resource_List.walltime = 00:00:16"
SH
for name in qsub brequeue; do
    cat > bin/$name <<SH
#!/bin/bash
echo "$name \$*" >> "$work/calls"
SH
done
chmod +x bin/qstat bin/qsub bin/brequeue
export PATH="$work/bin:$PATH" PBS_JOBID=7 LSB_JOBID=8 PBS_O_WORKDIR=$work
export PBS_NODEFILE=$work/pbs.hosts LSB_DJOB_HOSTFILE=$work/lsf.hosts
printf 'node1\nnode2\n' > pbs.hosts
printf 'node2\nnode2\nnode1\nnode1\n' > lsf.hosts
small_config | sed "s|\"output\": {|&\"dir\": \"\${SCRATCH}/run\", |;s|\"max_steps\": 20, ||;
    s|\"epochs\": 100|\"epochs\": 100000|" > config.json
shapes train 10 1
shapes val 2 2
for kind in pbs lsf; do
    "$here/../../scripts/make_job.py" --for $kind --nodes 2 --ranks-per-node 1 --interface eth0 \
        --env SCRATCH="$work" > dtrain.$kind
done

code=0
cluster_exec node1 bash dtrain.pbs > log 2>&1 || code=$?
[ $code = 75 ] || fail "PBS: exit code $code: $(cat log)"
# shellcheck disable=SC2016 # for the inner shell
cluster_exec node2 bash -c 'echo $$ > pid && exec bash dtrain.lsf' > log 2>&1 &
job=$!
for _ in $(seq 300); do
    if grep -q ' epoch .* step ' log; then break; fi
    sleep 0.2
done
# shellcheck disable=SC2016 # for the inner shell
cluster_exec node2 bash -c 'kill -USR1 "$(cat pid)"'
code=0
wait $job || code=$?
[ $code = 75 ] || fail "LSF: exit code $code: $(cat log)"
printf 'qsub -v DTRAIN_RESTARTS=1 dtrain.pbs\nbrequeue 8\n' | diff - calls >&2 || fail "calls"
/usr/bin/python3 - run/metrics.jsonl <<'PY' || fail "events"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
runs = [e for e in events if e["event"] == "run_start"]
ends = [(e["exit_code"], e["steps"]) for e in events if e["event"] == "run_end"]
assert [list(e["hosts"]) for e in runs] == [["node1", "node2"], ["node2", "node1"]], runs
assert [code for code, _ in ends] == [75, 75] and runs[1]["start_step"] == ends[0][1], (runs, ends)
print(f"PBS stopped after step {ends[0][1]}, LSF continued on node2, node1 to step {ends[1][1]}")
PY
