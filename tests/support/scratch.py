"""For programs `test_name.py BUILD/dtrain`: the current folder is a temporary one, and dtrain runs there.
`np` and `safetensors_np` are here for those that import them, and skip a test where there is no NumPy."""

import importlib
import json
import os
import sys
import tempfile

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "support"), os.path.join(TESTS, "faults")]
import rig  # noqa: E402

DTRAIN = os.path.abspath(sys.argv[1])
WORK = tempfile.TemporaryDirectory()
os.chdir(WORK.name)


def __getattr__(name):
    if name not in ("np", "safetensors_np"):
        raise AttributeError(name)
    try:
        return importlib.import_module({"np": "numpy"}.get(name, name))
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(77)


def content(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read()


def write(path, what):
    """Bytes, text, or else JSON; makes the folder."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    if not isinstance(what, (bytes, bytearray)):
        what = (what if isinstance(what, str) else json.dumps(what)).encode()
    with open(path, "wb") as out:
        out.write(what)
    return path


def load(path):
    return json.loads(content(path))


def write_config(config):
    write("config.json", config)


def events(folder, kind):
    return [event for event in rig.events(folder) if event["event"] == kind]


def sets(*changes):
    """Options for "key=value" and for dicts, of which the last word of a key counts."""
    pairs = {}
    for change in changes:
        pairs.update([change.split("=", 1)] if isinstance(change, str) else change)
    return [word for key, value in pairs.items() for word in ("--set", f"{key}={value}")]


def run(*words, **how):
    """See rig.run."""
    return rig.run(DTRAIN, *map(str, words), **how)


def said(*words, **how):
    return run(*words, **how).said


def train(folder, *changes, options=(), **how):
    return run("--config", "config.json", "--out", folder, *sets(*changes), *options, **how)
