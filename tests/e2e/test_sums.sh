#!/bin/bash
# How CPU ranks sum gradients, as the line "device" says it: in shared memory, with the same bits in every run; by
# messages where the ranks of a node may not map each other's memory; as comm.algorithm says.
. "$(dirname "$0")/common.sh"
small_config > "$work/config.json"
shapes train 10 1
shapes val 2 2
cd "$work" || exit
train() { # folder wrapper...
    local out=$1
    shift
    on_ranks 2 "$@" "$dtrain" --config config.json --out "$out" --set train.deterministic=false "${sets[@]}" > "$out.log" 2>&1 ||
        fail "$out: $(cat "$out.log")"
}
sets=()
train memory
train again
grep -q "^dtrain: device .* sums in shared memory$" memory.log || fail "$(cat memory.log)"
cmp memory/model.safetensors again/model.safetensors || fail "other bits in the second run"
for by in ring hierarchical halving tree; do # two values have one sum
    sets=(--set "comm.algorithm=$by")
    train $by
    cmp memory/model.safetensors $by/model.safetensors || fail "$by: other bits"
done
sets=(--set comm.algorithm=library)
train library
grep -q "^dtrain: device .* which chooses how to sum" library.log || fail "$(cat library.log)"
sets=()
# Ranks that cannot see each other's processes.
if unshare --pid --fork --mount-proc true 2> /dev/null; then
    OMPI_MCA_btl=self,tcp train apart unshare --pid --fork --mount-proc
    grep -q "sums by messages, as the ranks of a node cannot share memory here" apart.log || fail "$(cat apart.log)"
    cmp memory/model.safetensors apart/model.safetensors || fail "by messages: other bits"
    code=0
    OMPI_MCA_btl=self,tcp on_ranks 2 unshare --pid --fork --mount-proc "$dtrain" --config config.json --out order \
        --set train.deterministic=true --set comm.algorithm=hierarchical > order.log 2>&1 || code=$?
    if [ $code != 78 ] || ! grep -q "cannot share memory, without which" order.log; then
        fail "another order: $code: $(cat order.log)"
    fi
fi
echo "seven ways to sum: one result"
