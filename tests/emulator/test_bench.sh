#!/bin/bash
# Benchmarks on the emulated GPU: profiles, choices of algorithms, what nodes together gain, the batch size.
. "$(dirname "$0")/train_common.sh"

ends 0 "" "${bench[@]}" --set bench.steps_per_round=2
grep -q '"recorded": true' "$work/bench.json" || fail "not recorded: $(cat "$work/bench.json")"
! grep -q compute_s "$work/bench.json" || fail "the host's clock is no time of the device"
ends 0 "" "$dtrain" --config "$work/config.json" --dry-run
grep -q "^  input  *[0-9.]* MB$" "$work/out" || fail "no blocks for input: $(cat "$work/out")"
ends 0 "" "${bench[@]}" --set bench.steps_per_round=2 --profile
grep -q "^conv2  *conv_bwd_weights  *[0-9]" "$work/out" || fail "no table: $(cat "$work/out")"
# What a deterministic run takes is not measured, what another one takes is.
grep -q "^conv2  *conv_bwd_weights  *-  *-  eng[0-9_k=]*$" "$work/out" || fail "$(cat "$work/out")"
/usr/bin/python3 - "$work/bench.json" <<'PY'
import json, sys
result = json.load(open(sys.argv[1]))
assert result["backend"] == "cuda" and result["precision"] == "fp32", result
assert not result["recorded"] and result["compute_s"] > 0, result
nodes = {(node["name"], node["op"]): node for node in result["nodes"]}
assert all(node["ms"] > 0 and node["mb"] > 0 for node in nodes.values()), nodes
ms = sum(node["ms"] for node in nodes.values())
assert ms <= 1e3 * result["compute_s"] * 1.001, (ms, result)
choices = {(choice["name"], choice["op"]): choice for choice in result["choices"]}
assert choices.keys() == {key for key in nodes if key[1].startswith("conv")}, choices
assert all(choice["ms"] is None and not choice["runner_up"] for choice in choices.values()), choices
# The logits of 8 images and 10 classes, padded to 16, their gradient, and the labels.
assert nodes["softmax_xent", "softmax_xent"]["mb"] < 0.005, nodes
PY
ends 0 "" "${bench[@]}" --set bench.steps_per_round=2 --set train.deterministic=false --profile
grep -Eq "^conv2 +conv_bwd_weights +[0-9.]+ +[0-9.]+  eng[0-9_k=]+, eng[0-9_k=]+$" "$work/out" ||
    fail "$(cat "$work/out")"
# What nodes together gain: measured, or counted without running.
groups=(--set model.name=resnet20 --set train.precision=fp16)
ends 0 "" "${bench[@]}" "${groups[@]}" --set train.deterministic=false --set bench.steps_per_round=1 --profile
grep -Eq "^layer2.0.bn2 +bn_pair +[0-9.]+ +[0-9.]+  (apart, together|together, apart)$" \
    "$work/out" || fail "$(cat "$work/out")"
for fusion in on off; do
    ends 0 "" "$dtrain" --config "$work/config.json" "${groups[@]}" --set device.fusion=$fusion --dry-run=plan
    mv "$work/out" "$work/plan-$fusion"
done
/usr/bin/python3 - "$work" <<'PY'
import json, sys
choices = json.load(open(sys.argv[1] + "/bench.json"))["choices"]
ways = {(choice["name"], choice["op"]): choice for choice in choices}
pair = ways["layer2.0.bn2", "bn_pair"]
assert {pair["algorithm"], pair["runner_up"]} == {"apart", "together"}, pair
assert 0 < pair["ms"] <= pair["runner_up_ms"], pair
def mb(fusion, ops):
    rows = [line.split() for line in open(sys.argv[1] + "/plan-" + fusion)]
    return sum(float(row[5]) for row in rows if len(row) > 6 and row[1] in ops)
assert mb("on", ["conv"]) < mb("off", ["conv"]), "bn computes convolutions"
assert 0 < mb("on", ["bn_bwd", "conv_bwd_data"]) < mb("off", ["bn_bwd", "conv_bwd_data"])
PY
DTRAIN_EMULATED_MEMORY_MB=32 ends 0 "" "${bench[@]}" --forward-only --profile \
    --set bench.steps_per_round=1 --batch-size-per-rank auto
grep -q "^Batch size auto: [0-9]* images per rank, which take [23].* MB of 3. MB$" \
    "$work/out" || fail "$(cat "$work/out")"
grep -q "% of the data sheet's 67 TFLOP/s" "$work/out" || fail "$(cat "$work/out")"
grep -q "^conv2  *conv  *[0-9]" "$work/out" || fail "no table: $(cat "$work/out")"
