"""For scripts `test_name.py BUILD/dtrain` that compare dtrain with PyTorch: skips the test (77) without
it, runs the tools beside dtrain, and judges results by the largest relative error."""

import itertools
import math
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import python_with  # noqa: E402

python_with.use_test_python()
try:
    import numpy as np
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import safetensors_np  # noqa: E402

DTRAIN = os.path.abspath(sys.argv[1])
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def tool_path(name):
    return os.path.join(os.path.dirname(DTRAIN), "tests", name)


def tool(name, *arguments, **how):
    """What it printed; it must not fail."""
    command = [tool_path(name), *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **how).stdout


def groups(params, decay):
    """Weight decay for matrices and convolutions only."""
    return [
        {"params": [p for p in params if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in params if p.ndim <= 1], "weight_decay": 0},
    ]


def sgd(params, lr, decay, momentum=0.9, **options):
    return torch.optim.SGD(groups(params, decay), lr=lr, momentum=momentum, **options)


def warm_cosine(lr, step, warm, total):
    """A linear warm-up to the rate, then a cosine to 0."""
    if step < warm:
        return lr * (step + 1) / warm
    return lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))


def normalise(pixels, dtype):
    """u8 N,H,W,3 to N,3,H,W."""
    x = ((torch.from_numpy(pixels).to(dtype) / 255 - MEAN) / STD).to(dtype)
    return x.permute(0, 3, 1, 2).contiguous()


def save_model(path, model):
    safetensors_np.save(path, {name: value.numpy() for name, value in model.state_dict().items()})


def sections(path):
    """What steps_tool and detect_tool write: gradients, running statistics and weights, by name."""
    values = {"grad": {}, "stat": {}, "param": {}}
    for key, value in safetensors_np.load(path).items():
        kind, _, name = key.partition(".")
        values[kind][name] = value
    return values


def norm(tensors):
    return np.sqrt(sum(np.linalg.norm(t) ** 2 for t in tensors))


def worst(ours, exact):
    """The largest relative error in norm, and whose it is. The norm of a value that is 0 but for
    rounding is taken as a tenth of that of all together."""
    total = norm(exact.values())
    errors = {}
    for name, value in exact.items():
        size, error = np.linalg.norm(value), np.linalg.norm(ours[name] - value)
        is_zero = size < (1e-9 if value.dtype == np.float64 else 1e-6) * total
        errors[name] = float(error / (0.1 * total if is_zero else size))
    name = max(errors, key=errors.get)
    return errors[name], name


def excess(errors, limits):
    """The largest error in units of its limit; not <= 1 for NaN."""
    return float(np.max([errors[key][0] / limit for key, limit in limits.items()]))


def check_batches(name, batches, errors_of, bound, most):
    """Whether the errors are within their bounds for one of the first `most` batches."""
    results = []
    for i, batch, exact in itertools.islice(batches, most):
        results.append(errors_of(batch, exact))
        print(f"{name} draw {i}: {excess(results[-1], bound):.2g} of the bounds", flush=True)
        if excess(results[-1], bound) <= 1:
            break
    best = min(results, key=lambda errors: excess(errors, bound))
    for what, (error, where) in best.items():
        print(f"  {what:10} {error:.2e} {'<=' if error <= bound[what] else '> '} {bound[what]:.0e} {where}")
    sys.stdout.flush()
    return excess(best, bound) <= 1
