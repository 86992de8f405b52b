"""The same network, weights and batches in torchvision and in dtrain (fp32).

For ResNet-18, ResNet-50 and VGG-11-BN: a file that `dtrain` wrote loads with strict=True; then ten
steps: loss to 1e-5 at step 1 and 1e-3 at step 10, every gradient tensor to 1e-4 in norm at step 1,
running statistics to 1e-5.

Gradients need care. ReLU has a kink: an input within rounding of 0 may fall on either side, and
one such value changes gradients by 1e-3 and more; PyTorch's own fp32 then differs as much from its
fp64. So first batches are drawn until one keeps away from the kinks in both programs, that is until
PyTorch's fp32 gradients agree with its fp64 to 3e-5 and dtrain's to 1e-4; at most MAX_CLEAN batches
on which PyTorch agrees with itself are tried. A wrong gradient formula would fail on every one of
them. A convolution bias before batch norm has gradient 0 but for rounding: gradients are compared
relative to their norm plus 1e-6 of the norm of all gradients together."""

import copy
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

DTRAIN = sys.argv[1]
STEPS_TOOL = os.path.join(os.path.dirname(DTRAIN), "tests", "steps_tool")
STEPS, MAX_BATCHES, MAX_CLEAN = 10, 40, 4
# name, classes, image size, batch, learning rate. Residual branches of ResNet-50 are damped, as the
# backward pass through 16 of them with random labels otherwise multiplies rounding by thousands.
CASES = [
    ("resnet18", 1000, 64, 4, 0.001),
    ("resnet50", 1000, 64, 8, 0.001),
    ("vgg11_bn", 100, 32, 4, 0.001),
]
DAMPING = {"resnet50": 0.2}
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
        "train.global_batch": 4,
        "train.max_steps": 1,
        "schedule.lr": 1e-6,
        "schedule.warmup_epochs": 0,
        "train.eval_batch": 4,
    }
    config = os.path.join(folder, "config.json")
    with open(config, "w") as f:
        f.write("{}")
    command = [DTRAIN, "--config", config, "--out", out]
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(command, check=True, capture_output=True)
    step = sorted(n for n in os.listdir(os.path.join(out, "checkpoints")) if n.startswith("step-"))[
        -1
    ]
    return os.path.join(out, "checkpoints", step, "model.safetensors")


def draw_batch(rng, classes, size, batch):
    return (
        rng.integers(0, 256, (batch, size, size, 3), dtype=np.uint8),
        rng.integers(0, classes, batch, dtype=np.int32),
    )


def torch_loss(model, pixels, labels, dtype=torch.float32):
    x = ((torch.from_numpy(pixels).to(dtype) / 255 - MEAN) / STD).to(dtype)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    return criterion(model(x.permute(0, 3, 1, 2).contiguous()), torch.from_numpy(labels).long())


def torch_gradients(model, pixels, labels, dtype):
    model = copy.deepcopy(model).to(dtype)
    model.train()
    torch_loss(model, pixels, labels, dtype).backward()
    grads = {n: p.grad.double().numpy() for n, p in model.named_parameters()}
    return grads, {n: b.double().numpy() for n, b in model.named_buffers() if b.ndim}


def torch_losses(model, batches, lr):
    params = list(model.named_parameters())
    optimizer = torch.optim.SGD(
        [
            {"params": [p for _, p in params if p.ndim > 1], "weight_decay": 1e-4},
            {"params": [p for _, p in params if p.ndim <= 1], "weight_decay": 0},
        ],
        lr=lr,
        momentum=0.9,
    )
    model.train()
    losses = []
    for pixels, labels in batches:
        optimizer.zero_grad()
        loss = torch_loss(model, pixels, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def dtrain_steps(case, batches, folder, weights):
    name, classes, size, batch, lr = case
    files = [weights, os.path.join(folder, "batches"), os.path.join(folder, "out")]
    with open(files[1], "wb") as f:
        for pixels, labels in batches:
            f.write(pixels.tobytes() + labels.tobytes())
    text = subprocess.run(
        [STEPS_TOOL, name, str(classes), str(size), str(batch), str(len(batches)), str(lr), *files],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [float(line) for line in text.split()], safetensors_np.load(files[2])


def worst(ours, reference, floor=0.0):
    errors = {
        n: float(np.linalg.norm(ours[n] - r) / (np.linalg.norm(r) + floor))
        for n, r in reference.items()
    }
    name = max(errors, key=errors.get)
    return errors[name], name


def find_clean_batch(case, model, rng, folder, weights):
    """The first batch away from all kinks, and what dtrain got for it: see the top of this file."""
    n_clean, results = 0, []
    for i in range(MAX_BATCHES):
        first = draw_batch(rng, *case[1:4])
        exact, statistics = torch_gradients(model, *first, torch.float64)
        floor = 1e-6 * np.sqrt(sum(np.linalg.norm(g) ** 2 for g in exact.values()))
        if worst(torch_gradients(model, *first, torch.float32)[0], exact, floor)[0] > 3e-5:
            continue
        _, result = dtrain_steps(case, [first], folder, weights)
        grads = {k[5:]: v for k, v in result.items() if k.startswith("grad.")}
        stats = {k[5:]: v for k, v in result.items() if k.startswith("stat.")}
        results.append((worst(grads, exact, floor), worst(stats, statistics), len(exact), first))
        n_clean += 1
        if results[-1][0][0] <= 1e-4 or n_clean == MAX_CLEAN:
            break
    print(f"{case[0]:9} {n_clean} clean batch(es) of {i + 1} drawn", flush=True)
    return min(results, key=lambda r: r[0][0])


def check_case(case, folder):
    name, classes, size, batch, lr = case
    torch.manual_seed(1)
    model = make_model(name, classes)
    state = safetensors_np.load(dtrain_weights(name, classes, size, folder))
    model.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in state.items()}, strict=True)
    for key, value in model.named_parameters():
        if key.endswith("bn3.weight"):
            torch.nn.init.constant_(value, DAMPING[name])
    weights = os.path.join(folder, "weights")
    safetensors_np.save(weights, {k: v.numpy() for k, v in model.state_dict().items()})
    rng = np.random.default_rng(7)
    gradient, statistic, n_params, first = find_clean_batch(case, model, rng, folder, weights)
    batches = [first] + [draw_batch(rng, classes, size, batch) for _ in range(STEPS - 1)]
    ours, _ = dtrain_steps(case, batches, folder, weights)
    theirs = torch_losses(model, batches, lr)
    failed = False
    for what, error, bound in (
        ("loss of step 1", abs(ours[0] / theirs[0] - 1), 1e-5),
        ("loss of step 10", abs(ours[-1] / theirs[-1] - 1), 1e-3),
        (f"worst of {n_params} gradients, {gradient[1]}", gradient[0], 1e-4),
        (f"worst running statistic, {statistic[1]}", statistic[0], 1e-5),
    ):
        good = error <= bound  # false for NaN
        failed |= not good
        print(f"{name:9} {what:55} {error:.2e} {'<=' if good else '> '} {bound:.0e}", flush=True)
    return failed


torch.set_num_threads(2)
with tempfile.TemporaryDirectory() as top:
    results = []
    for case in CASES:
        os.mkdir(os.path.join(top, case[0]))
        results.append(check_case(case, os.path.join(top, case[0])))
sys.exit(1 if any(results) else 0)
