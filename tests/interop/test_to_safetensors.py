"""scripts/to_safetensors.py: a ResNet-18 of torchvision, saved in the wrappings that are common,
gives the same tensors bit for bit, which dtrain loads; dtrain's loss with them is PyTorch's. What
cannot be converted is named."""

import argparse
import collections
import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
import tempfile
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from torch_rig import normalise, np, safetensors_np, tool, torch  # noqa: E402
import torchvision  # noqa: E402

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "to_safetensors.py")
CLASSES, SIZE, BATCH = 1000, 64, 4


def prefixed(state, prefix):
    return collections.OrderedDict((prefix + name, value) for name, value in state.items())


def wrappings(state):
    """By name: the object to be saved, what the output must mention, and further arguments."""
    lightning = {**prefixed(state, "model."), "criterion.names": "x", "mask": torch.ones(2).bool()}
    other = {name: torch.zeros(1) for name in state}
    return {
        "plain": (state, "122 tensors", []),
        "ddp": (prefixed(state, "module."), "122 tensors", []),
        "compiled": ({"model": prefixed(state, "module._orig_mod."), "epoch": 3}, "omitted: epoch", []),
        "trainer": ({"epoch": 1, "state_dict": state, "optimizer": {"lr": 1}}, "epoch, optimizer", []),
        "lightning": ({"state_dict": lightning}, "criterion.names (str), mask (torch.bool)", []),
        "ema": ({"model": other, "ema": state}, "omitted: model", ["--key", "ema"]),
        "fp64": ({n: v.double() if v.is_floating_point() else v for n, v in state.items()}, "122", []),
        "views": ({n: torch.stack([v, v], -1)[..., 0] for n, v in state.items()}, "122 tensors", []),
    }


def convert(*arguments):
    """As a process would, but for another second in which it loads PyTorch."""
    code, stdout, stderr, before = 0, io.StringIO(), io.StringIO(), sys.argv
    sys.argv = [SCRIPT, *arguments]
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            runpy.run_path(SCRIPT, run_name="__main__")
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):  # to stderr, and the exit code is 1
            stderr.write(code + "\n")
            code = 1
    sys.argv = before
    return types.SimpleNamespace(returncode=code, stdout=stdout.getvalue(), stderr=stderr.getvalue())


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
    loss = float(tool("steps_tool", "resnet18", CLASSES, SIZE, BATCH, 1, 0, weights, batches, out))
    model = torchvision.models.resnet18(weights=None)
    model.load_state_dict(state, strict=True)
    model.double().train()
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    exact = criterion(model(normalise(pixels, torch.float64)), torch.from_numpy(labels).long()).item()
    print(f"{name}: loss {loss:.7f}, PyTorch's {exact:.7f}", flush=True)
    assert abs(loss / exact - 1) < 1e-5, (name, loss, exact)


def check_densenet(folder):
    """The names of the published file, from before torchvision 0.3, become today's."""
    names = torchvision.models.densenet121(weights=None, num_classes=2).state_dict()
    old = {re.sub(r"(norm|conv)([12])\.", r"\1.\2.", n) if "denselayer" in n else n: v for n, v in names.items()}
    assert "features.denseblock1.denselayer1.norm.1.weight" in old
    torch.save(old, os.path.join(folder, "densenet.pth"))
    target = os.path.join(folder, "densenet.safetensors")
    assert convert(os.path.join(folder, "densenet.pth"), target).returncode == 0
    assert list(safetensors_np.load(target)) == list(names)


def check_timm(folder, state):
    """A file of timm's hub: torchvision's names, in the order of the library safetensors, by the size
    of the type, then by name; dtrain reads it as it is."""
    by_size = sorted(state.items(), key=lambda item: (-item[1].element_size(), item[0]))
    target = os.path.join(folder, "timm.safetensors")
    safetensors_np.save(target, {name: value.numpy() for name, value in by_size})
    check_loss(folder, target, state, "timm")


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
    check_timm(folder, state)
    check_densenet(folder)
    check_half(folder, state)
    check_refused(folder, model, state)
    command = [sys.executable, SCRIPT, os.path.join(folder, "ddp.pth"), target]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "exists; --force replaces it" in done.stderr, done
    done = subprocess.run([*command, "--force"], capture_output=True, text=True)
    assert done.returncode == 0 and f"{target}: 122 tensors" in done.stdout, done
    leftovers = [name for name in os.listdir(folder) if name.endswith(".part")]
    assert not leftovers, leftovers


torch.set_num_threads(2)
with tempfile.TemporaryDirectory() as top:
    main(top)
