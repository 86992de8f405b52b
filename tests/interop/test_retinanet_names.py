"""RetinaNet's weights go from torchvision to dtrain and back: what dtrain writes has torchvision's
names and loads with strict=True, and what it has loaded is the same bit for bit. Also: the names of
torchvision before 0.13, another number of classes, a classifier as the backbone, and files that do
not fit.
usage: test_retinanet_names.py DTRAIN"""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from torch_rig import np, safetensors_np, tool_path, torch  # noqa: E402
import retinanet_torch as net  # noqa: E402
import torchvision  # noqa: E402

# The pyramid is narrower than usual: how many parameters those of torchvision have is a matter of
# unit/models_retinanet.
CLASSES, HEIGHT, WIDTH, CHANNELS = 91, 64, 96, 32
FROZEN, VERSION_2 = ["model.frozen_norm=true"], ["model.p6_from=c5", "model.head_norm=group"]
LOGITS = "head.classification_head.cls_logits."
NETWORKS = (  # depth, frozen norms, version 2, keys
    (18, False, False, []),
    (50, True, False, FROZEN + ["model.trainable_layers=3"]),
    (50, False, True, VERSION_2),
)


def classifier(depth):
    return getattr(torchvision.models, f"resnet{depth}")()


def detector(depth=18, frozen=False, version_2=False):
    return net.make_model(depth, CLASSES, CHANNELS, 32, frozen, version_2, trainable=3 if frozen else 5)


def draw(model, seed):
    """Random values everywhere, also in the statistics; the counters are not kept."""
    torch.manual_seed(seed)
    return {
        name: torch.rand_like(value) + 0.5 if value.is_floating_point() else torch.zeros_like(value)
        for name, value in model.state_dict().items()
    }


def run(folder, name, keys, state=None, classes=CLASSES):
    """What the tool printed, and the file it wrote; None if it refused the file."""
    source, target = os.path.join(folder, "in"), os.path.join(folder, "out")
    if state:
        safetensors_np.save(source, {key: value.numpy() for key, value in state.items()})
    command = [tool_path("weights_tool"), str(HEIGHT), str(WIDTH), source if state else "", target]
    keys = [f"model.name={name}", f"model.num_classes={classes}", *keys]
    keys += [f"model.fpn_channels={CHANNELS}"] if name.startswith("retinanet") else []
    done = subprocess.run([*command, *keys], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        return done.stderr, None
    return done.stdout, safetensors_np.load(target)


def old_name(name):
    name = re.sub(r"(head\.\w+_head\.conv)\.(\d)\.0\.", lambda m: f"{m[1]}.{2 * int(m[2])}.", name)
    return re.sub(r"(backbone\.fpn\.(?:inner|layer)_blocks\.\d)\.0\.", r"\1.", name)


def check_equal(found, state, but=()):
    for name, value in state.items():
        if name not in but:
            assert np.array_equal(found[name], value.numpy()), name


def check_network(folder, depth, frozen, version_2, keys):
    model, name = detector(depth, frozen, version_2), f"retinanet_resnet{depth}_fpn"
    state = draw(model, depth)
    text, found = run(folder, name, keys, state)
    assert found is not None, text
    n_loaded = sum(value.is_floating_point() for value in state.values())
    n_parameters = sum(p.numel() for p in model.parameters())
    n_trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert f"{n_loaded} of {n_loaded} tensors from " in text, text
    assert f"{n_parameters} parameters, {n_trained} trained" in text, text
    assert set(found) == set(state), set(found) ^ set(state)
    check_equal(found, state)
    model.load_state_dict({key: torch.tensor(value) for key, value in found.items()}, strict=True)
    if depth == 18:
        old = {old_name(key): value for key, value in state.items()}
        assert sum(key not in state for key in old) == 28
        text, found = run(folder, name, keys, old)
        assert found is not None, text
        check_equal(found, state)


def check_random_weights(folder):
    """Written without a file; the bias of the logits says that all is background."""
    model = detector()
    found = run(folder, "retinanet_resnet18_fpn", [])[1]
    model.load_state_dict({key: torch.tensor(value) for key, value in found.items()}, strict=True)
    assert np.allclose(found[LOGITS + "bias"], model.head.classification_head.cls_logits.bias.detach())
    for name, value in detector().state_dict().items():
        if name.endswith(".weight") and value.dim() == 4:  # drawn from the same distribution
            ratio = found[name].std() / value.numpy().std()
            assert abs(ratio - 1) < 0.1, (name, ratio)


def check_classes(folder):
    state = draw(detector(), 1)
    text, found = run(folder, "retinanet_resnet18_fpn", [], state, classes=3)
    assert "134 of 136 tensors" in text, text
    assert "classifier head.classification_head.cls_logits new (91 -> 3 classes)" in text, text
    assert found[LOGITS + "weight"].shape == (27, CHANNELS, 3, 3)
    check_equal(found, state, but=(LOGITS + "weight", LOGITS + "bias"))


def check_backbone(folder):
    """Also through DDP, and into constant norms."""
    for keys, prefix in (([], ""), (FROZEN, "module.")):
        state = draw(classifier(18), 2)
        text, found = run(folder, "retinanet_resnet18_fpn", keys, {prefix + n: v for n, v in state.items()})
        assert "100 of 136 tensors" in text and "a classifier without its fc" in text, text
        body = {n: v for n, v in state.items() if not n.startswith("fc.") and v.is_floating_point()}
        check_equal(found, {"backbone.body." + name: value for name, value in body.items()})


def check_refusals(folder):
    text, found = run(folder, "retinanet_resnet18_fpn", [], draw(classifier(34), 3))
    assert found is None and 'Unexpected key(s) in state_dict: "layer1.2.conv1.weight"' in text, text
    text, found = run(folder, "retinanet_resnet18_fpn", VERSION_2, draw(detector(), 3))
    assert found is None and "Missing key(s)" in text and "size mismatch for backbone.fpn" in text, text
    text, found = run(folder, "resnet18", [], draw(detector(), 3))
    assert found is None and "Unexpected key(s)" in text, text


def main():
    with tempfile.TemporaryDirectory() as folder:
        for network in NETWORKS:
            check_network(folder, *network)
        check_random_weights(folder)
        check_classes(folder)
        check_backbone(folder)
        check_refusals(folder)
    print(f"torchvision {torchvision.__version__}: {len(NETWORKS)} networks both ways")


main()
