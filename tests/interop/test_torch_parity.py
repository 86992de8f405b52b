"""The same network, weights and batches in torchvision and in dtrain (fp32).

    python3 test_torch_parity.py BUILD/dtrain [cuda]     dtrain on the CPU, or on the GPU

For ResNet-18, ResNet-50 and VGG-11-BN: a file that `dtrain` wrote loads with strict=True; then ten
steps: loss to 1e-5 at step 1 and 1e-3 at step 10, every gradient tensor to 1e-4 in norm at step 1,
running statistics to 1e-5. VGG-11-BN has mixed labels: PyTorch gets them as probabilities.

Gradients need care. ReLU has a kink: an input within rounding of 0 may fall on either side, and
one such value changes gradients by 1e-3 and more; PyTorch's own fp32 then differs as much from its
fp64. So first batches are drawn until one keeps away from the kinks in both programs, that is until
PyTorch's fp32 gradients agree with its fp64 to 3e-5 and dtrain's to 1e-4; at most MAX_CLEAN batches
on which PyTorch agrees with itself are tried. A wrong gradient formula would fail on every one of
them. A convolution bias before batch norm has gradient 0 but for rounding, so its error is taken
relative to a tenth of the norm of all gradients together."""

import copy
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
STEPS, MAX_BATCHES, MAX_CLEAN = 10, 40, 4


class Case(typing.NamedTuple):
    name: str
    classes: int
    size: int
    batch: int
    lr: float
    damping: float  # of residual branches: bn3.weight
    first_draw: int  # a batch known to be clean on one machine; others are tried after it
    mixed: bool = False  # labels, as of mixup and CutMix


# The residual branches of ResNet-50 are damped, as the backward pass through 16 of them with random
# labels otherwise multiplies rounding by thousands.
CASES = [
    Case("resnet18", 1000, 64, 4, 0.001, 1.0, 0),
    Case("resnet50", 1000, 64, 4, 0.0003, 0.2, 9),
    Case("vgg11_bn", 100, 32, 4, 0.001, 1.0, 0, mixed=True),
]
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
    """In the order of a step in the file of steps_tool; the last two are written if mixed."""

    pixels: np.ndarray
    labels: np.ndarray
    labels2: np.ndarray
    shares: np.ndarray  # of labels; one row has the same label twice, one has a share of 1


def draw_batch(case, index):
    rng = np.random.default_rng(index)
    shape = (case.batch, case.size, case.size, 3)
    pixels = rng.integers(0, 256, shape, dtype=np.uint8)
    labels, labels2 = rng.integers(0, case.classes, (2, case.batch), dtype=np.int32)
    labels2[0] = labels[0]
    shares = rng.uniform(0.5, 1, case.batch).astype(np.float32)
    shares[1] = 1
    return Batch(pixels, labels, labels2, shares)


def torch_target(case, batch):
    labels, labels2 = torch.from_numpy(batch.labels).long(), torch.from_numpy(batch.labels2).long()
    if not case.mixed:
        return labels
    one_hot = torch.nn.functional.one_hot
    share = torch.from_numpy(batch.shares).double()[:, None]
    return share * one_hot(labels, case.classes) + (1 - share) * one_hot(labels2, case.classes)


def torch_loss(case, model, batch, dtype=torch.float32):
    x = ((torch.from_numpy(batch.pixels).to(dtype) / 255 - MEAN) / STD).to(dtype)
    target = torch_target(case, batch)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    return criterion(
        model(x.permute(0, 3, 1, 2).contiguous()), target.to(dtype) if case.mixed else target
    )


def torch_gradients(case, model, batch, dtype):
    model = copy.deepcopy(model).to(dtype)
    model.train()
    torch_loss(case, model, batch, dtype).backward()
    grads = {n: p.grad.double().numpy() for n, p in model.named_parameters()}
    return grads, {n: b.double().numpy() for n, b in model.named_buffers() if b.ndim}


