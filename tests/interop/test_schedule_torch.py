"""Learning rates against PyTorch's schedulers, which it steps as its users do.

    python3 test_schedule_torch.py BUILD/dtrain

Label: numeric."""

import math
import os
import random
import subprocess
import sys

try:
    import torch
    from torch.optim import lr_scheduler as torch_lr
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOOL = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "tests", "schedule_tool")
EPOCHS, PER_EPOCH, LR, END = 12, 7, 0.4, 0.002
STEPS = EPOCHS * PER_EPOCH
BOUND = 1e-12  # relative; OneCycleLR and CosineAnnealingLR accumulate rounding errors


def ours(settings, values=()):
    sets = {"train.epochs": EPOCHS, "schedule.warmup_epochs": 0, "schedule.lr": LR}
    sets |= {"schedule.lr_scaling": "none", "train.global_batch_size": 8, "early_stop.metric": "loss"}
    sets |= {f"schedule.{key}": value for key, value in settings.items()}
    command = [TOOL, "8", str(8 * PER_EPOCH + 3)] + [f"{k}={v}" for k, v in sets.items()]
    text = "\n".join(repr(value) for value in values)
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command}: {done.stderr}")
    return [float(line) for line in done.stdout.split()]


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


WARMUP = 2 * PER_EPOCH
CASES = {
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

failed = False
for name, (rates, exact) in CASES.items():
    if len(rates) != STEPS or len(exact) != STEPS:
        sys.exit(f"{name}: {len(rates)} and {len(exact)} steps instead of {STEPS}")
    error = max(abs(a - b) / b for a, b in zip(rates, exact))
    print(f"{name:25} {len(set(rates)):3} different rates, largest error {error:.1e}")
    failed |= not error <= BOUND or len(set(rates)) < 3
sys.exit(1 if failed else 0)
