#!/bin/bash
# Ranks, including all threads that touch batches, run on the CPUs near their GPU: on a simulated
# machine with two NUMA nodes, CPU 0 with the first GPU and CPU 1 with the second.
. "$(dirname "$0")/../e2e/common.sh"
tests=$(cd "$(dirname "$0")/.." && pwd)
taskset -c 0,1 true 2> /dev/null || exit 77
readelf -d "$dtrain" | grep -q "NEEDED.*libhwloc" || exit 77
unset HWLOC_COMPONENTS # set by ctest; here PCI devices matter
export DTRAIN_EMULATED_GPUS=2 DTRAIN_DEBUG=1
export HWLOC_XMLFILE=$tests/support/two_nodes.xml HWLOC_THISSYSTEM=1
cat > "$work/config.json" <<JSON
{
  "model": {"name": "tiny", "num_classes": 10, "image_size": 16},
  "data": {"source": "synthetic", "synthetic_train": 16, "synthetic_val": 8, "workers": 2, "augment": "none"},
  "train": {"epochs": 100000, "global_batch_size": 8},
  "eval": {"every_epochs": 0, "batch_size_per_rank": 8},
  "schedule": {"kind": "constant", "lr": 0.001},
  "device": {"kind": "cuda", "cache_dir": "$work/cache"},
  "checkpoint": {"every_epochs": 0}
}
JSON
cat > "$work/rank.sh" <<'SH'
echo $$ > "$1/pid-$OMPI_COMM_WORLD_RANK"
shift
exec "$@"
SH
started=
trap '[ -z "$started" ] || stop; rm -rf "$work"' EXIT
# timeout --foreground: otherwise mpirun gets two signals, leaves at once, and its ranks write into the
# folder of the next start.
start() { # settings...: two ranks in the background
    rm -rf "$work"/pid-* "$work/out"
    : > "$work/log"
    taskset -c 0,1 timeout --foreground 120 mpirun --oversubscribe --bind-to none -np 2 \
        bash "$work/rank.sh" "$work" "$dtrain" --config "$work/config.json" --out "$work/out" \
        --set output.log_every=1 "$@" >> "$work/log" 2>&1 &
    started=$!
    until grep -q "epoch 1 step" "$work/log"; do
        kill -0 $started || fail "no step: $(cat "$work/log")"
        sleep 0.1
    done
}
stop() {
    kill $started 2> /dev/null || true
    wait $started || true
    started=
}
cpus() { # rank, thread: the CPUs of the threads of that name, or of the main thread
    local pid task
    pid=$(cat "$work/pid-$1")
    for task in "/proc/$pid/task"/*; do
        [ "$(cat "$task/comm")" = "$2" ] || [ "${task##*/}-$2" = "$pid-main" ] || continue
        sed -n 's/^Cpus_allowed_list:\s*//p' "$task/status"
    done | sort -u
}
check() { # rank, CPUs, threads...
    local name
    for name in "${@:3}"; do
        [ "$(cpus "$1" "$name")" = "$2" ] ||
            fail "rank $1, thread $name: CPUs '$(cpus "$1" "$name")' instead of $2"
    done
}

start
check 0 0 main dt-loader dt-writer
check 1 1 main dt-loader
stop
grep -q "debug: bound to CPUs 0 near GPU 0000:01:00.0" "$work/log" || fail "$(cat "$work/log")"

start --set device.numa_bind=false
check 0 0-1 main dt-loader dt-writer
check 1 0-1 main dt-loader
stop
! grep -q "bound to" "$work/log" || fail "$(cat "$work/log")"
echo "OK"
