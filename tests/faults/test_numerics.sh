#!/bin/bash
# Non-finite gradients, diverging ranks and slow ranks. --long: 20 of each, with figures.
. "$(dirname "$0")/../e2e/common.sh"
injections=1
[ "${2:-}" = --long ] && injections=20
shapes train 10 1
shapes val 2 2
small_config > "$work/config.json"

# run RANKS OUT FAULT SETTINGS...: trains from scratch; sets $code to the exit code and writes the
# output to $work/log. go_on: resumes instead.
run() {
    rm -rf "${work:?}/$2"
    go_on "$@"
}
go_on() {
    local ranks=$1 out=$2 fault=$3
    shift 3
    code=0
    DTRAIN_FAULT=$fault on_ranks "$ranks" "$dtrain" --config "$work/config.json" \
        --out "$work/$out" "$@" > /dev/null 2> "$work/log" || code=$?
}

# expect CODE WHAT PATTERN...: checks the exit code, and that a line matches each pattern.
expect() {
    local wanted=$1 what=$2 pattern
    shift 2
    [ "$code" = "$wanted" ] || { cat "$work/log" >&2; fail "$what: exit code $code, not $wanted"; }
    for pattern; do
        grep -Eq "$pattern" "$work/log" || { cat "$work/log" >&2; fail "$what: no '$pattern'"; }
    done
}

last_step() {
    readlink "$1/checkpoints/latest" | sed 's/.*step-0*//'
}

# n_steps OUT: updates done, according to the last step event.
n_steps() {
    grep '"event":"step"' "$work/$1/metrics.jsonl" | tail -1 | sed 's/.*"step":\([0-9]*\).*/\1/'
}

# One step on one rank: all ranks skip it, with one warning and the usual number of steps.
skipped=0
for ((i = 0; i < injections; i++)); do
    step=$(((7 + 11 * i) % 20)) rank=$(((1 + i) % 2))
    run 2 once "nan@$step:$rank"
    expect 0 "nan once" "1 step skipped in steps [0-9]+ to [0-9]+: the gradients are not finite"
    [ "$(grep -c 'the gradients are not finite' "$work/log")" = 1 ] || fail "not one warning"
    [ "$(n_steps once)" = 20 ] || fail "$(n_steps once) steps"
    grep -q '"event":"warning".*skipped' "$work/once/metrics.jsonl" || fail "no warning event"
    skipped=$((skipped + 1))
done
echo "one non-finite step: $skipped of $injections runs continued"

# With output.log_every=1 the warning names a single step.
run 1 numbered nan@7:0 --set output.log_every=1
expect 0 "nan on one rank" "1 step skipped in step 8:"

# Four consecutive ones end the run on all ranks; three do not.
run 2 three nan@7:1,nan@8:1,nan@9:1 --set checkpoint.every_steps=5
expect 0 "three in a row" "3 steps skipped in steps 6 to 10:"
ended=0
for ((i = 0; i < injections; i++)); do
    step=$((5 + (5 * i) % 7)) rank=$(((1 + i) % 2)) fault=
    for ((k = 0; k < 4; k++)); do
        fault+=${fault:+,}nan@$((step + k)):$rank
    done
    run 2 four "" --set train.max_steps=5 # so that a checkpoint exists
    go_on 2 four "$fault" --set checkpoint.every_steps=5
    expect 81 "four in a row" "4 steps in a row were skipped" "the learning rate is 0.02" \
        "last checkpoint is .*/four/checkpoints/step-0000000(05|10|15)"
    ended=$((ended + 1))
done
echo "four in a row: $ended of $injections runs ended with 81 and named a checkpoint"

# Gradients that are too large for fp16 are skipped where messages are fp16, which the warning names; without a console the
# end counts the warnings too.
for count in fp16=3 bf16=0; do
    run 2 large "" --set model.name=squeezenet1_1 --set 'data.std=[1e-6,1e-6,1e-6]' --set schedule.lr=1e-25 \
        --set comm.algorithm=ring --set comm.grad_dtype=${count%=*} --set train.max_steps=3 --set output.log_every=1 \
        --set 'output.sinks=["jsonl"]'
    expect 0 "large gradients"
    n=$(grep -c '"event":"warning".*larger than the 65504 that comm.grad_dtype=fp16 can send' "$work/large/metrics.jsonl") ||
        [ "$n" = 0 ]
    [ "$n" = "${count#*=}" ] || fail "$count: $n warnings"
    grep -q "\"event\":\"run_end\".*\"warnings\":$n," "$work/large/metrics.jsonl" || fail "$(tail -1 "$work/large/metrics.jsonl")"
done

# A flipped bit of a weight is reported before the next save, which is not performed.
found=0
for ((i = 0; i < injections; i++)); do
    step=$(((12 + 7 * i) % 20)) rank=$(((1 + i) % 3))
    run 3 flip "flip@$step:$rank" --set checkpoint.every_steps=5
    expect 82 flip "rank $rank \(.*the 2 others"
    saved=$(last_step "$work/flip") || saved=0 # it may have been put off, until the one before was durable
    [ "$saved" -le $step ] || fail "saved after the flip in step $step"
    found=$((found + 1))
done
echo "a flipped bit of a weight: $found of $injections found and the rank named"
run 3 checked flip@3:2 --set train.replica_check_every=2
expect 82 "replica_check_every" "rank 2 \(.*after step 4;"

# A slow rank is named and does not change the result.
run 2 fast "" --set train.max_steps=320
expect 0 fast
named=0
for ((i = 0; i < injections; i++)); do
    rank=$(((1 + i) % 2))
    run 2 slow "slow@$rank:3" --set train.max_steps=320
    expect 0 slow "rank $rank \(.*in compute"
    [ "$(hash_of "$work/fast")" = "$(hash_of "$work/slow")" ] || fail "slow: results differ"
    named=$((named + 1))
done
echo "a slow rank: $named of $injections named, all results bit-identical"
