"""What scripts/packaging/README.md promises of formats: a run that an earlier dtrain began goes on, with the losses that dtrain
itself had; a configuration or checkpoint of a later format is refused by name. Label: numeric.

golden/run-formatN.tar.xz: the tiny network on generated images, stopped after step 4, with what came after.

    python3 test_formats.py BUILD/dtrain"""

import glob
import json
import os
import sys
import tarfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import TESTS, content, events, load, run, said, write  # noqa: E402

for path in sorted(glob.glob(os.path.join(TESTS, "golden", "run-format*.tar.xz"))):
    name = os.path.basename(path)[: -len(".tar.xz")]
    with tarfile.open(path) as tar:
        tar.extractall(".")
    run("resume", name)
    steps = {event["step"]: event["loss"] for event in events(name, "step")}
    expected = {int(step): float(loss) for step, loss in map(str.split, content(name, "losses.txt").decode().splitlines())}
    assert steps.keys() == expected.keys(), (name, steps)
    far = {step: (steps[step], loss) for step, loss in expected.items() if abs(steps[step] - loss) > 1e-3 * loss}
    assert not far, (name, far)
    saved = load(f"{name}/checkpoints/step-000000008/state.json")["format"]

versions = json.loads(said("--version", "--json"))
assert versions["checkpoint_format"] == saved, versions
assert json.loads(said("config", "show", "--set", "train.epochs=1"))["format"] == versions["config_format"]
write("later.json", {"format": versions["config_format"] + 1})
message = run("config", "show", "--config", "later.json", code=78).said
assert "later.json:1:" in message and "reads configurations of format 1 to" in message, message
print(f"runs of format {saved} go on")
