"""For benchmarks that measure programs in turns: the command line, one measurement, medians of rounds."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SUPPORT = os.path.join(HERE, "..", "support")
SHARED = os.environ.get("DTRAIN_SHARED_DIR", os.path.join(HERE, "..", "..", "..", "shared"))
# PyTorch on a CPU is faster when freed memory stays in the heap.
HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
sys.path.append(SUPPORT)


def parser(program="program", **options):
    """Of a program and of options that have the types of their defaults; None: a text."""
    result = argparse.ArgumentParser()
    result.add_argument(program)
    for name, default in options.items():
        result.add_argument(f"--{name}", type=str if default is None else type(default), default=default)
    return result


def output(*command, **how):
    """What a command prints; it must not fail."""
    words = list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, **how)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}: {' '.join(words)}\n{done.stderr}")
    return done.stdout


def answer(*command):
    """The JSON that a command prints."""
    return json.loads(output(*command))


def bench(program, config, launcher=(), env=None):
    """The result of `dtrain bench`."""
    with tempfile.TemporaryDirectory() as folder:
        path, result = os.path.join(folder, "config.json"), os.path.join(folder, "result.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        output(*launcher, program, "bench", "--config", path, "--json", result, env=env)
        with open(result, encoding="utf-8") as file:
            return json.load(file)


def torch_step_s(optimizer, loss, warmup, steps):
    """Median of steps with the optimizer; loss() is the forward pass."""
    times = []
    for _ in range(warmup + steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[warmup:])


def images_loss(model, batch, size, classes):
    """The forward pass of a classifier on random images."""
    import torch

    x = torch.randn(batch, 3, size, size).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, classes, (batch,))
    return lambda: torch.nn.functional.cross_entropy(model(x), y)


def spread(values, digits=3):
    """Median, lowest and highest."""
    low, middle, high = (f"{f(values):.{digits}f}" for f in (min, statistics.median, max))
    return f"{middle}  [{low} {high}]"
