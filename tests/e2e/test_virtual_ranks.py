"""With train.virtual_ranks a run has the same weights, losses and state on any number of ranks, also when it is killed
inside an epoch and goes on with another number: without and with batch norm, with mixing, moving averages, clipping,
LARS, dropout and a schedule that follows the loss, in bf16, with statistics of several slices, and with a detector.

    python3 test_virtual_ranks.py BUILD/dtrain"""

import array
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import content, events, rig, said, train, write_config  # noqa: E402

RESNET = {"model.name": "resnet20", "train.max_steps": 3}
SYNCED = {**RESNET, "data.mixup": 0.2}
# For an epoch of eight steps; then the plan is built again, for larger images. Evaluations are between steps.
FROZEN = {
    "optim.freeze": '["conv1", "bn1", "layer1"]',
    "optim.unfreeze_epoch": 1,
    "train.stages": '[{"epoch": 2, "image_size": 40}]',
    "train.max_steps": 10,
    "eval.every_epochs": 1,
}
DETECTOR = {
    "model.name": "retinanet_resnet18_fpn",
    "model.image_size": 64,
    "model.sync_bn": "true",
    "model.trainable_layers": 3,
    "model.fpn_channels": 16,
    "train.loss_normalizer": "global",
    "train.max_steps": 3,
    "schedule.lr": 0.001,
}
PLATEAU = {
    "data.sampler": "balanced",
    "model.dropout": 0.2,
    "optim.name": "adamw",
    "schedule.kind": "plateau",
    "schedule.metric": "train_loss",
    "schedule.patience": 0,
}
# Slices, settings, and numbers of ranks, the first of which is compared with the others.
CASES = {
    "tiny": (16, {}, (1, 3, 16)),
    "twelve": (12, {}, (5, 8)),
    "mixed": (5, {**RESNET, "data.mixup": 0.2, "train.ema_decay": 0.9, "optim.clip_norm": 1}, (3, 5)),
    "lars": (6, {**RESNET, "optim.name": "lars", "train.class_weights": "balanced"}, (1, 4)),
    "groups": (12, {**SYNCED, "model.sync_bn": 4, "optim.name": "lars", "train.ema_decay": 0.9}, (1, 5)),
    "one group": (5, {**SYNCED, "model.sync_bn": "true", "train.precision": "bf16"}, (2, 5)),
    "frozen": (4, {**SYNCED, **FROZEN, "model.sync_bn": 2}, (1, 3)),
    "bf16": (6, {**RESNET, "train.precision": "bf16"}, (1, 4)),
    "plateau": (5, PLATEAU, (1, 2, 3)),
    "per rank": (4, {"train.global_batch_size": 0, "train.batch_size_per_rank": 9}, (1, 3)),
    "detector": (5, DETECTOR, (1, 3)),
}


def tensor(path, name):
    """The fp32 values of a tensor in a safetensors file."""
    file = content(path)
    n = int.from_bytes(file[:8], "little")
    begin, end = json.loads(file[8 : 8 + n])[name]["data_offsets"]
    return array.array("f", file[8 + n + begin : 8 + n + end])


def losses(folder):
    """By step; those that were trained again count once, and must be equal."""
    found = {}
    for step in events(folder, "step"):
        loss = found.setdefault(step["step"], step["loss"])
        assert loss == step["loss"], (folder, step)
    return found


def check(name):
    slices, changes, numbers = CASES[name]
    first = None
    for n in numbers:
        folder = f"{name} {n}"
        train(folder, {"train.virtual_ranks": slices}, changes, ranks=n)
        result = (rig.state_of(folder), losses(folder))
        first = first or result
        assert result == first, f"{name}: {n} ranks differ from {numbers[0]}"
    print(f"{name}: {first[0][:16]} on {numbers} ranks", flush=True)


def check_order():
    """The tree is another sum than that of plain micro-batches; both are what the same data give."""
    train("plain", {"train.micro_batch_size": 3})
    assert rig.state_of("plain") != rig.state_of("tiny 1"), "slices are added one by one"
    one, other = losses("plain"), losses("tiny 1")
    assert max(abs(one[step] / other[step] - 1) for step in one) < 1e-3


def check_groups():
    """Slices that share batch norm statistics give what as many ranks that share them give, and nothing else does."""
    train("ranks", CASES["groups"][1], ranks=12)
    train("alone", {"train.virtual_ranks": 12}, CASES["groups"][1], {"model.sync_bn": "false"})
    ranks, alone, groups = losses("ranks"), losses("alone"), losses("groups 1")
    assert max(abs(ranks[step] / groups[step] - 1) for step in groups) < 1e-4, (ranks, groups)
    assert max(abs(alone[step] / groups[step] - 1) for step in groups) > 1e-3, (alone, groups)


