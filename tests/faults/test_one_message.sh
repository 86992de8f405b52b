#!/bin/bash
# On several ranks an error is printed once, with its exit code, and all ranks exit.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 3 1
shapes val 1 2
small_config > "$work/config.json"
expect() { # ranks code text arguments...
    more_lines=9 one_error "$2" "$3" mpirun --oversubscribe --bind-to none -np "$1" "$dtrain" "${@:4}"
}
ended_with() { # code, folder, reason
    tail -1 "$work/$2/metrics.jsonl" | grep '"run_end"' | grep "\"reason\": *\"[^\"]*${3:-}" |
        grep -q "\"exit_code\": *$1" || fail "no run_end event in $2"
}
good="--config $work/config.json --out $work/run"
# The rank that prints starts last.
cat > "$work/late" <<SH
#!/bin/sh
[ "\$OMPI_COMM_WORLD_RANK" != 0 ] || sleep 1
exec "$dtrain" "\$@"
SH
chmod +x "$work/late"
dtrain=$work/late expect 2 64 "did you mean --config" --confg x
expect 2 66 "nowhere.json" --config nowhere.json
expect 2 78 "train.epochs" $good --set train.epochs=0
expect 3 78 "2 images are too few for 3 ranks; raise it, or start at most 2" $good \
    --set train.global_batch_size=2
expect 3 78 "mix pairs, so 9 must be even" $good --set train.global_batch_size=9 --set data.cutmix=1
expect 3 66 "nowhere" $good --set data.train=nowhere
if has_cuda; then
    CUDA_VISIBLE_DEVICES='' expect 2 69 "device.kind: cuda is not possible: " $good \
        --set device.kind=cuda
else
    expect 2 69 "no CUDA backend" $good --set device.kind=cuda
fi
expect 2 83 "no complete checkpoint" $good --resume must
expect 2 71 "train.micro_batch_size" $good --set data.source=synthetic \
    --set data.train= --set data.val= \
    --set data.synthetic_train=65536 --set train.global_batch_size=65536 --set model.name=vgg16 \
    --set model.image_size=256 --set data.val_resize=0
[ ! -e "$work/run/config.json" ] || fail "a rejected run left a config.json"
expect 2 81 "steps in a row were skipped" $good --set schedule.lr=1000 --set train.max_steps=200
ended_with 81 run "steps in a row were skipped"
ends 0 "" "$dtrain" runs "$work"
shows "^run *failed .* s$" "^    .*steps in a row were skipped"
# What fails while such a run ends does not turn the error of all ranks into one of rank 0 alone.
DTRAIN_FAULT=enospc@io:26+ expect 2 81 "steps in a row were skipped" --config "$work/config.json" \
    --out "$work/full" --set schedule.lr=1000 --set train.max_steps=200
never_says MPI_ABORT

# Bad images in the middle of training: every rank reads some, one reports them, and the run ends
# in an orderly way.
cp -r "$work/train" "$work/broken"
truncate -s 400 "$work"/broken/*/0000[01].jpg
expect 2 65 "training images are bad, but data.max_bad_fraction allows at most 0.1 % of 30" \
    --config "$work/config.json" --out "$work/all" --set data.train="$work/broken" --set data.check_images=0
ended_with 65 all "training images are bad"

# Two bad images on each rank: too many together, but neither rank can know it alone. One epoch
# only: with a second one the loaders would prefetch the images of both.
cp -r "$work/train" "$work/four"
truncate -s 400 "$work"/four/{circle,cross,diamond,ring}/00000.jpg
expect 2 65 "4 of 30 training images are bad, but data.max_bad_fraction allows at most 10 % of 30" \
    --config "$work/config.json" --out "$work/sum" --set data.train="$work/four" \
    --set train.global_batch_size=30 --set data.max_bad_fraction=0.1 --set output.log_every=1 \
    --set train.epochs=1 --set data.check_images=0
never_says "the last one is" # else one rank read all: choose another seed
ended_with 65 sum

# The same during evaluation.
cp -r "$work/val" "$work/flawed"
truncate -s 400 "$work"/flawed/{circle,square}/00000.jpg
expect 2 65 "2 of 10 validation images are bad, but data.max_bad_fraction allows at most 10 %" \
    --config "$work/config.json" --out "$work/eval" --set data.val="$work/flawed" \
    --set data.max_bad_fraction=0.1 --set train.max_steps=1 --set eval.batch_size_per_rank=1 \
    --set data.check_images=0
ended_with 65 eval

# A small set is decoded whole before the first step: all bad images are named, and nothing is trained.
expect 2 65 "4 of 30 training images are bad, but data.max_bad_fraction allows at most 0.1 % of 30" \
    --config "$work/config.json" --out "$work/whole" --set data.train="$work/four"
for class in circle cross diamond ring; do
    grep -q "warning: $work/four/$class/00000.jpg: Premature end" "$work/log" || fail "$class is not named"
done
[ ! -e "$work/whole/checkpoints" ] || fail "it trained before it looked at its images"