def torch_losses(case, model, batches):
    params = list(model.named_parameters())
    optimizer = torch.optim.SGD(
        [
            {"params": [p for _, p in params if p.ndim > 1], "weight_decay": 1e-4},
            {"params": [p for _, p in params if p.ndim <= 1], "weight_decay": 0},
        ],
        lr=case.lr,
        momentum=0.9,
    )
    model.train()
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = torch_loss(case, model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def dtrain_steps(case, batches, folder, weights):
    files = [weights, os.path.join(folder, "batches"), os.path.join(folder, "out")]
    with open(files[1], "wb") as f:
        for batch in batches:
            f.write(b"".join(part.tobytes() for part in (batch if case.mixed else batch[:2])))
    sizes = [case.classes, case.size, case.batch, len(batches), case.lr]
    command = [STEPS_TOOL, case.name, *map(str, sizes), *files, DEVICE]
    command += ["mixed"] if case.mixed else []
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(line) for line in text.split()], safetensors_np.load(files[2])


def worst(ours, reference):
    """The largest relative error in norm, and whose it is."""
    total = np.sqrt(sum(np.linalg.norm(r) ** 2 for r in reference.values()))
    errors = {}
    for name, exact in reference.items():
        norm = np.linalg.norm(exact)
        is_zero = norm < 1e-9 * total
        errors[name] = float(
            np.linalg.norm(ours[name] - exact) / (0.1 * total if is_zero else norm)
        )
    name = max(errors, key=errors.get)
    return errors[name], name


def find_clean_batch(case, model, folder, weights):
    """The first batch away from all kinks, and what dtrain got for it: see the top of this file."""
    results = []
    for i in range(case.first_draw, case.first_draw + MAX_BATCHES):
        first = draw_batch(case, i)
        exact, statistics = torch_gradients(case, model, first, torch.float64)
        if worst(torch_gradients(case, model, first, torch.float32)[0], exact)[0] > 3e-5:
            continue
        _, result = dtrain_steps(case, [first], folder, weights)
        grads = {k[5:]: v for k, v in result.items() if k.startswith("grad.")}
        stats = {k[5:]: v for k, v in result.items() if k.startswith("stat.")}
        results.append((worst(grads, exact), worst(stats, statistics), len(exact), first))
        print(f"{case.name:9} draw {i}: gradients to {results[-1][0][0]:.1e}", flush=True)
        if results[-1][0][0] <= 1e-4 or len(results) == MAX_CLEAN:
            break
    return min(results, key=lambda r: r[0][0])


def check_case(case, folder):
    model = make_model(case.name, case.classes)
    state = safetensors_np.load(dtrain_weights(case.name, case.classes, case.size, folder))
    model.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in state.items()}, strict=True)
    for key, value in model.named_parameters():
        if key.endswith("bn3.weight"):
            torch.nn.init.constant_(value, case.damping)
    weights = os.path.join(folder, "weights")
    safetensors_np.save(weights, {k: v.numpy() for k, v in model.state_dict().items()})
    gradient, statistic, n_params, first = find_clean_batch(case, model, folder, weights)
    batches = [first] + [draw_batch(case, -i % 1000) for i in range(1, STEPS)]
    ours, _ = dtrain_steps(case, batches, folder, weights)
    theirs = torch_losses(case, model, batches)
    failed = False
    for what, error, bound in (
        ("loss of step 1", abs(ours[0] / theirs[0] - 1), 1e-5),
        ("loss of step 10", abs(ours[-1] / theirs[-1] - 1), 1e-3),
        (f"worst of {n_params} gradients, {gradient[1]}", gradient[0], 1e-4),
        (f"worst running statistic, {statistic[1]}", statistic[0], 1e-5),
    ):
        good = error <= bound  # false for NaN
        failed |= not good
        print(
            f"{case.name:9} {what:55} {error:.2e} {'<=' if good else '> '} {bound:.0e}", flush=True
        )
    return failed


torch.set_num_threads(2)
with tempfile.TemporaryDirectory() as top:
    results = []
    for case in CASES:
        os.mkdir(os.path.join(top, case[0]))
        results.append(check_case(case, os.path.join(top, case[0])))
sys.exit(1 if any(results) else 0)
