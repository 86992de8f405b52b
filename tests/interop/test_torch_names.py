"""Classifiers go from torchvision to dtrain and back: what dtrain writes has torchvision's names and
loads with strict=True, what it has loaded is the same bit for bit, and its random weights have the
distributions that torchvision draws from.

    test_torch_names.py BUILD/dtrain [full]

Of every family the small ones; full: all that `dtrain models` lists and torchvision has."""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from torch_rig import DTRAIN, np, safetensors_np, tool, torch  # noqa: E402
import torchvision  # noqa: E402

SIZE, CLASSES = 64, 100
# Of the same code as another one, with more of it (unit/models_list has their sizes).
LARGE = re.compile("vgg|alexnet|wide|resnext101|resnet(34|101|152)|convnext_(small|base)|densenet(161|169|201)|.*_b[12]")
MANY = 1000  # values tell a distribution


def names():
    """Of `dtrain models`."""
    lines = subprocess.run([DTRAIN, "models"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    known = [line.split()[0] for line in lines[1:] if hasattr(torchvision.models, line.split()[0])]
    assert len(known) >= 35, known
    return known


def run(folder, name, source="", classes=CLASSES):
    target = os.path.join(folder, "out")
    keys = [f"model.name={name}", f"model.num_classes={classes}"]
    text = tool("weights_tool", SIZE, SIZE, source, target, *keys)
    return text, safetensors_np.load(target)


def shape(values):
    """Standard deviation, and how far the largest value is: sqrt(3) of a uniform distribution. PyTorch's truncated
    normal distribution now and then gives 2 instead of 0.02, where its erfinv overflows."""
    values = values[np.abs(values) < 50 * np.median(np.abs(values))]
    return values.std(), np.abs(values - values.mean()).max() / max(values.std(), 1e-30) < 1.9


def check_initial(model, found):
    for name, value in model.state_dict().items():
        ours, theirs = found[name], value.numpy()
        assert ours.shape == theirs.shape, name
        if theirs.size < MANY or theirs.std() < 1e-6:
            assert (ours.std() < 1e-6) == (theirs.std() < 1e-6), name
            assert theirs.std() >= 1e-6 or np.allclose(ours.flat[0], theirs.flat[0]), name
            continue
        (std, is_uniform), (std_there, is_uniform_there) = shape(ours), shape(theirs)
        assert abs(std / std_there - 1) < 6 / np.sqrt(theirs.size), (name, std, std_there)
        assert is_uniform == is_uniform_there, name


def check(folder, name):
    torch.manual_seed(1)
    model = getattr(torchvision.models, name)(num_classes=CLASSES)
    found = run(folder, name)[1]
    check_initial(model, found)
    model.load_state_dict({key: torch.tensor(value) for key, value in found.items()}, strict=True)
    rng, source = np.random.default_rng(1), os.path.join(folder, "in")
    state = {key: rng.random(value.shape, np.float32) + np.float32(0.5) for key, value in found.items()}
    floats = {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}
    safetensors_np.save(source, floats)
    text, found = run(folder, name, source)
    assert f"{len(floats)} of {len(floats)} tensors from " in text, text
    for key, value in floats.items():
        assert np.array_equal(found[key], value), (name, key)
    n_parameters = sum(p.numel() for p in model.parameters())
    assert f"{n_parameters} parameters, {n_parameters} trained" in text, text
    print(f"{name}: {len(floats)} tensors", flush=True)


def check_classes(folder):
    """The classifier of a SqueezeNet is a convolution, but has no anchors."""
    source = os.path.join(folder, "in")
    safetensors_np.save(source, run(folder, "squeezenet1_1")[1])
    text = run(folder, "squeezenet1_1", source, 10)[0]
    assert f"classifier classifier.1 new ({CLASSES} -> 10 classes)" in text, text


def main(folder):
    check_classes(folder)
    for name in names():
        if "full" in sys.argv or not LARGE.match(name):
            check(folder, name)


with tempfile.TemporaryDirectory() as top:
    main(top)
