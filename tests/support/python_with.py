"""Packages that few machines have: the Python of scripts/setup.sh in build-python, or the one that $DTRAIN_PYTHON
names, may have them."""

import importlib.util
import os
import sys

BUILT = os.path.join(os.path.dirname(__file__), "..", "..", "build-python", "bin", "python3")


def use_test_python():
    """Continues under $DTRAIN_TEST_PYTHON, for tests that use PyTorch; call it before importing that."""
    other = os.environ.pop("DTRAIN_TEST_PYTHON", "")  # not again
    if other:
        os.execv(other, [other, *sys.argv])


def prefer(*modules):
    """Continues under that Python if this interpreter lacks some; returns those still missing."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    other = os.environ.get("DTRAIN_PYTHON", BUILT if os.path.exists(BUILT) else "")
    if missing and other:
        os.environ["DTRAIN_PYTHON"] = ""  # not again
        os.execv(other, [other, *sys.argv])
    return missing


def need(*modules):
    """Skips the test if some are missing."""
    missing = prefer(*modules)
    if missing:
        print(f"skipped: no {', '.join(missing)}; scripts/setup.sh test installs them, or DTRAIN_PYTHON names a Python")
        sys.exit(77)
