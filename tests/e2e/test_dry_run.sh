#!/bin/bash
# --dry-run prints the plan of a run, even if the data are unavailable.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 10 1
shapes val 2 2
small_config > "$work/config.json"
dry() { # settings...
    "$dtrain" --config "$work/config.json" --out "$work/run" --dry-run "$@" \
        > "$work/plan" 2> "$work/log" || fail "$*: $(cat "$work/log")"
}
has() {
    grep -q -- "$1" "$work/plan" || fail "no \"$1\" in: $(cat "$work/plan")"
}
dry
has "^train: "
has "^eval: .* batch 8"
has "100 training images, 8 steps per epoch, 20 steps in all"
[ ! -e "$work/run" ] || fail "a dry run created the run folder"

# Without the data only the number of steps is missing, and the memory is the same.
grep -A 8 "^memory" "$work/plan" > "$work/memory"
[ -s "$work/memory" ] || fail "no memory summary"
dry --set data.train="$work/nowhere" --set data.val="$work/nowhere"
has "steps per epoch and learning rates: unknown, data.train cannot be read: .*nowhere"
grep -A 8 "^memory" "$work/plan" | cmp - "$work/memory" || fail "the memory differs"

# Without validation data the evaluation is omitted.
dry --set data.val=
! grep -q "^eval: " "$work/plan" || fail "an evaluation without validation data"

# Only milestones that the run reaches are shown: steps 8 and 24 of 20.
dry --set schedule.kind=step --set schedule.milestones=[1,3]
has "step  *8 .*(milestone)"
[ "$(grep -c milestone "$work/plan")" = 1 ] || fail "$(cat "$work/plan")"
