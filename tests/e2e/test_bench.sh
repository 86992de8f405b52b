#!/bin/bash
# dtrain bench: what it prints and writes, other data and parts of training, several batch sizes, and the
# comparison with an earlier result. It scales weakly unless the configuration names a batch. No time is
# checked, as the machine may be busy.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 6 1
shapes val 3 2
small_config | sed 's/, "global_batch_size": 12//' > "$work/config.json"

bench() { # ranks, arguments...: output in $work/out, result in $work/bench.json
    local ranks=$1
    shift
    on_ranks "$ranks" "$dtrain" bench --config "$work/config.json" --json "$work/bench.json" \
        --set bench.warmup_steps=1 --set bench.rounds=2 --set bench.steps_per_round=2 \
        --set output.dir="$work/none" "$@" > "$work/out" 2> "$work/log" ||
        fail "$*: $(cat "$work/out" "$work/log")"
    [ ! -e "$work/none" ] || fail "$*: a run folder was made"
}
check() { # ranks, images per rank, mode, data
    /usr/bin/python3 - "$work/bench.json" "$@" <<'PY' || fail "$(cat "$work/bench.json")"
import json, math, statistics, sys

result, (ranks, images) = json.load(open(sys.argv[1], encoding="utf-8")), map(int, sys.argv[2:4])
texts = {"mode": sys.argv[4], "data": sys.argv[5], "backend": "cpu", "precision": "fp32",
         "model": "tiny", "ranks": ranks, "global_batch_size": images * ranks, "steps": 4,
         "micro_batch_size": images, "image_size": 32, "threads": 1, "recorded": False}
assert {key: result[key] for key in texts} == texts, result
for key in ("date", "dtrain", "build", "device", "communication"):
    assert isinstance(result[key], str) and result[key], key
rates = result["rounds_images_per_s"]
assert len(rates) == 2 and math.isclose(statistics.mean(rates), result["images_per_s"])
assert math.isclose(result["images_per_s"], ranks * result["images_per_s_per_rank"])
# Student's t with one degree of freedom.
interval = 12.7062 * statistics.stdev(rates) / math.sqrt(2)
assert math.isclose(result["images_per_s_ci95"], interval, rel_tol=1e-4), interval
assert 0 < result["step_median_s"] <= result["step_p95_s"] <= result["step_p99_s"]
for key in ("step_mean_s", "compute_s", "flops_per_s", "flops_per_step", "peak_flops_per_s", "mfu",
            "peak_copy_bytes_per_s", "plan_bytes", "peak_rss_bytes"):
    assert result[key] > 0, key
assert math.isclose(result["mfu"], result["flops_per_s"] / result["peak_flops_per_s"])
assert all(result[key] >= 0 for key in ("data_wait_s", "exposed_comm_s")), result
assert result.get("cpu_wait_s", 0) >= 0
assert len(result["hosts"]) == 1 and len(result["per_rank"]) == ranks
for rank in result["per_rank"]:
    assert rank["host"] == result["hosts"][0] and rank["images_per_s"] > 0
    assert rank["step_median_s"] > 0 and rank["peak_rss_bytes"] > 0
assert result["config"]["bench"] == {"warmup_steps": 1, "rounds": 2, "steps_per_round": 2}
assert (ranks > 1 and texts["mode"] == "train") == (result["exposed_comm_s"] > 0)
PY
}

# What is printed, by training and by its parts.
bench 1 --profile
shows "^Model:  *tiny, images of 32 x 32, 10 classes$" "^Batch size:  32 global$" "^  *32 per rank$" \
    "^Ranks:  *1 on 1 host" "^Device:  *cpu, oneDNN" "^Precision:  *fp32$" "^Data:  *synthetic" \
    "^Memory: .* for the plan$" "^Running warm-up of 1 step," "^Iter #0: .* img/sec per rank$" \
    "^Iter #1: " "^Img/sec per rank: [0-9.]* +-[0-9.]*$" \
    "^Total img/sec on 1 rank: [0-9.]* +-[0-9.]*$" "^95 % confidence interval" \
    "^Step: p50 .* p95 .* p99 .* ms$" "MFU .* measured for a product" "peak RSS" \
    "^conv_bwd_weights  *[0-9.]* %  *[0-9.]*  *[0-9.]*  *[0-9.]*  *[0-9]* %$" "^update .* %$" "^step  *100.0 %" \
    "^conv2  *conv_bwd_weights  *[0-9]" "^Nothing was communicated" "^Waiting for input takes"
check 1 32 train synthetic
cp "$work/bench.json" "$work/base.json"
/usr/bin/python3 - "$work/bench.json" <<'PY' || fail "$(cat "$work/bench.json")"
import json, math, sys

result = json.load(open(sys.argv[1], encoding="utf-8"))
ops, nodes = ({key: sum(row[key] for row in result[name]) for key in ("ms", "mb", "gflop")}
              for name in ("ops", "nodes"))