def check_chain():
    """Four ranks, killed; three, killed; five; and one to the end, each inside an epoch."""
    changes = {"train.virtual_ranks": 16, "checkpoint.every_steps": 1}
    for ranks, fault, code in ((4, "kill@6:1", 137), (3, "kill@9:2", 137), (5, None, 0), (1, None, 0)):
        steps = {5: 11, 1: 16}.get(ranks, 16)
        env = {"DTRAIN_FAULT": fault} if fault else {}
        done = train("chain", changes, {"train.max_steps": steps}, ranks=ranks, code=code, env=env)
        assert "not bit-identical" not in done.said, done.said
    train("whole", changes, {"train.max_steps": 16}, ranks=2)
    assert rig.state_of("chain") == rig.state_of("whole"), "other bits after three changes of the ranks"
    chain, whole = losses("chain"), losses("whole")
    assert chain == {step: whole[step] for step in chain} and len(events("chain", "run_start")) == 4
    chain, whole = (events(folder, "run_end")[-1]["model_xxh128"] for folder in ("chain", "whole"))
    assert chain == whole and len(chain) == 32, (chain, whole)


def check_device():
    """A checkpoint knows what its bits depend on: instruction set, library, threads."""
    changes = {"train.virtual_ranks": 16, "train.max_steps": 17, "device.threads": 2}
    done = train("chain", changes)
    assert ", 1 thread; results agree up to rounding but are not bit-identical" in done.said, done.said


def check_average():
    """Statistics from all slices, on ranks that have different numbers of them; and more ranks evaluate than slices."""
    train("norm", {"train.virtual_ranks": 6, "model.sync_bn": 3}, RESNET)
    words = ("average", "norm/checkpoints/latest", "--recompute-bn", "--config", "norm/config.json", "-o")
    for n in (1, 4):
        said(*words, f"{n}.safetensors", ranks=n)
    pairs = list(zip(tensor("1.safetensors", "bn1.running_var"), tensor("4.safetensors", "bn1.running_var")))
    assert len(pairs) == 16 and all(abs(a / b - 1) < 1e-5 for a, b in pairs), pairs
    assert said("eval", "norm", ranks=7).count('"top1"') == 1


def check_report():
    said("report", "chain", "-o", "chain.html")
    with open("chain.html", encoding="utf-8") as file:
        page = file.read()
    assert "16 on 4, 3, 5, 1 ranks" in page, page[:9000]
    layout = said("--config", "config.json", "--set", "train.virtual_ranks=6", "--dry-run", ranks=2)
    assert "global batch 48 = 6 virtual ranks x 8 images" in layout, layout


def check_refusals():
    cases = (
        (3, {"train.virtual_ranks": 2}, "2 of them cannot be shared by 3 ranks; start at most 2"),
        (1, {"train.virtual_ranks": 49}, "48 images are too few for 49 virtual ranks; raise it, or set train.virtual_ranks to at most 48"),
        (1, {"train.virtual_ranks": 2, "train.micro_batch_size": 4}, "remove train.micro_batch_size"),
        (1, {"train.virtual_ranks": 6, "model.name": "resnet20", "model.sync_bn": 4}, "cannot form groups of 4"),
        (1, {"train.virtual_ranks": 2, "comm.grad_dtype": "fp16"}, "summed in fp32"),
        (1, {"train.virtual_ranks": 2, "comm.mode": "central"}, 'comm.mode "allreduce"'),
        (1, {"train.virtual_ranks": 2, "device.threads": 0}, "depend on device.threads"),
    )
    for ranks, changes, what in cases:
        refused = train("refused", changes, ranks=ranks, code=78)
        assert what in refused.said, (what, refused.said)
    other = train("chain", {"train.virtual_ranks": 8, "train.max_steps": 18}, code=78)
    assert "train.virtual_ranks" in other.said, other.said


write_config(
    {
        "model": {"name": "tiny", "num_classes": 10, "image_size": 32},
        "data": {"source": "synthetic", "synthetic_train": 384, "synthetic_val": 24, "workers": 1},
        "train": {"epochs": 2, "global_batch_size": 48},
        "eval": {"batch_size_per_rank": 4},
        "schedule": {"lr": 0.05, "lr_scaling": "none", "warmup_epochs": 0},
        "device": {"kind": "cpu", "threads": 1},
        "output": {"log_every": 1, "telemetry_s": 0, "sinks": ["jsonl"]},
    }
)
for case in CASES:
    check(case)
check_order()
check_groups()
check_chain()
check_average()
check_report()
check_device()
check_refusals()
