"""Class weights as PyTorch's CrossEntropyLoss(weight=, label_smoothing=) defines them.

    python3 test_class_weights.py BUILD/dtrain

Real runs of the model tiny on an imbalanced folder whose images are one global batch, so that the
order of samples does not matter: after three steps the losses and weights must be PyTorch's, which
sees the whole batch at once, for any number of ranks and micro-batches. A weight that is off by 0.1 %
moves the losses by 3e-5 and a tensor by 4e-3. Mixed labels are compared in test_torch_parity.py."""

import collections
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from torch_rig import np, safetensors_np, sgd, torch  # noqa: E402
from scratch import rig, run, write_config  # noqa: E402
from PIL import Image  # noqa: E402

COUNTS, SIZE, STEPS, LR, DECAY = [15, 6, 3], 32, 3, 0.05, 0.01
BATCH = sum(COUNTS)
LIST = [0.3, 2, 7.5]
BALANCED = [BATCH / (len(COUNTS) * n) for n in COUNTS]  # scikit-learn's formula
# train.class_weights, what PyTorch gets, smoothing, ranks, micro-batch size
CASES = [
    ("none", None, 0.1, 1, BATCH),
    ("balanced", BALANCED, 0, 1, BATCH),
    ("balanced", BALANCED, 0.1, 2, BATCH // 2),
    (LIST, LIST, 0.1, 1, 4),
    (LIST, LIST, 0.1, 2, 3),
    (LIST, LIST, 0, 3, 4),
]
# The movement of a tensor relative to its norm: 1e-5, but with AVX-512 one of the two million inputs of
# ReLU is so near 0 (1e-8) that rounding puts it on the other side, which moves conv3.bias by 1.5e-4.
# The loss does not jump there: 5e-9.
BOUND = {"loss": 1e-6, "movement": 1e-3}


def make_model():
    nn = torch.nn
    torch.manual_seed(3)
    layers = {
        "conv1": nn.Conv2d(3, 16, 3, padding=1),
        "relu1": nn.ReLU(),
        "maxpool": nn.MaxPool2d(2),
        "conv2": nn.Conv2d(16, 32, 3, padding=1),
        "relu2": nn.ReLU(),
        "conv3": nn.Conv2d(32, 64, 3, padding=1, stride=2),
        "relu3": nn.ReLU(),
        "avgpool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "fc": nn.Linear(64, len(COUNTS)),
    }
    return nn.Sequential(collections.OrderedDict(layers)).double()


def write_images():
    """JPEG files by class; returns their pixels and labels."""
    rng = np.random.default_rng(5)
    pixels, labels = [], []
    for label, count in enumerate(COUNTS):
        os.makedirs(f"train/class{label}")
        for i in range(count):
            path = f"train/class{label}/{i}.jpg"
            noise = rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8) // 2 + 40 * label
            Image.fromarray(noise.astype(np.uint8)).save(path, quality=95, subsampling=0)
            pixels.append(np.asarray(Image.open(path)))
            labels.append(label)
    return np.stack(pixels), labels


def torch_run(pixels, labels, weights, smoothing):
    model = make_model()
    x = torch.from_numpy(pixels).double().permute(0, 3, 1, 2) / 255 - 0.5
    weight = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    criterion = torch.nn.CrossEntropyLoss(weight, label_smoothing=smoothing)
    optimizer = sgd(list(model.parameters()), LR, DECAY)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = criterion(model(x), torch.tensor(labels))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {k: v.numpy() for k, v in model.state_dict().items()}


def dtrain_run(out, weights, smoothing, ranks, micro):
    model = {"name": "tiny", "num_classes": len(COUNTS), "image_size": SIZE}
    data = {"source": "folder", "train": "train", "val_resize": SIZE, "augment": "none"}
    train = {"epochs": STEPS, "global_batch_size": BATCH, "micro_batch_size": micro}
    config = {
        "model": model | {"initial_checkpoint": "start.safetensors"},
        "data": data | {"mean": [0.5] * 3, "std": [1] * 3},
        "train": train | {"class_weights": weights, "label_smoothing": smoothing},
        "optim": {"weight_decay": DECAY},
        "schedule": {"kind": "constant", "lr": LR, "lr_scaling": "none", "warmup_epochs": 0},
        "device": {"kind": "cpu", "threads": 1},
        "output": {"log_every": 1},
    }
    write_config(config)
    run("--config", "config.json", "--out", out, ranks=ranks)
    losses = [e["loss"] for e in rig.events(out) if e["event"] == "step"]
    return losses, safetensors_np.load(f"{out}/checkpoints/step-{STEPS:09d}/model.safetensors")


def check(case, out, pixels, labels):
    weights, exact_weights, smoothing, ranks, micro = case
    exact_losses, exact = torch_run(pixels, labels, exact_weights, smoothing)
    losses, ours = dtrain_run(out, weights, smoothing, ranks, micro)
    start = {k: v.numpy() for k, v in make_model().state_dict().items()}
    errors = {
        "loss": max(abs(a / b - 1) for a, b in zip(losses, exact_losses, strict=True)),
        "movement": max(
            np.linalg.norm(ours[k] - exact[k]) / np.linalg.norm(exact[k] - start[k]) for k in exact
        ),
    }
    print(weights, f"smoothing {smoothing}, {ranks} ranks of {micro}:", errors, flush=True)
    return all(errors[key] <= BOUND[key] for key in BOUND)


pixels, labels = write_images()
start = {k: v.float().numpy() for k, v in make_model().state_dict().items()}
safetensors_np.save("start.safetensors", start)
good = [check(case, str(i), pixels, labels) for i, case in enumerate(CASES)]
sys.exit(0 if all(good) else 1)
