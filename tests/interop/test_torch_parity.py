"""The same network, weights and batches in torchvision and in dtrain (fp32).

    python3 test_torch_parity.py BUILD/dtrain [cpu|cuda [THREADS]]     THREADS: of PyTorch

For ResNet-18, ResNet-50, VGG-11-BN, and ResNet-18 with frozen modules, below the others and between
them: a file that `dtrain` wrote loads with strict=True; then
up to three steps on one batch, compared with PyTorch's in fp64: loss, every gradient tensor in norm,
running statistics, and how far all weights together have moved. VGG-11-BN has mixed labels, which
PyTorch gets as probabilities, and class weights.

Rounding alone decides on which side of 0 an input of ReLU falls that is within rounding of 0. One
such value changes gradients by 1e-3 and more, and training amplifies that from step to step, in
PyTorch's own fp32 as much as in dtrain and on every CPU for another batch. So there are few steps
at a small rate, and batches are drawn until one keeps away from these kinks: PyTorch's fp32 must
agree with its fp64 to CLEAN (typically ten times better), and dtrain with the same fp64 to about
three times that. At most MAX_CLEAN clean batches are tried, as dtrain may meet a kink where PyTorch
does not; a wrong formula would fail on every one of them. A convolution bias before batch norm has
gradient 0 but for rounding, so its error is taken relative to a tenth of the norm of all gradients
together. Label: numeric."""

import copy
import itertools
import os
import subprocess
import sys
import tempfile
import typing

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

DTRAIN = sys.argv[1]
DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cpu"
STEPS_TOOL = os.path.join(os.path.dirname(DTRAIN), "tests", "steps_tool")
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
    mixed: bool = False  # labels, as of mixup and CutMix; and class weights
    frozen: tuple = ()  # modules: requires_grad=False, batch norm in evaluation mode


# The residual branches of ResNet-50 are damped, as the backward pass through 16 of them with random
# labels otherwise multiplies rounding by thousands. 36 pixels are just enough for 2 x 2 in the last
# stage: the fewer values, the fewer kinks. 64 are enough for Winograd in the first two stages, in both
# of its ways to share the work (src/cpu/winograd.c).
CASES = [
    Case("resnet18", 1000, 64, 4, 0.0003, 1.0, 1, 3),
    Case("resnet50", 1000, 36, 4, 0.0001, 0.2, 9, 3),
    Case("vgg11_bn", 100, 32, 4, 0.0003, 1.0, 0, 1, mixed=True),
    Case("resnet18", 10, 36, 4, 0.0003, 1.0, 0, 3, frozen=("conv1", "bn1", "layer1", "layer2.0")),
    Case("resnet18", 10, 36, 4, 0.0003, 1.0, 0, 3, frozen=("layer2", "layer3.1.bn2", "layer4.0.conv2")),
]
if "ONEDNN_MAX_CPU_ISA" in os.environ:  # ops/cpu_ops has the layers of VGG as well
    CASES = [case for case in CASES if not case.name.startswith("vgg")]
WEIGHT_DECAY = 0.1  # large enough to be seen in the movement
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def make_model(name, classes):
    options = {"dropout": 0.0} if name.startswith("vgg") else {}
    return getattr(torchvision.models, name)(weights=None, num_classes=classes, **options)


def dtrain_weights(name, classes, size, folder):
    """A model file from a run of the real program (zero steps of training would not write one)."""
    out = os.path.join(folder, "run")
    sets = {
        "model.name": name,
        "model.num_classes": classes,
        "model.image_size": size,
        "data.source": "synthetic",
        "data.synthetic_train": 8,
        "data.synthetic_val": 8,
        "train.global_batch_size": 4,
        "train.max_steps": 1,
        "optim.momentum": 0,  # a state less in the checkpoint
        "schedule.lr": 1e-6,
        "schedule.warmup_epochs": 0,
        "eval.batch_size_per_rank": 4,
        "device.kind": DEVICE,
    }
    config = os.path.join(folder, "config.json")
    with open(config, "w") as f:
        f.write("{}")
    command = [DTRAIN, "--config", config, "--out", out]
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(command, check=True, capture_output=True)
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
    x = ((torch.from_numpy(batch.pixels).to(dtype) / 255 - MEAN) / STD).to(dtype)
    target = torch_target(case, batch)
    weight = torch.from_numpy(batch.class_weights).to(dtype) if case.mixed else None
    criterion = torch.nn.CrossEntropyLoss(weight, label_smoothing=0.1)
    return criterion(
        model(x.permute(0, 3, 1, 2).contiguous()), target.to(dtype) if case.mixed else target
    )


def freeze(case, model):
    for name, module in model.named_modules():
        if any(f"{name}.".startswith(f"{frozen}.") for frozen in case.frozen):
            module.requires_grad_(False).eval()


def arrays(tensors):
    return {n: t.detach().numpy() for n, t in tensors if t is not None and t.ndim}


def difference(a, b):
    return {name: a[name] - b[name] for name in b}


