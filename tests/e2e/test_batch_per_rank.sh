#!/bin/bash
# train.batch_size_per_rank: the global batch and the learning rate grow with the ranks, after a warm-up;
# the bits are those of the same global batch, and a run keeps its global batch when it is resumed.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 6 1
small_config | sed 's/, "global_batch_size": 12//; s/"max_steps": 20/"max_steps": 4/;
    s/"lr_scaling": "none"/"lr_base_size": 6/; s/, "val": "[^"]*"//' > "$work/config.json"
run() { # ranks, out, exit code, text, settings...
    ends "$3" "$4" on_ranks "$1" "$dtrain" --config "$work/config.json" --out "$work/$2" "${@:5}"
}
each=(--set train.batch_size_per_rank=6)
run 1 one 0 "batch 6 = 1 rank x 6 images, learning rate 0.02$" "${each[@]}"
run 2 two 0 "batch 12 = 2 ranks x 6 images, learning rate 0.04$" "${each[@]}"
run 3 three 0 "batch 18 = 3 ranks x 2 micro-batches x 3 images, learning rate 0.06, warm-up over 4 steps from 0$" \
    "${each[@]}" --set train.micro_batch_size=3 --set schedule.warmup_steps=4 --set output.log_every=1
rates=$(grep -o '"event":"step".*"lr":[0-9.]*' "$work/three/metrics.jsonl" | sed 's/.*://' | tr '\n' ' ')
[ "$rates" = "0.015 0.03 0.045 0.06 " ] || fail "rates of the warm-up: $rates"
run 2 same 0 "batch 12 = 2 ranks x 6 images, learning rate 0.04$" --set train.global_batch_size=12
[ "$(hash_of "$work/two")" = "$(hash_of "$work/same")" ] || fail "the same batch, but other bits"
grep -q '"global_batch_size":18,"batch_size_per_rank":6,"micro_batch_size":3,"passes":2,"lr":0.06' \
    "$work/three/metrics.jsonl" || fail "no batch in run_start: $(head -1 "$work/three/metrics.jsonl")"
run 2 two 0 "resuming from" "${each[@]}" --set train.max_steps=5
run 1 two 78 "batch_size_per_rank: 6 made a global batch of 12 on 2 ranks, now 6 on 1" \
    "${each[@]}" --set train.max_steps=6
run 1 two 0 "continuing as a different run: train.batch_size_per_rank: 6 made a global batch of 12" \
    "${each[@]}" --set train.max_steps=6 --allow-config-change
run 1 both 78 "train.batch_size_per_rank: train.global_batch_size 12 is given too" "${each[@]}" \
    --set train.global_batch_size=12
run 1 many 78 "train.batch_size_per_rank: a global batch of 61 is more than the 60 training images" \
    --set train.batch_size_per_rank=61
