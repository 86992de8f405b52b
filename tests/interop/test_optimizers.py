"""50 updates of ResNet-20 by each optimizer, against PyTorch's in fp64 with the same gradients.

The gradients are those of a run in PyTorch, the same for all optimizers. LARS and LAMB, which PyTorch
does not have, are written down here; LAMB is also compared with timm's, if there is timm. The learning
rate falls, so that it matters whether it enters the momentum. Weights and states of every tensor agree
to 1e-6 of its norm. Label: numeric."""

import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
try:
    from timm.optim import Lamb as TimmLamb
except ImportError:
    TimmLamb = None

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import safetensors_np  # noqa: E402
from cifar_resnet import CifarResNet  # noqa: E402

UPDATE_TOOL = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "tests", "update_tool")
STEPS, BOUND, DECAY = 50, 1e-6, 0.01
# PyTorch's names of dtrain's states.
STATES = {"momentum": ("momentum_buffer", "exp_avg"), "square": ("exp_avg_sq", "square_avg")}


class Lars(torch.optim.Optimizer):
    """MLPerf's; of tensors without weight decay the rate is not scaled."""

    def __init__(self, groups, lr, momentum, trust):
        super().__init__(groups, {"lr": lr, "momentum": momentum, "trust": trust})

    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                g, d, rate = w.grad, group["weight_decay"], group["lr"]
                if d > 0 and w.norm() > 0 and g.norm() > 0:
                    rate *= group["trust"] * w.norm() / (g.norm() + d * w.norm())
                m = self.state[w].get("momentum_buffer", 0) * group["momentum"] + rate * (g + d * w)
                self.state[w]["momentum_buffer"] = m
                w -= m


class Lamb(torch.optim.Optimizer):
    """Of You et al. with bias correction; of tensors without weight decay the rate is not scaled."""

    def __init__(self, groups, lr, betas, eps):
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps})
        self.t = 0

    def step(self):
        self.t += 1
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for w in group["params"]:
                state, d, ratio = self.state[w], group["weight_decay"], 1
                m = state["exp_avg"] = b1 * state.get("exp_avg", 0) + (1 - b1) * w.grad
                v = state["exp_avg_sq"] = b2 * state.get("exp_avg_sq", 0) + (1 - b2) * w.grad**2
                u = m / (1 - b1**self.t) / ((v / (1 - b2**self.t)).sqrt() + group["eps"]) + d * w
                if d > 0 and w.norm() > 0 and u.norm() > 0:
                    ratio = w.norm() / u.norm()
                w -= group["lr"] * ratio * u


# name, what makes the reference, learning rate, limit of norm, of values, further settings
SGD, RMSPROP = torch.optim.SGD, torch.optim.RMSprop
CASES = [
    ("sgd", lambda p, lr: SGD(p, lr, 0.9), 0.1, 0, 0, []),
    ("sgd", lambda p, lr: SGD(p, lr, 0.9, nesterov=True), 0.1, 1, 0, ["optim.nesterov=true"]),
    ("sgd", lambda p, lr: SGD(p, lr, 0.9), 0.1, 0, 0.01, []),
    ("adamw", torch.optim.AdamW, 0.01, 0, 0, []),
    ("adam", torch.optim.Adam, 0.01, 0, 0, []),
    ("rmsprop", lambda p, lr: RMSPROP(p, lr, momentum=0.9), 0.001, 0, 0, []),
    ("lars", lambda p, lr: Lars(p, lr, 0.9, 0.002), 2, 0, 0, ["optim.trust_coefficient=0.002"]),
    ("lamb", lambda p, lr: Lamb(p, lr, (0.9, 0.999), 1e-6), 0.02, 1, 0, []),
]
if TimmLamb:
    CASES.append(("lamb", lambda p, lr: TimmLamb(p, lr, max_grad_norm=1), 0.02, 1, 0, []))


def record_gradients(model):
    """By step and name, of fp32 training with SGD on random images."""
    torch.manual_seed(1)
    optimizer = SGD(model.parameters(), 0.05, 0.9)
    for _ in range(STEPS):
        images, labels = torch.randn(8, 3, 16, 16), torch.randint(10, (8,))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        yield {name: p.grad.numpy().copy() for name, p in model.named_parameters()}
        optimizer.step()


def reference(weights, gradients, make, lr, clip_norm, clip_value, dtype):
    """Weights and states, under the names of dtrain's files."""
    params = {name: torch.tensor(w, dtype=dtype) for name, w in weights.items()}
    decays = [p for p in params.values() if p.ndim > 1]
    others = [p for p in params.values() if p.ndim <= 1]
    optimizer = make([{"params": decays, "weight_decay": DECAY}, {"params": others, "weight_decay": 0}], lr)
    for k, gradient in enumerate(gradients):
        for name, p in params.items():
            p.grad = torch.tensor(gradient[name], dtype=dtype)
        if clip_norm and not (TimmLamb and isinstance(optimizer, TimmLamb)):
            torch.nn.utils.clip_grad_norm_(params.values(), clip_norm)
        if clip_value:
            torch.nn.utils.clip_grad_value_(params.values(), clip_value)
        for group in optimizer.param_groups:
            group["lr"] = lr / (1 + k)
        optimizer.step()
    result = {name: p.numpy() for name, p in params.items()}
    for name, p in params.items():
        for state, theirs in STATES.items():
            found = [optimizer.state[p][key] for key in theirs if key in optimizer.state[p]]
            result.update({f"{state}.{name}": value.numpy() for value in found})
    return result


def ours(folder, name, lr, clip_norm, clip_value, sets):
    out = os.path.join(folder, "out")
    sets = sets + [f"optim.name={name}", f"schedule.lr={lr}", f"optim.clip_norm={clip_norm}"]
    sets += [f"optim.clip_value={clip_value}", f"optim.weight_decay={DECAY}"]
    sets += ["model.name=resnet20", "model.num_classes=10", "model.image_size=32"]
    command = [UPDATE_TOOL, os.path.join(folder, "in"), out, str(STEPS), *sets]
    subprocess.run(command, check=True)
    model = safetensors_np.load(out + "0")
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    result = {key: value for key, value in model.items() if not key.endswith(statistics)}
    return result | safetensors_np.load(out + "1")


def worst(got, exact):
    """The largest relative error in norm, and where."""
    assert got.keys() == exact.keys(), got.keys() ^ exact.keys()
    errors = {key: np.linalg.norm(got[key] - exact[key]) / np.linalg.norm(exact[key]) for key in exact}
    where = max(errors, key=errors.get)
    return errors[where], where


def main(folder):
    torch.manual_seed(2)
    model = CifarResNet(20)
    weights = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
    gradients = list(record_gradients(model))
    tensors = {f"param.{name}": w for name, w in weights.items()}
    for k, gradient in enumerate(gradients):
        tensors.update({f"grad{k}.{name}": g for name, g in gradient.items()})
    safetensors_np.save(os.path.join(folder, "in"), tensors)
    failed = False
    for name, make, lr, clip_norm, clip_value, sets in CASES:
        exact, own = (
            reference(weights, gradients, make, lr, clip_norm, clip_value, dtype)
            for dtype in (torch.float64, torch.float32)
        )
        error, where = worst(ours(folder, name, lr, clip_norm, clip_value, sets), exact)
        failed |= not error <= BOUND
        print(f"{name:8} {error:.2e} {'<=' if error <= BOUND else '> '} {BOUND:.0e} {where};", end=" ")
        print(f"of the reference in fp32 {worst(own, exact)[0]:.2e}", flush=True)
    return failed


torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as top:
    sys.exit(main(top))
