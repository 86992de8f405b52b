#!/bin/bash
# Problems are detected in the first seconds rather than after hours: a second job in the run
# folder, no space, another program on one rank, undecodable data, an unwritable output.
# shellcheck source=../e2e/common.sh
. "$(dirname "$0")/../e2e/common.sh"
shapes train 3 1
shapes val 1 2
small_config > "$work/config.json"

mpi=(mpirun --oversubscribe --bind-to none)

# --- A second job ---
"$dtrain" --config "$work/config.json" --out "$work/run" --set train.max_steps=1000000 \
    --set train.epochs=100000 --set output.log_every=1000000 > "$work/first" 2>&1 &
first=$!
for _ in $(seq 6000); do
    grep -qs '"running"' "$work/run/RUN" && break
    kill -0 $first 2> /dev/null || fail "the first job has ended: $(cat "$work/first")"
    sleep 0.1
done
one_error 84 "run folder $work/run is in use by a job on $(hostname), process $first, since 20" \
    "$dtrain" --config "$work/config.json" --out "$work/run"
one_error 84 "; wait for it, or choose another --out" \
    "${mpi[@]}" -np 2 "$dtrain" --config "$work/config.json" --out "$work/run"
kill -9 $first
wait $first 2> /dev/null || true
# The folder is free at once, and the next run reports how the previous one ended.
train 1 run --set train.max_steps=4
says "ended without a final status"
grep -q '"ended"' "$work/run/RUN" || fail "RUN: $(cat "$work/run/RUN")"

# --- A stack that is too small for anything ---
# shellcheck disable=SC2016 # for the inner shell
one_error 71 "the stack may have 512 KiB here, and dtrain needs 1024: ulimit -s 8192" \
    bash -c 'ulimit -s 512 && exec "$@"' run "$dtrain" --ranks 2 --config "$work/config.json" --out "$work/stack"

# --- The summary: once, even in a log file ---
train 3 once --set train.max_steps=2
for label in model device data schedule memory checkpoints watchdog start; do
    [ "$(grep -c "^dtrain: $label  *[^ ]" "$work/log")" = 1 ] ||
        fail "not one line of $label: $(cat "$work/log")"
done
grep -q '"run_start"' "$work/once/metrics.jsonl" || fail "no event run_start"

# --- No space, in a separate file system ---
mkdir "$work/small"
# shellcheck disable=SC2016 # for the inner shell
small=(unshare -m bash -c 'mount -t tmpfs -o size=700k none "$1" && shift && exec "$@"' run
    "$work/small")
if "${small[@]}" true 2> /dev/null; then
    one_error 73 "$work/small/run has " "${small[@]}" "$dtrain" --config "$work/config.json" \
        --out "$work/small/run"
    says " free; 5 checkpoints of 2[0-9][0-9] kB need 1[.0-9]* MB; free space, lower"
    never_says "^dtrain: epoch"
    ends 0 "" "${small[@]}" "$dtrain" --config "$work/config.json" --out "$work/small/run" \
        --set checkpoint.keep=1 --set train.max_steps=2 # two checkpoints fit
else
    echo "no mount in a private namespace: the test without space is skipped"
fi

# --- Another program on one rank, on a host of its own where that is possible ---
cat > "$work/nodes" <<'SH'
#!/bin/bash
# nodes SETUP COMMAND...: rank 1 is on a host of its own, whose mounts SETUP changes.
setup=$1
shift
[ "$OMPI_COMM_WORLD_RANK" = 0 ] ||
    exec unshare -mu bash -ec 'hostname nodeb; eval "$0"; exec "$@"' "$setup" "$@"
exec "$@"
SH
chmod +x "$work/nodes"
apart=() other=$(hostname)
if "${small[@]}" true 2> /dev/null; then apart=("$work/nodes" true) other=nodeb; fi
section=.note.gnu.build-id
if objcopy --dump-section $section="$work/note" "$dtrain" "$work/copy" 2> /dev/null &&
    [ -s "$work/note" ]; then
    printf 'another build id' | dd of="$work/note" bs=1 seek=16 conv=notrunc status=none
    ln -s "$dtrain" "$work/rank.0"
    objcopy --update-section $section="$work/note" "$dtrain" "$work/rank.1"
    # Not `mpirun A : B`, which crashes in Debian 13 before it starts A (open-mpi/ompi issue 13303).
    # shellcheck disable=SC2016 # for the inner shell
    one_error 76 "rank 1 ($other) runs another build of dtrain (616e6f746865) than rank 0" \
        "${mpi[@]}" -np 2 "${apart[@]}" bash -c 'exec "$0.$OMPI_COMM_WORLD_RANK" "$@"' "$work/rank" \
        --config "$work/config.json" --out "$work/two"
    [ ! -e "$work/two/config.json" ] || fail "a rejected run left a config.json"
else
    echo "no objcopy, or a program without a build ID: the test of another program is skipped"
fi