def torch_steps(case, start, batch, dtype):
    """After every step the Result so far. Nothing is copied that does not change: VGG takes gigabytes."""
    model = copy.deepcopy(start).to(dtype)
    params = list(model.named_parameters())
    before, losses = arrays(start.named_parameters()), []
    optimizer = torch.optim.SGD(
        [
            {"params": [p for _, p in params if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
            {"params": [p for _, p in params if p.ndim <= 1], "weight_decay": 0},
        ],
        lr=case.lr,
        momentum=0.9,
    )
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
        movement = difference(arrays(params), before)
        yield Result(losses, gradients, statistics, movement)


def dtrain_steps(case, model, batch, folder):
    files = [os.path.join(folder, name) for name in ("weights", "batches", "out")]
    before = {k: v.numpy() for k, v in model.state_dict().items()}
    safetensors_np.save(files[0], before)
    with open(files[1], "wb") as f:
        step = b"".join(part.tobytes() for part in (batch if case.mixed else batch[:2]))
        f.write(step * case.steps)
    sizes = [case.classes, case.size, case.batch, case.steps, case.lr]
    command = [STEPS_TOOL, case.name, *map(str, sizes), *files, DEVICE]
    command += ["mixed" if case.mixed else "plain", "".join(f"{name}\n" for name in case.frozen)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    values = {"grad": {}, "stat": {}, "param": {}}
    for key, value in safetensors_np.load(files[2]).items():
        kind, _, name = key.partition(".")
        values[kind][name] = value
    movement = {name: value - before[name] for name, value in values["param"].items()}
    losses = [float(line) for line in text.split()]
    return Result(losses, values["grad"], values["stat"], movement)


def norm(tensors):
    return np.sqrt(sum(np.linalg.norm(t) ** 2 for t in tensors))


def worst(ours, exact):
    """The largest relative error in norm, and whose it is."""
    total = norm(exact.values())
    errors = {}
    for name, value in exact.items():
        size, error = np.linalg.norm(value), np.linalg.norm(ours[name] - value)
        errors[name] = float(error / (0.1 * total if size < 1e-9 * total else size))
    name = max(errors, key=errors.get)
    return errors[name], name


def errors_of(ours, exact):
    """By the keys of BOUND: the relative error, and where."""
    loss = [abs(a / b - 1) for a, b in zip(ours.losses, exact.losses)]
    apart = norm(ours.movement[name] - value for name, value in exact.movement.items())
    movement = apart / norm(exact.movement.values())
    return {
        "first loss": (loss[0], f"{exact.losses[0]:.4f}"),
        "last loss": (loss[-1], f"{exact.losses[-1]:.4f}"),
        "gradient": worst(ours.gradients, exact.gradients),
        "statistic": worst(ours.statistics, exact.statistics),
        "movement": (movement, f"{len(exact.movement)} tensors"),
    }


def excess(errors, limits):
    """The largest error in units of its limit; not <= 1 for NaN."""
    return float(np.max([errors[key][0] / limit for key, limit in limits.items()]))


def clean_batches(case, model):
    """Batches away from all kinks, and the result of their steps in fp64."""
    for i in range(case.first_draw, case.first_draw + MAX_BATCHES):
        batch = draw_batch(case, i)
        runs = (torch_steps(case, model, batch, dtype) for dtype in (torch.float64, torch.float32))
        for exact, own in zip(*runs):
            if not excess(errors_of(own, exact), CLEAN) <= 1:
                break
        else:
            yield i, batch, exact


def dtrain_model(case, folder):
    """With the weights of dtrain_weights, and the damping."""
    model = make_model(case.name, case.classes)
    state = safetensors_np.load(dtrain_weights(case.name, case.classes, case.size, folder))
    model.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in state.items()}, strict=True)
    for key, value in model.named_parameters():
        if key.endswith("bn3.weight"):
            torch.nn.init.constant_(value, case.damping)
    return model


def check_case(case, folder):
    model = dtrain_model(case, folder)
    results = []
    for i, batch, exact in itertools.islice(clean_batches(case, model), MAX_CLEAN):
        results.append(errors_of(dtrain_steps(case, model, batch, folder), exact))
        print(f"{case.name:9} draw {i}: {excess(results[-1], BOUND):.2g} of the bounds", flush=True)
        if excess(results[-1], BOUND) <= 1:
            break
    best = min(results, key=lambda errors: excess(errors, BOUND))
    for what, (error, where) in best.items():
        sign = "<=" if error <= BOUND[what] else "> "
        print(f"{case.name:9} {what:10} {error:.2e} {sign} {BOUND[what]:.0e} {where}", flush=True)
    return not excess(best, BOUND) <= 1


def main():
    with tempfile.TemporaryDirectory() as top:
        bad = [check_case(case, tempfile.mkdtemp(dir=top)) for case in CASES]
    return 1 if any(bad) else 0


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[3]) if len(sys.argv) > 3 else 2)
    sys.exit(main())
