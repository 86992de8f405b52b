"""For scripts `test_name.py BUILD/dtrain` with NumPy: skips the test (77) without it, works in a
temporary folder, and runs the program there."""

import functools
import json
import os
import sys
import tempfile

try:
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(TESTS, "faults"))
import rig  # noqa: E402
import safetensors_np  # noqa: E402

__all__ = ["DTRAIN", "content", "np", "rig", "run", "safetensors_np", "sets", "train", "write_config"]
DTRAIN = os.path.abspath(sys.argv[1])
WORK = tempfile.TemporaryDirectory()
os.chdir(WORK.name)
run = functools.partial(rig.run, DTRAIN)


def write_config(config):
    with open("config.json", "w", encoding="utf-8") as out:
        json.dump(config, out)


def sets(*changes):
    return [word for change in changes for word in ("--set", change)]


def train(folder, *changes, options=(), **how):
    return run("--config", "config.json", "--out", folder, *sets(*changes), *options, **how)


def content(path):
    with open(path, "rb") as f:
        return f.read()
