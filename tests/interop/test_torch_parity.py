"""The same network, weights and batches in torchvision and in dtrain (fp32).

    python3 test_torch_parity.py BUILD/dtrain [cpu|cuda [THREADS [full]]]

THREADS: of PyTorch. full: three steps of each network but VGG, and PyTorch in fp64 for all.

For the networks of CASES, of which two have frozen modules, below the others and between them: up
to three steps on one batch, compared with PyTorch's: loss, every gradient tensor in norm, running
statistics, how far all weights together have moved, and all names. The weights of the first
network are from a file that dtrain wrote, which loads with strict=True. VGG-11-BN has mixed labels,
which PyTorch gets as probabilities, and class weights.

Rounding alone decides on which side of 0 an input of ReLU falls that is within rounding of 0. One
such value changes gradients by 1e-3 and more, and training amplifies that from step to step, in
PyTorch's own fp32 as much as in dtrain and on every CPU for another batch. So there are few steps
at a small rate, and batches are drawn until one keeps away from these kinks: PyTorch's fp32 must
agree with its fp64 to CLEAN (typically ten times better), and dtrain with the same fp64 to about
three times that. At most MAX_CLEAN clean batches are tried, as dtrain may meet a kink where PyTorch
does not; a wrong formula would fail on every one of them. Where the reference is PyTorch's fp32, good
to 5e-6, every batch counts as clean. A convolution bias before batch norm has gradient 0 but for
rounding, so its error is taken relative to a tenth of the norm of all gradients together.
Label: numeric."""

import copy
import os
import subprocess
import sys
import tempfile
import typing

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from torch_rig import DTRAIN, check_batches, norm, normalise, np, safetensors_np, save_model  # noqa: E402
from torch_rig import sections, sgd, tool, torch, worst  # noqa: E402
import torchvision  # noqa: E402

DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cpu"
MAX_BATCHES, MAX_CLEAN = 60, 8
# Largest relative errors: of PyTorch's fp32 on a clean batch, and of dtrain on it. A step without
# momentum moves the weights by 0.4 less in norm.
CLEAN = {"gradient": 3e-5, "movement": 1e-2}
BOUND = {"first loss": 1e-5, "last loss": 1e-4, "gradient": 1e-4, "statistic": 1e-5, "movement": 3e-2}


class Case(typing.NamedTuple):
    name: str
    classes: int
    size: int
    batch: int
    lr: float
    damping: float  # of residual branches: bn3.weight
    first_draw: int  # a batch known to be clean on one machine; others are tried after it
    steps: int
    exact: torch.dtype = torch.float64  # of the reference; fp64 takes three times as long, and the memory
    mixed: bool = False  # labels, as of mixup and CutMix; and class weights
    gradient: float = BOUND["gradient"]
    frozen: tuple = ()  # modules: requires_grad=False, batch norm in evaluation mode


# The residual branches of ResNet-50 are damped, as the backward pass through 16 of them with random
# labels otherwise multiplies rounding by thousands. 36 pixels are just enough for 2 x 2 in the last
# stage: the fewer values, the fewer kinks. 64 are enough for Winograd in the first two stages, in both
# of its ways to share the work (src/cpu/winograd.c).
CASES = [
    Case("resnet18", 1000, 64, 4, 0.0003, 1.0, 1, 3),
    Case("resnet50", 1000, 36, 4, 0.0001, 0.2, 1, 2),
    Case("resnext50_32x4d", 100, 36, 4, 0.0001, 0.2, 0, 1, torch.float32),
    Case("densenet121", 100, 64, 3, 0.0001, 1.0, 11, 1, torch.float32),
    # Each channel of its first norm is normalised again, so that the gradient of the scale is nearly 0:
    # PyTorch's own fp32 is 5e-4 to 1e-3 off.
    Case("mobilenet_v2", 100, 64, 4, 0.0001, 1.0, 4, 1, torch.float32, gradient=3e-3),
    Case("mobilenet_v3_large", 100, 64, 4, 0.0001, 1.0, 0, 1, torch.float32),
    Case("efficientnet_b0", 100, 64, 4, 0.0001, 1.0, 0, 1, torch.float32),
    Case("convnext_tiny", 100, 64, 3, 0.0001, 1.0, 0, 1, torch.float32),
    Case("squeezenet1_1", 100, 64, 4, 0.0001, 1.0, 0, 1, torch.float32),
    Case("vgg11_bn", 100, 32, 4, 0.0003, 1.0, 0, 1, torch.float32, mixed=True),
    *(
        Case("resnet18", 10, 36, 4, 0.0003, 1.0, 0, 2, torch.float32, frozen=frozen)
        for frozen in (
            ("conv1", "bn1", "layer1", "layer2.0"),
            ("layer2", "layer3.1.bn2", "layer4.0.conv2"),
        )
    ),
]
if "full" in sys.argv:
    CASES = [case._replace(steps=3 if case.steps > 1 else 1, exact=torch.float64) for case in CASES]
