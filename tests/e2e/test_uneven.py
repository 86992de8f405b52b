"""A global batch that the ranks cannot share alike: 1, 3, 5 and 7 ranks, and micro-batches of several sizes,
have the losses and evaluations of one rank, without batch norm, with SyncBN and with a detector, and a run goes
on with another number of ranks inside an epoch.

    python3 test_uneven.py BUILD/dtrain"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import events, said, train, write_config  # noqa: E402

TOLERANCE = 1e-6
TINY = {"model.name": "tiny", "train.global_batch_size": 64}
# A rate at which rounding does not grow much (e2e/sync_bn).
SYNC_BN = {
    "model.name": "resnet20",
    "model.sync_bn": "true",
    "train.global_batch_size": 32,
    "data.synthetic_train": 128,
    "schedule.lr": 0.00002,
}
CONVNEXT = {
    "model.name": "convnext_tiny",
    "model.stochastic_depth": 0.5,
    "train.global_batch_size": 8,
    "train.max_steps": 3,
    "data.synthetic_train": 32,
    "data.synthetic_val": 9,
    "schedule.lr": 0.0001,
}
DETECTOR = {
    "model.name": "retinanet_resnet18_fpn",
    "model.image_size": 64,
    "model.frozen_norm": "true",
    "model.fpn_channels": 16,
    "train.global_batch_size": 4,
    "data.synthetic_train": 16,
    "data.synthetic_val": 5,
    "schedule.lr": 0.0001,
}
CASES = (
    ("64", TINY, (3, 5), {}),
    ("96", {**TINY, "train.global_batch_size": 96, "data.synthetic_train": 384}, (7,), {}),
    ("micro-batches", TINY, (3,), {"train.micro_batch_size": 9}),
    ("pairs", {**TINY, "data.mixup": 0.2, "data.cutmix": 1}, (5,), {"train.micro_batch_size": 10}),
    ("stochastic depth", CONVNEXT, (3,), {}),
    ("sync_bn", SYNC_BN, (3, 5), {}),
    ("detector", DETECTOR, (3,), {}),
)


def numbers(folder):
    """Of all steps, and of all evaluations but a detector's."""
    steps = [step["loss"] for step in events(folder, "step")]
    return steps + [event["loss"] for event in events(folder, "eval") if "loss" in event]


def differs(one, many):
    assert len(one) == len(many) > 3, (one, many)
    return max(abs(a / b - 1) for a, b in zip(one, many))


def check(name, changes, ranks, others):
    train(f"{name} alone", changes)
    for n in ranks:
        done = train(f"{name} {n}", changes, others, ranks=n)
        worst = differs(numbers(f"{name} alone"), numbers(f"{name} {n}"))
        print(f"{name}: {n} ranks, {worst:.1e}", flush=True)
        assert worst <= TOLERANCE, f"{name}: {n} ranks differ from one by {worst}"
        images = changes["train.global_batch_size"]
        assert f"batch {images} = {n} rank" in done.said, done.said


def check_resume():
    """Four ranks, three, and five, each for a part of the second epoch of eight steps."""
    changes = {**TINY, "train.global_batch_size": 32, "checkpoint.every_steps": 1}
    train("whole", changes, {"train.max_steps": 14})
    for steps, ranks in ((10, 4), (12, 3), (14, 5)):
        train("parts", changes, {"train.max_steps": steps}, options=["--resume", "auto"], ranks=ranks)
    assert [start["start_step"] for start in events("parts", "run_start")] == [0, 10, 12]
    worst = differs([step["loss"] for step in events("whole", "step")], [s["loss"] for s in events("parts", "step")])
    assert worst <= TOLERANCE, f"the resumed run differs by {worst}"


def check_parts():
    """Where batch norm is per micro-batch, other ranks keep the micro-batches if they can share them."""
    changes = {"model.name": "resnet20", "train.global_batch_size": 10, "schedule.lr": 0.001}
    train("three", changes, {"train.max_steps": 4, "checkpoint.every_steps": 2}, ranks=3)
    options = ["--resume", "three/checkpoints/step-000000002"]
    train("one", changes, {"train.max_steps": 4}, options=options)
    start = events("one", "run_start")[0]
    assert (start["passes"], start["micro_batch_size"]) == (3, 4), start
    worst = abs(events("one", "step")[-1]["loss"] / events("three", "step")[-1]["loss"] - 1)
    assert worst < 1e-5, f"one rank differs from three by {worst}"


def check_bench():
    sets = "--set", "model.name=tiny", "--set", "train.global_batch_size=8"
    text = said("bench", "--config", "config.json", *sets, ranks=3)
    assert "2.666667 per rank" in text and "Total img/sec on 3 ranks" in text, text


def check_refusals():
    cases = (
        (3, {"train.global_batch_size": 2}, "train.global_batch_size: 2 images are too few for 3 ranks"),
        (3, {"train.global_batch_size": 4, "data.mixup": 0.2}, "or start at most 2"),
        (2, {"train.global_batch_size": 5, "data.mixup": 0.2}, "mix pairs, so 5 must be even"),
        (1, {"train.micro_batch_size": 1, "data.mixup": 0.2}, "1 image is too few; make it even"),
        (2, {"train.global_batch_size": 5, "train.micro_batch_size": 1}, "set it to 2"),
    )
    for ranks, changes, what in cases:
        refused = train("refused", changes, ranks=ranks, code=78)
        assert what in refused.said, (what, refused.said)


write_config(
    {
        "model": {"num_classes": 10, "image_size": 32},
        "data": {"source": "synthetic", "synthetic_train": 256, "synthetic_val": 50},
        "train": {"epochs": 2, "max_steps": 6},
        "eval": {"batch_size_per_rank": 8},
        "schedule": {"kind": "constant", "lr": 0.01, "lr_scaling": "none", "warmup_epochs": 0},
        "device": {"kind": "cpu"},
        "output": {"log_every": 1},
        "bench": {"warmup_steps": 1, "rounds": 1, "steps_per_round": 2},
    }
)
for case in CASES:
    check(*case)
check_resume()
check_parts()
check_bench()
check_refusals()