# --- Another instruction set on one rank: its gradients may have another order in memory ---
# shellcheck disable=SC2016 # for the inner shell
other_isa=("${mpi[@]}" -np 2 "${apart[@]}" bash -c
    '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || export ONEDNN_MAX_CPU_ISA=SSE41; exec "$@"' run "$dtrain")
uses="rank 1 ($other) uses oneDNN "
code=0
"${other_isa[@]}" --config "$work/config.json" --out "$work/isa" --set train.max_steps=2 \
    > "$work/log" 2>&1 || code=$?
if [ $code = 76 ]; then
    order="they keep weights in another order and cannot train together"
    grep -F -- "$uses" "$work/log" | grep -qF "$order" || fail "$(cat "$work/log")"
    train 1 isa --set train.max_steps=2
    ends 0 "" "${other_isa[@]}" eval "$work/isa" # which has no sums
else
    [ $code = 0 ] || fail "exit code $code: $(cat "$work/log")"
    ! grep -q avx2 /proc/cpuinfo || grep -qF -- "$uses" "$work/log" || fail "$(cat "$work/log")"
fi

# --- Two nodes with a run folder each: it exists on both, or on the first only ---
mkdir "$work/apart"
if "${small[@]}" true 2> /dev/null; then
    for there in run other; do
        one_error 76 "rank 1 (nodeb) does not see the run folder of rank 0 ($(hostname)), $work/apart/run: put it" \
            "${mpi[@]}" -np 2 "$work/nodes" "mount -t tmpfs none $work/apart; mkdir $work/apart/$there" \
            "$dtrain" --config "$work/config.json" --out "$work/apart/run"
    done
    on_two=("${mpi[@]}" -np 2 "$work/nodes" "mount -t tmpfs none $work/apart" "$dtrain"
        --config "$work/config.json" --out "$work/apart/run" --set output.shared=false)
    ends 0 "" "${on_two[@]}" --set train.max_steps=2
    ends 0 "resuming from $work/apart/run/checkpoints/step-000000002" "${on_two[@]}" --set train.max_steps=4
    [ "$(ls "$work/apart/run/logs")" = rank-0000.log ] || fail "$(ls "$work/apart/run/logs")"
    # Seen, but not writable there.
    mkdir "$work/again"
    one_error 74 "[rank 1 @ nodeb] dtrain: error[IO] cannot open $work/again/heartbeat.bin for writing" \
        "${mpi[@]}" -np 2 "$work/nodes" \
        "mount -B $work/again $work/again; mount -o remount,bind,ro $work/again" \
        "$dtrain" --config "$work/config.json" --out "$work/again"
else
    echo "no mount in a private namespace: the test of a folder that is not shared is skipped"
fi

# --- Little memory, by made-up files of the control group: of 400 MB so many are used ---
if unshare -m true 2> "$work/log"; then
    in_group=(unshare -m sh -c 'mount -t tmpfs none /sys/fs/cgroup && cd /sys/fs/cgroup && mkdir memory &&
        echo 400000000 | tee memory.max > memory/memory.limit_in_bytes &&
        echo "$0" | tee memory.current > memory/memory.usage_in_bytes && cd / && exec "$@"')
    resnet=("$dtrain" --config "$work/config.json" --out "$work/group" --set model.name=resnet18
        --set model.image_size=64 --set data.val_resize=64 --set train.global_batch_size=30
        --set train.max_steps=1)
    one_error 71 "MB are available (the memory of this job is limited to 400 MB); lower" \
        "${in_group[@]}" 250000000 "${resnet[@]}"
    one_error 71 "on each rank, apart from the copy that is saved, but only " \
        "${in_group[@]}" 120000000 "${resnet[@]}"
    ends 0 "micro-batches x .*they fit into 1.. MB" \
        "${in_group[@]}" 80000000 "${resnet[@]}" --set train.micro_batch_size=auto
fi

# --- Undecodable data ---
cp -r "$work/train" "$work/broken"
truncate -s 300 "$work"/broken/*/*.jpg
one_error 65 "none of 16 samples of data.train could be decoded; one is $work/broken/" \
    "${mpi[@]}" -np 2 "$dtrain" --config "$work/config.json" --out "$work/bad" \
    --set data.train="$work/broken" --set data.check_images=0
cp -r "$work/train" "$work/flawed"
truncate -s 300 "$work"/flawed/*/00000.jpg
train 1 flawed.run --set data.train="$work/flawed" --set data.max_bad_fraction=0.5 --set train.max_steps=2 \
    --set data.check_images=0
says "warning: [1-7] of 8 samples of data.train could not be decoded"

# --- An unwritable output ---
touch "$work/file"
one_error 73 "$work/file" "${mpi[@]}" -np 2 "$dtrain" --config "$work/config.json" --out "$work/file"
one_error 73 "$work/file" "$dtrain" --config "$work/config.json" --out "$work/file/run"
one_error 73 "/proc/dtrain" "$dtrain" --config "$work/config.json" --out /proc/dtrain
