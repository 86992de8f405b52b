"""train.precision=bf16 on the CPU: losses as in fp32, on 1, 2 and 3 ranks and with each optimizer; checkpoints
as fp32 writes them; dtrain eval agrees with the run; nodes touch half the bytes; a detector learns. In
test_recipe_resume.py a resumed run has the same bits. Label: numeric.

    python3 test_bf16.py BUILD/dtrain

Bounds are relative, of the loss of every step, and several times what was measured: a value is rounded by 2^-9 at
most, and a loss depends on many. Between ranks sums differ in fp32 only, which moves few values to another bf16."""

import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import TESTS, events, np, rig, run, safetensors_np, sets, train, write_config  # noqa: E402

N_STEPS = 8
COMMON = {"train.max_steps": N_STEPS, "output.log_every": 1, "train.ema_decay": 0.6}
BF16 = {"train.precision": "bf16"}
OPTIMIZERS = {"sgd": 0.02, "lars": 2, "lamb": 0.01, "adamw": 0.001, "adam": 0.001, "rmsprop": 0.0001}
DETECTOR = os.path.join(TESTS, "..", "configs", "detector_synthetic.json")


def losses(folder):
    return np.array([step["loss"] for step in events(folder, "step")])


def check_close(name, folder, reference, bound):
    off = np.max(np.abs(losses(folder) / losses(reference) - 1))
    print(f"{name}: losses differ by {off:.1e}, at most {bound:.0e} is right", flush=True)
    assert len(losses(folder)) > 0 and off <= bound, (losses(folder), losses(reference))


def test_optimizers():
    for name, rate in OPTIMIZERS.items():
        optimizer = {"optim.name": name, "schedule.lr": rate}
        train(f"wide-{name}", COMMON, optimizer)
        train(name, COMMON, optimizer, BF16)
        check_close(name, name, f"wide-{name}", 5e-3)


def test_ranks():
    for ranks in 2, 3:
        train(f"ranks-{ranks}", COMMON, BF16, ranks=ranks)
        check_close(f"{ranks} ranks", f"ranks-{ranks}", "sgd", 1e-3)
    train("sent", COMMON, BF16, {"comm.grad_dtype": "fp16"}, ranks=2)
    check_close("fp16 between ranks", "sent", "sgd", 1e-3)


def test_modes():
    """Nodes read weights in bf16: also those that come from other ranks."""
    asynchronous = {"comm.mode": "async", "train.deterministic": "false"}
    for mode in {"comm.mode": "central"}, {"train.sync_every": 2}, asynchronous:
        name = "-".join(map(str, mode.values()))
        for folder, changes in (f"wide-{name}", {}), (name, BF16):
            train(folder, COMMON, {"train.ema_decay": 0}, mode, changes, ranks=2)
        check_close(name, name, f"wide-{name}", 5e-3)


def test_files():
    """Parameters, states and averages are fp32, not bf16 written as fp32."""
    for folder, changes in ("wide", {}), ("narrow", BF16):
        train(folder, COMMON, {"model.name": "resnet20"}, changes)
    check_close("resnet20", "narrow", "wide", 5e-2)
    for name in "model", "optim", "ema":
        files = [safetensors_np.load(f"{x}/checkpoints/latest/{name}.safetensors") for x in ("wide", "narrow")]
        shapes = [[(key, value.dtype, value.shape) for key, value in file.items()] for file in files]
        assert shapes[0] == shapes[1], shapes
        for key, value in files[1].items():
            assert value.ndim < 2 or np.any(value.view(np.uint32) & 0xFFFF), f"{name}: {key}"


def test_evaluation():
    train("narrow", COMMON, BF16, {"model.name": "resnet20", "train.max_steps": N_STEPS + 1})
    last, found = events("narrow", "eval")[-1], json.loads(run("eval", "narrow@latest").stdout)
    assert all(abs(found[key] - last[key]) < 1e-5 for key in ("loss", "top1")), (found, last)


def test_plan():
    """Nodes touch about half the bytes. Gradients are fp32, which MPI's own sums cannot send in 16 bits."""
    plans = [run("--config", "config.json", "--dry-run=plan", *sets(x)).said for x in ({}, BF16)]
    wide, narrow = (float(re.search(r"eval total: .*, ([0-9.]+) MB", plan)[1]) for plan in plans)
    assert 0.4 * wide < narrow < 0.6 * wide, (wide, narrow)
    both = {**BF16, "comm.grad_dtype": "bf16", "comm.algorithm": "library", "train.deterministic": "false"}
    refused = train("refused", both, ranks=2, code=78)
    assert "comm.algorithm library, send no 16 bits" in refused.said, refused.said


def test_detector():
    few = {"train.global_batch_size": 4, "data.synthetic_train": 8, "schedule.warmup_epochs": 0, "eval.every_epochs": 0}
    for folder, changes in ("wide-boxes", {}), ("boxes", BF16):
        run("--config", DETECTOR, "--out", folder, *sets(COMMON, few, changes))
    check_close("detector", "boxes", "wide-boxes", 1e-1)
    assert losses("boxes")[-1] < 0.8 * losses("boxes")[0], losses("boxes")


write_config(rig.SETTINGS)
TESTED = test_optimizers, test_ranks, test_modes, test_files, test_evaluation, test_plan, test_detector
for test in TESTED:
    test()
    print(f"{test.__name__}: ok", flush=True)
