"""compare.py A B TOLERANCE [JUMP [END]]: largest relative difference (in norm) of two files' tensors,
without those whose names have that END.

Exit code 3 above TOLERANCE but not above JUMP: see some_seed in common.sh."""

import json
import struct
import sys

import numpy as np


def load(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + n])
    types = {"F32": np.float32, "I64": np.int64}
    out = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            out[name] = np.frombuffer(data[8 + n + begin : 8 + n + end], types[entry["dtype"]])
    return out


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
