#!/bin/bash
# Every rank keeps a log file, which a resumed run continues; --tee prints the messages of all ranks;
# a folder that cannot be written stops nothing.
. "$(dirname "$0")/common.sh"
cat > "$work/config.json" <<JSON
{
  "model": {"name": "tiny", "num_classes": 10, "image_size": 32},
  "data": {"source": "synthetic", "synthetic_train": 48, "synthetic_val": 8, "workers": 1},
  "train": {"max_steps": 4, "global_batch_size": 12},
  "device": {"kind": "cpu", "threads": 1},
  "output": {"log_every": 2}
}
JSON
run() { # folder, arguments...: what was printed in $work/log
    local out=$work/$1
    shift
    on_ranks 2 "$dtrain" --config "$work/config.json" --out "$out" "$@" > "$work/log" 2>&1 ||
        fail "$*: $(cat "$work/log")"
}
has() { # file, number of lines, pattern
    [ "$(grep -cE -- "$3" "$1")" = "$2" ] || fail "not $2 lines with '$3' in $1: $(cat "$1")"
}
zero=$work/run/logs/rank-0000.log one=$work/run/logs/rank-0001.log
time='^20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}Z '
run run
has "$zero" 1 "${time}epoch 1 step 2/4"
has "$one" 1 "${time}step 2: this rank's loss [0-9.]+, ms per step"
has "$one" 1 "${time}debug: rank 1 of 2, process [0-9]+ on "
has "$work/log" 0 'this rank|debug:'
! grep -qvE "$time" "$zero" "$one" || fail "lines without a time: $(cat "$zero" "$one")"

truncate -s -1 "$one" # a crash in the middle of a line
lines=$(wc -l < "$one")
run run --tee --set train.max_steps=6
has "$one" 1 "${time}step 2: this rank"
has "$one" 1 "${time}step 6: this rank"
[ "$(wc -l < "$one")" -gt "$lines" ] || fail "not continued: $(cat "$one")"
has "$work/log" 1 '^\[rank 1 @ [^]]+\] dtrain: step 6: this rank'
has "$work/log" 1 '^dtrain: epoch 2 step 6/6'

# What ends a run is printed once and in the files of all ranks.
ends 81 "" on_ranks 2 "$dtrain" --config "$work/config.json" --out "$work/bad" \
    --set schedule.lr=1000 --set schedule.lr_scaling=none --set schedule.warmup_epochs=0 \
    --set train.max_steps=200
has "$work/log" 1 'error\[NUMERICAL\]'
has "$work/bad/logs/rank-0000.log" 1 "${time}error: .*not finite"
has "$work/bad/logs/rank-0001.log" 1 "${time}error: .*not finite"

run none --set output.rank_logs=false
[ ! -e "$work/none/logs" ] || fail "logs although output.rank_logs is false"
mkdir "$work/odd"
touch "$work/odd/logs"
run odd
has "$work/log" 2 'warning: this rank has no log file: cannot write .*/odd/logs/rank-000[01].log: '
