#!/bin/bash
# 20 steps at a stretch and 10 + resume + 10 give the same files, bit for bit; so do two equal runs.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 10 1
shapes val 2 2
small_config > "$work/config.json"
run() { # ranks out settings...
    local ranks=$1 out=$2
    shift 2
    on_ranks "$ranks" "$dtrain" --config "$work/config.json" --out "$work/$out" \
        --set checkpoint.every_steps=10 "$@" 2> "$work/log" || {
        cat "$work/log" >&2
        fail "$out on $ranks rank(s)"
    }
}
for model in tiny resnet20; do
    for ranks in 1 2; do
        name=$model-$ranks
        run "$ranks" "$name-a" --set model.name=$model
        run "$ranks" "$name-b" --set model.name=$model
        run "$ranks" "$name-c" --set model.name=$model --set train.max_steps=10
        run "$ranks" "$name-c" --set model.name=$model --resume must
        a=$(hash_of "$work/$name-a")
        [ "$a" = "$(hash_of "$work/$name-b")" ] || fail "$name: two equal runs differ"
        [ "$a" = "$(hash_of "$work/$name-c")" ] || fail "$name: the resumed run differs"
        [ "$(grep -c '"event": *"run_start"' "$work/$name-c/metrics.jsonl")" = 2 ] ||
            fail "metrics.jsonl of a resumed run must be appended to"
        echo "$name: $a"
    done
done

# Another seed must give other bits, or the comparison above means nothing.
run 1 other --set train.seed=2
[ "$(hash_of "$work/other")" != "$(hash_of "$work/tiny-1-a")" ] || fail "the seed changes nothing"

# On another number of ranks: allowed, equal up to rounding.
run 2 tiny-mixed --set train.max_steps=10
run 1 tiny-mixed
/usr/bin/python3 "$here/compare.py" "$(model_of "$work/tiny-mixed")" \
    "$(model_of "$work/tiny-1-a")" 1e-5

# What must agree, and what resume rules refuse.
expect() { # code text settings...
    local code=$1 text=$2 got=0
    shift 2
    "$dtrain" --config "$work/config.json" "$@" > /dev/null 2> "$work/log" || got=$?
    [ "$got" = "$code" ] || fail "exit code $got instead of $code: $*: $(cat "$work/log")"
    grep -q -- "$text" "$work/log" || fail "no \"$text\" in: $(cat "$work/log")"
}
expect 78 "train.seed: 1 there, 5 now" --out "$work/tiny-1-a" --set train.seed=5
expect 78 "model.name: tiny there" --out "$work/tiny-1-a" --set model.name=resnet20
expect 78 "train.global_batch: 12 there" --out "$work/tiny-1-a" --set train.global_batch=6
expect 78 "fingerprint" --out "$work/tiny-1-a" --set data.train="$work/val"
expect 83 "no complete checkpoint" --out "$work/empty" --resume must
expect 83 "cannot resume" --out "$work/empty" --resume "$work/nothing"
expect 73 "choose another --out" --out "$work/tiny-1-a" --resume never

# A run that is refused, or that fails before it trains, leaves config.json and metrics.jsonl alone.
folder=$work/tiny-1-a
mkdir "$work/before"
cp "$folder/config.json" "$folder/metrics.jsonl" "$work/before/"
unchanged() {
    for file in config.json metrics.jsonl; do
        cmp "$folder/$file" "$work/before/$file" || fail "$1 has changed $file"
    done
}
expect 78 "train.seed: 1 there, 7 now" --out "$folder" --set train.seed=7
unchanged "a refused run"
expect 66 "nowhere" --out "$folder" --set data.train="$work/nowhere"
unchanged "a run without data"
rm -r "$folder/checkpoints"
expect 66 "nowhere" --out "$folder" --set data.train="$work/nowhere"
unchanged "a first run without data"

# A finished run started again says so and changes nothing.
folder=$work/tiny-1-b
cp "$folder/config.json" "$folder/metrics.jsonl" "$work/before/"
expect 0 "already finished after 20 steps (best Acc@1 [0-9.]*); raise train.max_steps" \
    --out "$folder" --set checkpoint.every_steps=10
unchanged "a finished run"
expect 0 "already finished after 20 steps.*raise train.stop_top1 or choose another --out" \
    --out "$folder" --set train.max_steps=40 --set train.stop_top1=0.001
