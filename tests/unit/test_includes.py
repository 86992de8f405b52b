"""Who may include whom, and in which folder a vendor header may appear."""

import os
import re
import sys

ROOT = os.environ.get("DTRAIN_SOURCE_DIR", os.path.join(os.path.dirname(__file__), "..", ".."))

BASE = {"status", "mem", "log", "rng", "json", "file", "clock", "isa", "dtype", "fault", "pulse", "build", "thread", "sort", "host"}
# module -> public headers it may include besides base and its own
ALLOWED = {
    "base": set(),
    "config": {"config"},
    "graph": {"graph"},
    "models": {"graph", "models"},
    "plan": {"graph", "backend", "comm", "plan"},
    "data": {"config", "data"},  # config: the enums only
    "cpu": {"graph", "backend"},
    "cuda": {"graph", "backend", "gpu"},
    "comm": {"comm"},
    "report": {"report"},
    "train": {"config", "models", "graph", "plan", "backend", "comm", "data", "report", "train", "gpu"},
    "main": {"config", "models", "graph", "plan", "backend", "comm", "data", "report", "train"},
}
VENDOR = {
    r"dnnl\.h": r"src/cpu/",
    r"omp\.h": r"src/cpu/",
    r"mpi\.h": r"src/comm/",
    r"jpeglib\.h|jerror\.h": r"src/data/jpeg",
    r"cjson/.*|cJSON\.h": r"src/base/json",
    r"archive.*\.h": r"src/data/",
    r"hwloc\.h|hwloc/.*": r"src/train/placement\.c",
    r"Random123/.*": r"src/base/rng\.c",
    r"cuda.*|cudnn.*|cublas.*|nccl\.h": r"src/cuda/|kernels/|src/comm/nccl\.c",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def sources():
    for top in ("src", "include"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in names:
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def check(path):
    text = open(os.path.join(ROOT, path), encoding="utf-8").read()
    parts = path.split(os.sep)
    module = "main" if path == "src/main.c" else parts[1] if parts[0] == "src" else None
    for kind, header in INCLUDE.findall(text):
        for pattern, where in VENDOR.items():
            if kind == "<" and re.fullmatch(pattern, header) and not re.match(where, path):
                yield f"{path}: <{header}> belongs to {where}"
        public = re.fullmatch(r"dtrain/(\w+)\.h", header)
        if public and module and public[1] not in BASE | ALLOWED[module]:
            yield f"{path}: module {module} may not include dtrain/{public[1]}.h"
        own = re.fullmatch(r"(\w+)/\w+\.h", header)
        if kind == '"' and own and own[1] == "kernels":
            if module != "cuda":
                yield f"{path}: {header} is for the module cuda"
        elif kind == '"' and own and own[1] not in ("dtrain", module):
            yield f"{path}: {header} is internal to module {own[1]}"


problems = [line for path in sources() for line in check(path)]
print("\n".join(problems) or "includes: as allowed")
sys.exit(1 if problems else 0)
