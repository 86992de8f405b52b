#!/bin/bash
# Sums of ranks on two and three machines: within each in shared memory, between them by messages, also where one has
# more ranks than another (dist/comm_reduce, which knows the order of additions). A run that goes on takes the links as
# its start on as many nodes and ranks has measured them.
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

dtrain=$(realpath "$1")
cat > "$TMPDIR/config.json" << 'END'
{"model": {"name": "tiny", "num_classes": 10, "image_size": 32},
 "data": {"source": "synthetic", "synthetic_train": 240, "synthetic_val": 24, "workers": 1},
 "train": {"epochs": 100, "global_batch_size": 12},
 "eval": {"every_epochs": 0, "batch_size_per_rank": 4},
 "schedule": {"kind": "constant", "lr": 0.02, "lr_scaling": "none", "warmup_epochs": 0},
 "device": {"kind": "cpu", "threads": 1}}
END
train() { # steps hosts
    if ! cluster_exec node1 "$dtrain" launch --hosts "$2" -- --config "$TMPDIR/config.json" --out "$TMPDIR/run" \
        --set train.max_steps="$1" > "$TMPDIR/log" 2>&1 || ! grep "by messages at ${3:-}" "$TMPDIR/log"; then
        cat "$TMPDIR/log"
        exit 1
    fi
}
train 10 node1:1,node2:1
two=$TMPDIR/run/sums-2-nodes-2-ranks.json
echo '{"bytes_per_s": 375e6, "latency_s": 77e-6}' > "$two"
train 20 node1:1,node2:1,node3:1
train 30 node1:1,node2:1 '3 Gb/s and 77 us'
ls "$TMPDIR/run/sums-3-nodes-3-ranks.json"
