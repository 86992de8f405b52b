"""Packages that few machines have: $DTRAIN_PYTHON may name an interpreter that has them."""

import importlib.util
import os
import sys


def prefer(*modules):
    """Continues under $DTRAIN_PYTHON if this interpreter lacks some; returns those still missing."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    other = os.environ.pop("DTRAIN_PYTHON", None)
    if missing and other:
        os.execv(other, [other, *sys.argv])
    return missing


def need(*modules):
    """Skips the test if some are missing."""
    missing = prefer(*modules)
    if missing:
        print(f"skipped: no {', '.join(missing)}; DTRAIN_PYTHON may name a Python that has it")
        sys.exit(77)