assert all(math.isclose(ops[key], nodes[key]) for key in ops), (ops, nodes)
assert math.isclose(ops["gflop"] * 1e9, result["flops_per_step"], rel_tol=1e-3)
assert ops["ms"] <= 1e3 * result["compute_s"]
named = {(c["name"], c["op"]) for c in result["choices"] if c["algorithm"]}
assert named >= {(n["name"], n["op"]) for n in result["nodes"] if n["op"].startswith("conv")}, named
assert all(c["ms"] is None and c["runner_up"] == "" for c in result["choices"]) # not chosen by time
PY
shows "algorithm, next best"
bench 2 --profile
shows "^Ranks:  *2 on 1 host" "^Exposed communication takes"
check 2 32 train synthetic
bench 2 --no-comm --set train.batch_size_per_rank=16 --set train.micro_batch_size=8
shows "training without communication" "16 per rank in 2 micro-batches"
sed -i 's/"micro_batch_size": 8/"micro_batch_size": 16/' "$work/bench.json"
check 2 16 train_no_comm synthetic
bench 2 --forward-only --data real --set train.global_batch_size=16 --set data.val= --set data.val_fraction=0.3
shows "forward pass" "^Data:  *$work/train$"
check 2 8 forward real
cp "$work/bench.json" "$work/forward.json"
bench 1 --forward-only --data real --batch-size-per-rank 8
shows "^Data:  *$work/val$"

# Batch sizes.
bench 1 --batch-size-per-rank auto --data real
shows "^Batch size auto: 56 images per rank, .* the data have no more$"
check 1 56 train real
# The cache leaves 8 GB for the plan, or half of what there is; 65536 images need 50 GB.
refused 78 "can have at most" "$dtrain" bench --config "$work/config.json" \
    --set data.cache_mb=16777216
all=$(sed 's/.*can have at most \([0-9]*\) MB.*/\1/' "$work/log")
bench 1 --set model.image_size=64 --set data.val_resize=64 --batch-size-per-rank 4,8,65536 \
    --set data.cache_mb=$((all > 16000 ? all - 8000 : all / 2))
shows "^  *4 .* MB$" "^  *8 .* MB$" "^Batch size 65536 per rank is skipped: the plan needs" \
    "^  *65536  *too large$"
/usr/bin/python3 - "$work/bench.json" <<'PY' || fail "$(cat "$work/bench.json")"
import json, sys

results = json.load(open(sys.argv[1], encoding="utf-8"))
assert [result["global_batch_size"] for result in results] == [4, 8], results
PY
refused 78 "update together" on_ranks 2 "$dtrain" bench --config "$work/config.json" \
    --set train.sync_every=4 --set comm.backend=auto
for text in 0 8,x "8," ,8 65537 all; do
    refused 64 "is neither auto nor a list" "$dtrain" bench --batch-size-per-rank "$text"
done

# Comparison with an earlier result.
compare() { # code, text, arguments...
    local code=$1 text=$2
    shift 2
    refused "$code" "$text" "$dtrain" bench --config "$work/config.json" \
        --set bench.warmup_steps=1 --set bench.rounds=3 --set bench.steps_per_round=3 "$@"
}
/usr/bin/python3 - "$work" <<'PY'
import json, sys

result = json.load(open(sys.argv[1] + "/base.json", encoding="utf-8"))
rate = result["images_per_s"]
for name, factor in ("slow", 0.01), ("fast", 100):
    result.update(images_per_s=rate * factor, images_per_s_ci95=0)
    json.dump(result, open(f"{sys.argv[1]}/{name}.json", "w", encoding="utf-8"))
# With so much noise the difference means nothing.
result["images_per_s_ci95"] = rate * 1000
json.dump(result, open(sys.argv[1] + "/noisy.json", "w", encoding="utf-8"))
PY
bench 1 --compare "$work/slow.json"
shows "^Compared: .* faster than the"
bench 1 --compare "$work/noisy.json"
shows "^Compared: .* slower than the"
compare 76 "% slower than the .* of $work/fast.json; accepted: 12.5 %" --tolerance 12.5 \
    --compare "$work/fast.json" --json "$work/slower.json"
grep -q images_per_s_ci95 "$work/slower.json" || fail "no result of the slow run"
compare 78 "measured with mode forward, not train; only results" --compare "$work/forward.json"
compare 78 "measured with image_size 32, not 24" --compare "$work/fast.json" --set model.image_size=24
compare 78 "measured with global_batch_size 32, not 8" --compare "$work/fast.json" --batch-size-per-rank 8
compare 64 "is not a percentage" --compare "$work/fast.json" --tolerance fast
compare 64 "give one batch size, not 2" --compare "$work/fast.json" --batch-size-per-rank 8,16
compare 66 "missing.json" --compare "$work/missing.json"
echo '{"images_per_s": "many"}' > "$work/other.json"
compare 65 "not the result of one benchmark" --compare "$work/other.json"

# What does not go together.
compare 64 "--tolerance: only with --compare" --tolerance 3%
compare 64 "--data fake: write real or synthetic" --data fake
compare 64 "takes only --json" --input --forward-only
refused 78 "the configuration has synthetic data only" "$dtrain" bench --data real
compare 78 "a batch of 64 is more than the 30 validation images" --data real --forward-only \
    --batch-size-per-rank 64
compare 73 "cannot create $work/nodir/" --json "$work/nodir/bench.json"
! grep -q Iter "$work/out" || fail "measured before --json was tried: $(cat "$work/out")"
