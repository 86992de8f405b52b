"""compare.py A B TOLERANCE [JUMP [END]]: largest relative difference (in norm) of two files' tensors,
without those whose names have that END.

Exit code 3 above TOLERANCE but not above JUMP: see some_seed in common.sh."""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from safetensors_np import load  # noqa: E402

a, b, tolerance = load(sys.argv[1]), load(sys.argv[2]), float(sys.argv[3])
jump = float(sys.argv[4]) if len(sys.argv) > 4 else tolerance
assert a.keys() == b.keys() and len(a) > 0, "different tensors"
worst = 0.0
for name in a:
    if len(sys.argv) > 5 and name.endswith(sys.argv[5]):
        continue
    x, y = a[name].astype(np.float64), b[name].astype(np.float64)
    difference = np.linalg.norm(x - y) / max(np.linalg.norm(y), 1e-30)
    worst = max(worst, difference)
    if not difference <= jump:
        sys.exit(f"{name}: relative difference {difference:.3g} is above {jump:g}")
print(f"largest relative difference {worst:.3g}")
sys.exit(0 if worst <= tolerance else 3)
