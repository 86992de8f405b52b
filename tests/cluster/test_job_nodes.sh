#!/bin/bash
# Jobs of make_job.py on machines, without schedulers but with a real mpirun, which starts its daemons
# with ssh. PBS and LSF, with stand-ins for their commands: dtrain launch finds the nodes in the job's list
# of hosts. PBS's job stops before its walltime with 75 and submits itself again, and LSF's resumes on the
# same nodes in another order, stops on SIGUSR1 and is requeued. Kubernetes, with the environment of
# mpi-operator: the launcher loses a worker, waits for it, resumes, and stops with 75 on SIGTERM.
# shellcheck source=../support/cluster.sh
. "$(dirname "$0")/../support/cluster.sh"
cluster_test 3 "$0" "$@"
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
make() { # options
    "$here/../../scripts/make_job.py" --nodes 2 --ranks-per-node 1 --env SCRATCH="$work" "$@"
}
wait_for() { # text file
    for _ in $(seq 1000); do
        if grep -q -- "$1" "$2"; then return; fi
        sleep 0.2
    done
    fail "no \"$1\" in $(cat "$2")"
}
signal() { cluster_exec "$1" kill "-$2" "$(cat pid)"; } # node signal: to the job

for kind in pbs lsf; do make --for $kind --interface eth0 > dtrain.$kind; done
code=0
cluster_exec node1 bash dtrain.pbs > log 2>&1 || code=$?
[ $code = 75 ] || fail "PBS: exit code $code: $(cat log)"
unset PBS_NODEFILE
: > log # what waits below must not read the job before
# shellcheck disable=SC2016 # for the inner shell
cluster_exec node2 bash -c 'echo $$ > pid && exec bash dtrain.lsf' > log 2>&1 &
job=$!
wait_for ' epoch .* step ' log
signal node2 USR1
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

rm -r run
unset LSB_DJOB_HOSTFILE
make --for k8s --container image > job.yaml
sed -n '/- |$/,/^ *exec /s/^ \{18\}//p' job.yaml > launcher
grep -q '^exec ' launcher || fail "no launcher in $(cat job.yaml)"
printf 'node2 slots=1\nnode3 slots=1\n' > workers
export OMPI_MCA_orte_keep_fqdn_hostnames=true OMPI_MCA_orte_default_hostfile=$work/workers
sed -i 's/"every_epochs": 0}$/"every_steps": 20}/' config.json
: > log
# shellcheck disable=SC2016 # for the inner shell
cluster_exec node1 bash -c 'echo $$ > pid && exec bash -c "$(cat launcher)"' > log 2>&1 &
job=$!
wait_for "checkpoint of step" log
cluster_kill node3
wait_for "waiting up to 600 s for node3" log
cluster_start node3
wait_for "resuming from" log
wait_for "start  .* from .*checkpoints" log
signal node1 TERM
code=0
wait $job || code=$?
[ $code = 75 ] || fail "Kubernetes: exit code $code: $(cat log)"
grep -q "stopped after step .* by a request to dtrain launch" log || fail "Kubernetes: $(cat log)"
echo "Kubernetes: a lost worker came back, the run resumed, and stopped on SIGTERM"
