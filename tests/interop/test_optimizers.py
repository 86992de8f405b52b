"""Optimizers and learning rates against PyTorch's.

50 updates of ResNet-20 by each optimizer, against PyTorch's in fp64 with the same gradients: those of a
run in PyTorch, the same for all optimizers. LARS and LAMB, which PyTorch does not have, are written
down here; LAMB is also compared with timm's, if there is timm. The learning rate falls, so that it
matters whether it enters the momentum. Weights and states of every tensor agree to 1e-6 of its norm.

The learning rates of every step against PyTorch's schedulers, which it steps as its users do."""

import math
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from torch_rig import groups, safetensors_np, tool, torch, worst  # noqa: E402
from cifar_resnet import CifarResNet  # noqa: E402
from torch.optim import lr_scheduler as torch_lr  # noqa: E402

try:
    from timm.optim import Lamb as TimmLamb
except ImportError:
    TimmLamb = None

N_UPDATES, BOUND, DECAY = 50, 1e-6, 0.01
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
OPTIMIZERS = [
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
    OPTIMIZERS.append(("lamb", lambda p, lr: TimmLamb(p, lr, max_grad_norm=1), 0.02, 1, 0, []))


def record_gradients(model):
    """By step and name, of fp32 training with SGD on random images."""
    torch.manual_seed(1)
    optimizer = SGD(model.parameters(), 0.05, 0.9)
    for _ in range(N_UPDATES):
        images, labels = torch.randn(8, 3, 16, 16), torch.randint(10, (8,))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        yield {name: p.grad.numpy().copy() for name, p in model.named_parameters()}
        optimizer.step()


def reference(weights, gradients, make, lr, clip_norm, clip_value):
    """Weights and states, under the names of dtrain's files."""
    params = {name: torch.tensor(w, dtype=torch.float64) for name, w in weights.items()}
    optimizer = make(groups(params.values(), DECAY), lr)
    for k, gradient in enumerate(gradients):
        for name, p in params.items():
            p.grad = torch.tensor(gradient[name], dtype=torch.float64)
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


def updated(folder, name, lr, clip_norm, clip_value, sets):
    out = os.path.join(folder, "out")
    sets = sets + [f"optim.name={name}", f"schedule.lr={lr}", f"optim.clip_norm={clip_norm}"]
    sets += [f"optim.clip_value={clip_value}", f"optim.weight_decay={DECAY}"]
    sets += ["model.name=resnet20", "model.num_classes=10", "model.image_size=32"]
    tool("update_tool", os.path.join(folder, "in"), out, N_UPDATES, *sets)
    model = safetensors_np.load(out + "0")
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    result = {key: value for key, value in model.items() if not key.endswith(statistics)}
    return result | safetensors_np.load(out + "1")


def check_optimizers(folder):
    torch.manual_seed(2)
    model = CifarResNet(20)
    weights = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
    gradients = list(record_gradients(model))
    tensors = {f"param.{name}": w for name, w in weights.items()}
    for k, gradient in enumerate(gradients):
        tensors.update({f"grad{k}.{name}": g for name, g in gradient.items()})
    safetensors_np.save(os.path.join(folder, "in"), tensors)
    failed = False
    for name, make, lr, clip_norm, clip_value, sets in OPTIMIZERS:
        exact = reference(weights, gradients, make, lr, clip_norm, clip_value)
        got = updated(folder, name, lr, clip_norm, clip_value, sets)
        assert got.keys() == exact.keys(), got.keys() ^ exact.keys()
        error, where = worst(got, exact)
        failed |= not error <= BOUND
        print(f"{name:8} {error:.2e} {'<=' if error <= BOUND else '> '} {BOUND:.0e} {where}", flush=True)
    return failed


# --- Learning rates ---

EPOCHS, PER_EPOCH, LR, END = 12, 7, 0.4, 0.002
STEPS = EPOCHS * PER_EPOCH
RATE_BOUND = 1e-12  # relative; OneCycleLR and CosineAnnealingLR accumulate rounding errors
WARMUP = 2 * PER_EPOCH


def ours(settings, values=()):
    sets = {"train.epochs": EPOCHS, "schedule.warmup_epochs": 0, "schedule.lr": LR}
    sets |= {"schedule.lr_scaling": "none", "train.global_batch_size": 8, "early_stop.metric": "loss"}
    sets |= {f"schedule.{key}": value for key, value in settings.items()}
    text = "\n".join(repr(value) for value in values)
    lines = tool("schedule_tool", 8, 8 * PER_EPOCH + 3, *(f"{k}={v}" for k, v in sets.items()), input=text)
    return [float(line) for line in lines.split()]


def theirs(make, per_epoch=False, values=None):
    """Rates of all steps; `make` makes the scheduler of an optimizer with the rate LR."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    scheduler = make(optimizer)
    rates = []
    for step in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if (step + 1) % PER_EPOCH == 0 and values:
            scheduler.step(values[step // PER_EPOCH])
        elif not values and ((step + 1) % PER_EPOCH == 0 or not per_epoch):
            scheduler.step()
    return rates


def warmed_up(make, warmup, first):
    """torchvision's way: LinearLR, then the scheduler, joined by SequentialLR. LinearLR is at `first`
    of the rate in step 0, where dtrain has made its first step up."""

    def join(optimizer):
        rise = torch_lr.LinearLR(optimizer, start_factor=first, total_iters=warmup - 1)
        return torch_lr.SequentialLR(optimizer, [rise, make(optimizer)], milestones=[warmup])

    return join


def plateau(metric, gains):
    rng = random.Random(3)
    values, now = [], 5.0
    for _ in range(EPOCHS):
        now *= 1 + rng.choice(gains)
        values.append(now)
    options = {"mode": "min" if metric == "loss" else "max", "factor": 0.3, "patience": 1}
    theirs_options = options | {"threshold": 0.05, "min_lr": END, "eps": 0}
    settings = {"kind": "plateau", "metric": metric, "gamma": 0.3, "patience": 1, "threshold": 0.05}
    return (
        ours(settings | {"min_lr": END}, values),
        theirs(lambda o: torch_lr.ReduceLROnPlateau(o, **theirs_options), values=values),
    )


def wsd(step):
    """Not in PyTorch: the formula of arXiv 2405.18392."""
    first = round(0.75 * STEPS)
    share = 1 if step < first else 1 - math.sqrt((step - first) / (STEPS - first))
    return (END + (LR - END) * share) / LR


def schedules():
    """By name: the rates of dtrain and of PyTorch."""
    return {
        "step": (
            ours({"kind": "step", "milestones": [3, 5, 9], "gamma": 0.2}),
            theirs(lambda o: torch_lr.MultiStepLR(o, [3, 5, 9], 0.2), per_epoch=True),
        ),
        "piecewise": (
            ours({"kind": "piecewise", "milestones": [2, 7], "factors": [0.5, 2]}),
            theirs(lambda o: torch_lr.LambdaLR(o, lambda e: 1 if e < 2 else 0.5 if e < 7 else 2), True),
        ),
        "exponential": (
            ours({"kind": "exponential", "gamma": 0.7}),
            theirs(lambda o: torch_lr.ExponentialLR(o, 0.7), per_epoch=True),
        ),
        "linear": (
            ours({"kind": "linear", "min_lr": END}),
            theirs(lambda o: torch_lr.LinearLR(o, 1, END / LR, STEPS)),
        ),
        "cosine": (
            ours({"kind": "cosine", "min_lr": END}),
            theirs(lambda o: torch_lr.CosineAnnealingLR(o, STEPS, END)),
        ),
        "cosine after a warm-up": (
            ours({"kind": "cosine", "min_lr": END, "warmup_steps": WARMUP}),
            theirs(
                warmed_up(
                    lambda o: torch_lr.CosineAnnealingLR(o, STEPS - WARMUP, END), WARMUP, 1 / WARMUP
                )
            ),
        ),
        "poly": (
            ours({"kind": "poly", "power": 3}),
            theirs(lambda o: torch_lr.PolynomialLR(o, STEPS, 3)),
        ),
        "wsd": (
            ours({"kind": "wsd", "decay_fraction": 0.25, "min_lr": END}),
            theirs(lambda o: torch_lr.LambdaLR(o, wsd)),
        ),
        "one_cycle": (
            ours({"kind": "one_cycle", "warmup_epochs": 3, "warmup_start": 0.04, "min_lr": LR / 25e4}),
            theirs(lambda o: torch_lr.OneCycleLR(o, LR, STEPS, pct_start=0.25, cycle_momentum=False)),
        ),
        "plateau of a loss": plateau("loss", (-0.2, -0.04, 0.0, 0.01)),
        "plateau of an accuracy": plateau("top1", (0.2, 0.04, 0.0, -0.01)),
    }


def check_schedules():
    failed = False
    for name, (rates, exact) in schedules().items():
        assert len(rates) == STEPS == len(exact), f"{name}: {len(rates)} and {len(exact)} steps"
        error = max(abs(a - b) / b for a, b in zip(rates, exact))
        print(f"{name:25} {len(set(rates)):3} different rates, largest error {error:.1e}")
        failed |= not error <= RATE_BOUND or len(set(rates)) < 3
    return failed


torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as top:
    sys.exit(check_optimizers(top) | check_schedules())