if "ONEDNN_MAX_CPU_ISA" in os.environ:  # ops/cpu_ops has the layers of the large ones as well
    CASES = [c for c in CASES if c.exact == torch.float32 and c.name not in ("vgg11_bn", "convnext_tiny")]
WEIGHT_DECAY = 0.1  # large enough to be seen in the movement


def dtrain_weights(case, folder):
    """A model file from a run of the real program (zero steps of training would not write one)."""
    sets = {"model.name": case.name, "model.num_classes": case.classes, "model.image_size": case.size}
    sets |= {"data.source": "synthetic", "data.synthetic_train": 4, "data.synthetic_val": 4}
    sets |= {"train.global_batch_size": 4, "train.max_steps": 1, "eval.batch_size_per_rank": 4}
    sets |= {"schedule.lr": 1e-6, "schedule.warmup_epochs": 0, "device.kind": DEVICE}
    config, out = os.path.join(folder, "config.json"), os.path.join(folder, "run")
    with open(config, "w") as f:
        f.write("{}")
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    subprocess.run([DTRAIN, "--config", config, "--out", out, *words], check=True, capture_output=True)
    return os.path.join(out, "checkpoints", "step-000000001", "model.safetensors")


class Batch(typing.NamedTuple):
    """In the order of a step in the file of steps_tool; the last three are written if mixed."""

    pixels: np.ndarray
    labels: np.ndarray
    labels2: np.ndarray
    shares: np.ndarray  # of labels; one row has the same label twice, one has a share of 1
    class_weights: np.ndarray


def draw_batch(case, index):
    rng = np.random.default_rng(index)
    shape = (case.batch, case.size, case.size, 3)
    pixels = rng.integers(0, 256, shape, dtype=np.uint8)
    labels, labels2 = rng.integers(0, case.classes, (2, case.batch), dtype=np.int32)
    labels2[0] = labels[0]
    shares = rng.uniform(0.5, 1, case.batch).astype(np.float32)
    shares[1] = 1
    class_weights = rng.uniform(0.3, 3, case.classes).astype(np.float32)
    return Batch(pixels, labels, labels2, shares, class_weights)


def torch_target(case, batch):
    labels, labels2 = torch.from_numpy(batch.labels).long(), torch.from_numpy(batch.labels2).long()
    if not case.mixed:
        return labels
    one_hot = torch.nn.functional.one_hot
    share = torch.from_numpy(batch.shares).double()[:, None]
    return share * one_hot(labels, case.classes) + (1 - share) * one_hot(labels2, case.classes)


class Result(typing.NamedTuple):
    losses: list
    gradients: dict  # of step 1
    statistics: dict  # running ones, after step 1
    movement: dict  # of the weights since the start


def torch_loss(case, model, batch, dtype):
    target = torch_target(case, batch)
    weight = torch.from_numpy(batch.class_weights).to(dtype) if case.mixed else None
    criterion = torch.nn.CrossEntropyLoss(weight, label_smoothing=0.1)
    return criterion(model(normalise(batch.pixels, dtype)), target.to(dtype) if case.mixed else target)


def freeze(case, model):
    for name, module in model.named_modules():
        if any(f"{name}.".startswith(f"{frozen}.") for frozen in case.frozen):
            module.requires_grad_(False).eval()


def arrays(tensors):
    return {n: t.detach().numpy() for n, t in tensors if t is not None and t.ndim}


def difference(a, b):
    return {name: a[name] - b[name] for name in b}


