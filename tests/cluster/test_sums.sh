#!/bin/bash
# Sums of ranks on two and three machines: within each in shared memory, between them by messages, also where one has
# more ranks than another (dist/comm_reduce, which knows the order of additions).
# shellcheck source=../support/cluster.sh
. "$(dirname "$0")/../support/cluster.sh"
cluster_test 3 "$0" "$@"
program=$(dirname "$1")/tests/dist_comm_reduce
export OMPI_MCA_btl_vader_single_copy_mechanism=none
for hosts in node1:2,node2:2 node1:1,node2:3 node1:2,node2:1,node3:1 node1:1,node2:1,node3:1; do
    cluster_exec node1 mpirun --allow-run-as-root --oversubscribe --bind-to none --host "$hosts" \
        --mca mpi_yield_when_idle 1 "$program" > "$TMPDIR/log" 2>&1 || {
        tail -30 "$TMPDIR/log"
        exit 1
    }
    echo "$hosts: $(grep -c PASSED "$TMPDIR/log") ranks passed"
done
