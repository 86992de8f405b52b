#!/bin/bash
# Sums of two ranks on each of four machines (namespaces of this one) whose links pass 1 Gb/s,
# with DELAY_MS set in that many milliseconds more each way:
#
#     [DELAY_MS=0.1] tests/perf/sums_nodes.sh build/dtrain FILE.json [bench options]
#
# dtrain bench --allreduce measures every algorithm in turns, and takes medians.
# shellcheck source=../support/cluster.sh
. "$(dirname "$0")/../support/cluster.sh"
if [ "${3:-}" != inside ]; then
    program=$(realpath "$1") file=$(realpath "$2")
    shift 2
    CLUSTER_KEEP=$(dirname "$program")
    export CLUSTER_KEEP
    cluster_run 4 bash "$0" "$program" "$file" inside "$@"
fi
for node in node{1..4}; do
    cluster_rate "$node" 1gbit
    if [ -n "${DELAY_MS:-}" ]; then cluster_delay "$node" "$DELAY_MS"; fi
done
cluster_exec node1 "$1" launch --hosts node1:2,node2:2,node3:2,node4:2 -- bench --allreduce --json "$CLUSTER/shared/sums.json" \
    --set model.name=resnet18 --set data.source=synthetic --set device.kind=cpu --set device.threads=1 "${@:4}" || exit
cp "$CLUSTER/shared/sums.json" "$2"
