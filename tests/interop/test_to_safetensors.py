"""scripts/to_safetensors.py: a ResNet-18 of torchvision, saved in the wrappings that are common,
gives the same tensors bit for bit, which dtrain loads; dtrain's loss with them is PyTorch's. What
cannot be converted is named. Label: numeric."""

import argparse
import collections
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torchvision
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import safetensors_np  # noqa: E402

SCRIPT = os.path.join(HERE, "..", "..", "scripts", "to_safetensors.py")
STEPS_TOOL = os.path.join(os.path.dirname(sys.argv[1]), "tests", "steps_tool")
CLASSES, SIZE, BATCH = 1000, 64, 4
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def prefixed(state, prefix):
    return collections.OrderedDict((prefix + name, value) for name, value in state.items())


def wrappings(state):
    """By name: the object to be saved, what the output must mention, and further arguments."""
    lightning = {**prefixed(state, "model."), "criterion.names": "x", "mask": torch.ones(2).bool()}
    other = {name: torch.zeros(1) for name in state}
    return {
        "plain": (state, "122 tensors", []),
        "ddp": (prefixed(state, "module."), "122 tensors", []),
        "compiled": ({"model": prefixed(state, "module._orig_mod."), "epoch": 3}, "left out: epoch", []),
        "trainer": ({"epoch": 1, "state_dict": state, "optimizer": {"lr": 1}}, "epoch, optimizer", []),
        "lightning": ({"state_dict": lightning}, "criterion.names (str), mask (torch.bool)", []),
        "ema": ({"model": other, "ema": state}, "left out: model", ["--key", "ema"]),
        "fp64": ({n: v.double() if v.is_floating_point() else v for n, v in state.items()}, "122", []),
        "views": ({n: torch.stack([v, v], -1)[..., 0] for n, v in state.items()}, "122 tensors", []),
    }


def convert(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)


def check_wrapping(folder, name, content, mention, arguments, expected):
    source, target = os.path.join(folder, f"{name}.pth"), os.path.join(folder, f"{name}.safetensors")
    torch.save(content, source, _use_new_zipfile_serialization=name != "plain")
    done = convert(source, target, *arguments)
    assert done.returncode == 0 and mention in done.stdout, (name, done)
    tensors = safetensors_np.load(target)
    assert list(tensors) == list(expected), name
    for key, value in expected.items():
        assert np.array_equal(tensors[key], value) and tensors[key].dtype == value.dtype, (name, key)
    return target


def check_half(folder, state):
    """bf16 and fp16: as many bytes, and the same values in dtrain as rounded in PyTorch."""
    for dtype in (torch.bfloat16, torch.float16):
        rounded = {n: v.to(dtype) if v.is_floating_point() else v for n, v in state.items()}
        source, target = os.path.join(folder, "half.pth"), os.path.join(folder, "half.safetensors")
        torch.save(rounded, source)
        done = convert(source, target, "--force")
        assert done.returncode == 0 and os.path.getsize(target) < 24e6, done
        check_loss(folder, target, {n: v.to(state[n].dtype) for n, v in rounded.items()}, dtype)


def check_loss(folder, weights, state, name):
    """The loss of one batch depends on all logits."""
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (BATCH, SIZE, SIZE, 3), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, BATCH, dtype=np.int32)
    batches, out = os.path.join(folder, "batches"), os.path.join(folder, "out")
    with open(batches, "wb") as f:
        f.write(pixels.tobytes() + labels.tobytes())
    command = [STEPS_TOOL, "resnet18", *map(str, (CLASSES, SIZE, BATCH, 1, 0)), weights, batches, out]
    loss = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    model = torchvision.models.resnet18(weights=None)
    model.load_state_dict(state, strict=True)
    model.double().train()
    x = ((torch.from_numpy(pixels).double() / 255 - MEAN) / STD).permute(0, 3, 1, 2)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    exact = criterion(model(x), torch.from_numpy(labels).long()).item()
    print(f"{name}: loss {loss:.7f}, PyTorch's {exact:.7f}", flush=True)
    assert abs(loss / exact - 1) < 1e-5, (name, loss, exact)


def check_refused(folder, model, state):
    def saved(name, content):
        torch.save(content, os.path.join(folder, name))
        return name

    def written(name, blob):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(blob)
        return name

    twice = {"fc.bias": torch.zeros(1), "module.fc.bias": torch.zeros(1)}
    cases = [
        (saved("whole.pth", model), "save model.state_dict()"),
        (saved("args.pth", {"state_dict": state, "args": argparse.Namespace(a=1)}), "argparse.Namespace"),
        (saved("list.pth", [1, 2]), "holds a list"),
        (written("page.pt", b"<html>"), "not a file that torch.save wrote"),
        (saved("nothing.pth", {"a": 1}), "holds no tensors; it has: a"),
        (saved("twice.pth", twice), "two tensors are called fc.bias"),
        (written("page.pth", b"<!DOCTYPE html><html>"), "not a file that torch.save wrote"),
        (written("empty.pth", b""), "not a file that torch.save wrote"),
        ("missing.pth", "No such file"),
    ]
    for name, message in cases:
        target = os.path.join(folder, "refused.safetensors")
        done = convert(os.path.join(folder, name), target)
        lines = done.stderr.splitlines()
        assert done.returncode == 1 and len(lines) == 1 and message in lines[0], (name, done)
        assert not os.path.exists(target), name


def main(folder):
    torch.manual_seed(1)
    model = torchvision.models.resnet18(weights=None)
    state = model.state_dict()
    expected = {name: value.numpy() for name, value in state.items()}
    for name, case in wrappings(state).items():
        target = check_wrapping(folder, name, *case, expected)
    check_loss(folder, target, state, "fp32")
    check_half(folder, state)
    check_refused(folder, model, state)
    done = convert(os.path.join(folder, "ddp.pth"), target)
    assert done.returncode == 1 and "exists; --force replaces it" in done.stderr, done
    leftovers = [name for name in os.listdir(folder) if name.endswith(".part")]
    assert not leftovers, leftovers


torch.set_num_threads(2)
with tempfile.TemporaryDirectory() as top:
    main(top)
