"""losses.py RUN [RUN2 TOLERANCE]: for one run, checks that all losses are finite and the last one is
below the first; for two, checks the largest relative difference of their losses at the same step."""

import json
import math
import os
import sys


def load(folder):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as f:
        events = [json.loads(line) for line in f]
    return {event["step"]: event["loss"] for event in events if event["event"] == "step"}


a = load(sys.argv[1])
steps = sorted(a)
assert len(steps) >= 2 and all(a[step] and math.isfinite(a[step]) for step in steps), a
if len(sys.argv) == 2:
    print(f"{a[steps[0]]:.4f} to {a[steps[-1]]:.4f}")
    assert a[steps[-1]] < a[steps[0]], f"the loss does not fall: {a}"
    sys.exit()
b, tolerance = load(sys.argv[2]), float(sys.argv[3])
common = [step for step in steps if step in b]
assert len(common) >= 2 and common[-1] == steps[-1] == max(b), (a, b)
worst = max(abs(a[step] - b[step]) / abs(b[step]) for step in common)
print(f"{len(common)} losses differ by at most {worst:.2g}")
assert worst <= tolerance, f"more than {tolerance:g}: {a} {b}"
