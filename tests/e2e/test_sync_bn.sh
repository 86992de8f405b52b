#!/bin/bash
# model.sync_bn: 1, 2 and 3 ranks train ResNet-20 alike for 10 steps, with a learning rate that does
# not amplify rounding much (dist/plan_sync has larger ones); a group that does not divide
# the ranks is refused; the list of actions names the exchanges.
# At a usual rate no two orders of additions stay together: with 0.001 the losses of one rank on 1 and
# 2 threads, or with AVX2 and AVX-512, are 1.3e-3 to 6.6e-3 apart at the worst of 20 steps (three
# seeds), those of 2 and 3 ranks with SyncBN and one rank 1.2e-3 to 5.9e-3.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 10 1
small_config | sed 's/"tiny"/"resnet20", "sync_bn": true/; s/"max_steps": 20/"max_steps": 10/; s/"log_every": 5/"log_every": 1/;
    s/, "val": "[^"]*"//; s/"lr": 0.02/"lr": 0.00002/' > "$work/config.json"
# The biases of batch norm start at 0 and are but the sum of 10 gradients of ReLUs, of which rounding
# takes some across 0, on one rank as well.
agrees() { # seed, ranks
    local one=one-$1 many=ranks$2-$1
    [ -e "$work/$one" ] || train 1 "$one" --set train.seed="$1"
    train "$2" "$many" --set train.seed="$1"
    losses "$one" "$many" || return 3
    /usr/bin/python3 "$here/compare.py" "$(model_of "$work/$many")" "$(model_of "$work/$one")" 1e-5 \
        0.02 .bias
}
losses() {
    (cd "$work" && /usr/bin/python3 "$here/../emulator/losses.py" "$@" 1e-5)
}
for ranks in 2 3; do
    some_seed agrees "$ranks"
done
train 2 alone --set train.seed=1 --set model.sync_bn=false
! losses one-1 alone 2> "$work/log" || fail "statistics of each rank's own images are no different"
refused 78 "model.sync_bn: 3 ranks cannot form groups of 2" \
    on_ranks 3 "$dtrain" --config "$work/config.json" --out "$work/refused" --set model.sync_bn=2
ends 0 "" on_ranks 2 "$dtrain" --config "$work/config.json" --dry-run=plan
mv "$work/out" "$work/plan"
[ "$(grep -c ' sync .* 2 ranks' "$work/plan")" = 42 ] || fail "exchanges: $(grep sync "$work/plan")"
# A node in two halves counts once.
ends 0 "" on_ranks 2 "$dtrain" --config "$work/config.json" --dry-run=plan --set model.sync_bn=false
[ "$(grep ' total: ' "$work/plan")" = "$(grep ' total: ' "$work/out")" ] ||
    fail "totals: $(grep ' total: ' "$work/plan" "$work/out")"
