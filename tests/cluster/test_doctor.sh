#!/usr/bin/env bash
# dtrain doctor on three machines finds nothing, and then all that is planted, each by its host.
cluster=$(dirname "$0")/../support/cluster.sh
if [[ ${1:-} != inside ]]; then
    CLUSTER_KEEP=$(dirname "$(realpath "$1")") exec bash "$cluster" run 3 bash "$0" inside "$(realpath "$1")"
fi
# shellcheck source-path=SCRIPTDIR source=../support/cluster.sh
. "$cluster"
set -e
dtrain=$2
cd /media/shared
fail() {
    echo "FAILED: $1"
    cat report
    exit 1
}
doctor() { # exit code, settings...
    local code=$1 got=0
    shift
    cluster_exec node1 mpirun --host node1:1,node2:1,node3:2 --bind-to none "$dtrain" doctor --config config.json \
        --json report.json "$@" > report 2>&1 || got=$?
    [[ $got == "$code" ]] || fail "exit code $got instead of $code"
    python3 -m json.tool report.json > /dev/null || fail "no JSON"
}
finds() { grep -Eq "^ +[0-9]+\. $1" report || fail "nothing like: $1"; }

"$dtrain" demo-data train --images-per-class 1 --size 32 --seed 1 > log
mkdir runs
cat > config.json << END
{"model": {"name": "tiny", "num_classes": 10, "image_size": 32}, "device": {"kind": "cpu", "threads": 1},
 "data": {"source": "folder", "train": "$PWD/train"}, "eval": {"every_epochs": 0}, "output": {"dir": "$PWD/runs/a"}}
END
doctor 0
grep -q "4 ranks on 3 hosts" report || fail "other ranks"
for node in node1 node2 node3; do
    grep -Eq "^[0-9](-[0-9])? +$node .* eth0 10.77.0.${node#node} MTU 1500" report || fail "no line of $node"
done
[[ -z $(ls -A runs) ]] || fail "files are left in the run folder: $(ls -A runs)"

# Far below what a busy host can do between its namespaces.
cluster_rate node3 20mbit
cluster_private node3 "$PWD/runs"
cluster_private node2 "$PWD/train"
cluster_exec node2 rm "$PWD/train/circle/00000.jpg"
cluster_env node2 ONEDNN_MAX_CPU_ISA=SSE41
cluster_clock node2 +5
for _ in 1 2 3; do
    doctor 76
    ! grep -q "messages of node3 pass" report || break # the host may be too busy to tell
done
finds "ranks 2-3 \(node3\): what rank 0 \(node1\) writes to .*/runs is not seen here"
finds "rank 1 \(node2\) has different files in data.train than rank 0 \(node1\)"
finds "messages of node3 pass at 0\.[0-9]+ Gb/s at best, the median host's at "
finds "node2 uses .*, but node1 uses "
finds "the clock of node2 is 5 h 00 min ahead of "
cat report
