#!/bin/bash
# optim.freeze: what is frozen keeps its bits, on any number of ranks; what is not is trained.
# optim.head_lr_factor multiplies the steps of the classifier. Resuming is in test_recipe_resume.py.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 10 1
shapes val 2 2
small_config | sed 's/"tiny"/"resnet20"/' > "$work/config.json"
steps="--set train.max_steps=12"
freeze='--set optim.freeze=["conv1","bn1","layer1","layer3.1.bn2"]'
train 1 base --set train.max_steps=3
weights="--set model.initial_checkpoint=$(model_of "$work/base")"
train 1 once $freeze $weights --set train.max_steps=3
says "frozen .*23 of 65 parameters; the backward pass ends at layer2.0.conv1"
train 2 twice $freeze $weights $steps

check() { # model momentum
    /usr/bin/python3 - "$(model_of "$work/base")" "$1" "$2" <<'PY'
import sys
import safetensors_np
old, new, momentum = (safetensors_np.load(path) for path in sys.argv[1:])
assert old.keys() == new.keys()
n_frozen = 0
for name, value in new.items():
    if name.endswith("num_batches_tracked"):
        continue
    frozen = name.startswith(("conv1.", "bn1.", "layer1.", "layer3.1.bn2."))
    assert (value == old[name]).all() if frozen else (value != old[name]).any(), name
    if "running" not in name:
        assert momentum["momentum." + name].any() != frozen, name
        n_frozen += frozen
assert n_frozen == 23 and len(momentum) == 65, (n_frozen, len(momentum))
PY
}
for run in once twice; do
    check "$(model_of "$work/$run")" "$(momentum_of "$work/$run")" || fail "$run"
done

# After one epoch (step 8 of 12) everything is trained.
train 2 whole $weights $steps --set checkpoint.every_steps=4 \
    --set optim.freeze='["conv1","bn1","layer1"]' --set optim.unfreeze_epoch=1
says "frozen .* of 65 parameters for 1 epoch; "
[ "$(grep -c "after 1 epoch: all parameters are trained" "$work/log")" = 1 ] ||
    fail "the end of freezing is not reported: $(cat "$work/log")"
saved="$work/whole/checkpoints"
/usr/bin/python3 - "$saved/step-000000008" "$saved/step-000000012" "$(model_of "$work/base")" <<'PY' || fail "what is trained when"
import sys
import safetensors_np
at_8, at_12 = (safetensors_np.load(folder + "/model.safetensors") for folder in sys.argv[1:3])
base = safetensors_np.load(sys.argv[3])
momentum = [safetensors_np.load(f"{folder}/optim.safetensors") for folder in sys.argv[1:3]]
for name in base:
    if name.startswith(("conv1.", "bn1.", "layer1.")) and "num_batches" not in name:
        assert (at_8[name] == base[name]).all() and (at_12[name] != base[name]).any(), name
for name in momentum[0]:
    frozen = name.split(".")[1] in ("conv1", "bn1", "layer1")
    assert momentum[0][name].any() != frozen and momentum[1][name].any(), name
PY

# One step without momentum and decay, from the same weights.
one="--set train.max_steps=1 --set optim.momentum=0 --set optim.weight_decay=0"
train 1 plain $weights $one
train 1 fast $weights $one --set optim.head_lr_factor=10
/usr/bin/python3 - $(for run in base plain fast; do model_of "$work/$run"; done) <<'PY' ||
import sys
import numpy as np
import safetensors_np
base, plain, fast = (safetensors_np.load(path) for path in sys.argv[1:])
for name in base:
    if not name.startswith("fc."):
        assert (plain[name] == fast[name]).all(), name
        continue
    slow, moved = (x[name].astype(float) - base[name] for x in (plain, fast))
    assert np.linalg.norm(moved - 10 * slow) <= 1e-3 * np.linalg.norm(moved) > 0, name
PY
    fail "optim.head_lr_factor"

while read -r freeze text; do
    ends 78 "$text" "$dtrain" --config "$work/config.json" --out "$work/none" --set optim.freeze="$freeze"
done << 'CASES'
["layer9"] no module "layer9" (did you mean "layer1"?); it has conv1, bn1, layer1
["conv1","fc.weight"] no module "fc.weight"; it has
["conv1","bn1","layer1","layer2","layer3","fc"] all parameters are frozen
CASES