def torch_steps(case, start, batch, dtype):
    """The Result after the first step, and after the last. Nothing is copied that does not change: VGG
    takes gigabytes."""
    model = copy.deepcopy(start).to(dtype)
    params = list(model.named_parameters())
    before, losses, movement = arrays(start.named_parameters()), [], None
    momentum = 0.9 if case.steps > 1 else 0  # one step is the same without the memory for it
    optimizer = sgd([p for _, p in params], case.lr, WEIGHT_DECAY, momentum)
    model.train()
    freeze(case, model)
    for step in range(case.steps):
        optimizer.zero_grad(set_to_none=True)
        loss = torch_loss(case, model, batch, dtype)
        loss.backward()
        if step == 0:
            gradients = arrays((n, p.grad) for n, p in params)
            statistics = {name: value.copy() for name, value in arrays(model.named_buffers()).items()}
        optimizer.step()
        losses.append(loss.item())
        if step == case.steps - 1:
            movement = difference(arrays(params), before)
        if step in (0, case.steps - 1):
            yield Result(losses, gradients, statistics, movement)


def dtrain_steps(case, model, batch, folder):
    files = [os.path.join(folder, name) for name in ("weights", "batches", "out")]
    save_model(files[0], model)
    with open(files[1], "wb") as f:
        step = b"".join(part.tobytes() for part in (batch if case.mixed else batch[:2]))
        f.write(step * case.steps)
    sizes = [case.classes, case.size, case.batch, case.steps, case.lr]
    frozen = "".join(f"{name}\n" for name in case.frozen)
    text = tool("steps_tool", case.name, *sizes, *files, DEVICE, "mixed" if case.mixed else "plain", frozen)
    values, before = sections(files[2]), arrays(model.named_parameters())
    if values["param"].keys() != before.keys() or values["stat"].keys() != arrays(model.named_buffers()).keys():
        sys.exit(f"{case.name}: dtrain has the tensors {values['param'].keys()} and {values['stat'].keys()}")
    movement = {name: value - before[name] for name, value in values["param"].items()}
    return Result([float(line) for line in text.split()], values["grad"], values["stat"], movement)


def errors_of(ours, exact, keys=tuple(BOUND)):
    """By the keys of BOUND: the relative error, and where."""
    loss = [(abs(a / b - 1), f"{b:.4f}") for a, b in zip(ours.losses, exact.losses)]
    errors = {
        "first loss": lambda: loss[0],
        "last loss": lambda: loss[-1],
        "gradient": lambda: worst(ours.gradients, exact.gradients),
        "statistic": lambda: worst(ours.statistics, exact.statistics) if exact.statistics else (0, "none"),
        "movement": lambda: (
            norm(ours.movement[name] - value for name, value in exact.movement.items())
            / norm(exact.movement.values()),
            f"{len(exact.movement)} tensors",
        ),
    }
    return {key: errors[key]() for key in keys}


def clean_batches(case, model):
    """Batches away from all kinks, and the exact result of their steps."""
    dtypes = [torch.float32] if case.exact == torch.float32 else [case.exact, torch.float32]
    for i in range(case.first_draw, case.first_draw + MAX_BATCHES):
        batch = draw_batch(case, i)
        runs = [torch_steps(case, model, batch, dtype) for dtype in dtypes]
        for key, (exact, *own) in zip(CLEAN, zip(*runs)):  # after the first step, and after the last
            if own and not errors_of(own[0], exact, [key])[key][0] <= CLEAN[key]:
                break
        else:
            yield i, batch, exact


def make_model(case, folder=None):
    """With random weights, those of dtrain_weights if there is a folder for them."""
    torch.manual_seed(1)
    model = getattr(torchvision.models, case.name)(weights=None, num_classes=case.classes)
    for module in model.modules():
        if isinstance(module, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
            module.p = 0.0
    if folder:
        state = safetensors_np.load(dtrain_weights(case, folder))
        model.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in state.items()}, strict=True)
    for key, value in model.named_parameters():
        if key.endswith("bn3.weight"):
            torch.nn.init.constant_(value, case.damping)
    return model


def check_case(case, folder):
    model = make_model(case, folder if case is CASES[0] else None)

    def errors(batch, exact):
        return errors_of(dtrain_steps(case, model, batch, folder), exact)

    return check_batches(case.name, clean_batches(case, model), errors, BOUND | {"gradient": case.gradient}, MAX_CLEAN)


def main():
    with tempfile.TemporaryDirectory() as top:
        good = [check_case(case, tempfile.mkdtemp(dir=top)) for case in CASES]
    return 0 if all(good) else 1


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[3]) if len(sys.argv) > 3 else 2)
    sys.exit(main())
