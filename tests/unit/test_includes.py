"""The walls of the source: which room may include which, where a vendor header may appear, no circles,
which tables of functions lead into a room above, that a room defines what it declares, and no file name occurs twice.

A room is a folder of src/. Its interface is include/dtrain/<room>.h where there is one, and the
headers in src/<room>/ are then its own; the other rooms offer the headers in their folder."""

import os
import re
import sys

ROOT = os.environ.get("DTRAIN_SOURCE_DIR", os.path.join(os.path.dirname(__file__), "..", ".."))

# room -> rooms it may include besides base and itself
ALLOWED = {
    "base": set(),
    "graph": set(),
    "models": {"graph"},
    "config": {"models"},
    "backend": {"graph"},
    "cpu": {"graph", "backend"},
    "cuda": {"graph", "backend", "kernels"},
    "comm": {"kernels"},
    "plan": {"graph", "backend", "comm"},
    "image": {"config"},
    "boxes": {"config", "image"},
    "data": {"config", "image", "boxes"},
    "pack": {"config", "image", "boxes", "data"},
    "events": {"config"},
    "page": {"config"},
    "watch": {"config", "comm", "events"},
    "checkpoint": {"config", "models", "graph", "plan", "comm", "watch"},
    "launch": {"watch", "checkpoint"},
    "trace": {"comm"},
    "engine": {"config", "models", "graph", "plan", "backend", "comm", "boxes", "data", "events", "watch", "checkpoint"},
}
ALLOWED["eval"] = ALLOWED["engine"] | {"image", "engine"}
ALLOWED["train"] = ALLOWED["eval"] | {"trace", "eval"}
ALLOWED["bench"] = ALLOWED["train"] | {"train"}
ALLOWED["doctor"] = ALLOWED["bench"] | {"bench"}
ALLOWED["cli"] = ALLOWED["doctor"] | {"doctor", "launch", "pack", "page"}
ALLOWED["main"] = ALLOWED["cli"] | {"cli"}
PRIVATE = {"config", "graph", "models", "cpu", "cuda", "comm", "plan", "events"}  # folders of src/
PUBLIC = {"anchors": "base", "box": "base", "dtype": "base", "columns": "base", "split": "base", "optim": "base", "activation": "base", "gpu": "backend", "config_keys": "config"}  # headers of include/dtrain not named after their room
VENDOR = {
    r"dnnl\.h": r"src/cpu/",
    r"omp\.h": r"src/cpu/",
    r"mpi\.h": r"src/comm/",
    r"jpeglib\.h|jerror\.h": r"src/image/jpeg",
    r"png\.h": r"src/image/png",
    r"webp/.*": r"src/image/image_file\.c",
    r"tiffio\.h": r"src/image/tiff\.c",
    r"gif_lib\.h": r"src/image/gif\.c",
    r"archive.*\.h": r"src/(data|pack)/",
    r"hwloc\.h|hwloc/.*": r"src/engine/numa\.c",
    r"Random123/.*": r"src/base/rng\.c",
    r"cuda.*|cudnn.*|cublas.*|nccl\.h|nvtx3/.*": r"src/cuda/|kernels/|src/comm/nccl\.c",
}
# Tables of functions that a room declares and that rooms above it define: the only calls upwards.
UPWARDS = {
    "dt_backend": {"cpu", "cuda"},
    "dt_task": {"eval"},
    "dt_dataset_kind": {"pack"},
}
COMMENT = re.compile(r"/\*.*?\*/", re.S)
DECLARED = re.compile(r"^[a-z][^;{}()#]*?\b(dt_\w+)\([^;{}]*\)[^;{}]*;", re.M)
DEFINED = re.compile(r"^[a-z][^;{}()#]*?\b(dt_\w+)\([^;{}]*\)\n\{", re.M)
TABLE = re.compile(r"^struct (\w+)\s*\{(?:(?!^\};).)*?\(\*\w+\)\(", re.M | re.S)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def sources():
    for top in ("src", "include"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in names:
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def room_of(path):
    """The room of a file, "main" for main.c."""
    parts = path.split(os.sep)
    if parts[0] == "include":
        name = parts[2][: -len(".h")]
        return PUBLIC.get(name, name)
    return parts[1] if len(parts) > 2 else "main"


def header_path(name):
    return os.path.join("include" if name.startswith("dtrain/") else "src", name)


def unit_of(path):
    """x.c and x.h are one unit."""
    return os.path.splitext(path)[0]


def check(path, includes):
    own = room_of(path)
    for kind, header in includes:
        for pattern, where in VENDOR.items():
            if kind == "<" and re.fullmatch(pattern, header) and not re.match(where, path):
                yield f"{path}: <{header}> belongs to {where}"
        if kind == "<":
            continue
        if "/" not in header:
            yield f'{path}: write "{header}" with its folder'
            continue
        room = "kernels" if header.startswith("kernels/") else room_of(header_path(header))
        if room not in {own, "base"} | ALLOWED[own]:
            yield f"{path}: the room {own} may not include {header}"
        elif room != own and header.split("/")[0] in PRIVATE:
            yield f"{path}: {header} is private to the room {room}"


def circles(edges):
    """Groups of units that include each other: Tarjan's strongly connected components."""
    index, low, stack, found = {}, {}, [], []

    def visit(unit):
        index[unit] = low[unit] = len(index)
        stack.append(unit)
        for other in edges.get(unit, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[unit] = min(low[unit], low[other])
        if low[unit] == index[unit]:
            at = stack.index(unit)
            found.append(stack[at:])
            del stack[at:]

    for unit in sorted(edges):
        if unit not in index:
            visit(unit)
    return [sorted(group) for group in found if len(group) > 1]


def calls_upwards(texts):
    """Tables that are defined in another room than the one that declares them."""
    home = {name: room_of(path) for path, text in texts.items() if path.endswith(".h") for name in TABLE.findall(text)}
    for path, text in texts.items():
        for name in re.findall(r"^(?:static )?const struct (\w+) \w+(?:\[\w*\])? = \{", text, re.M):
            room = room_of(path)
            if name in home and room != home[name] and room not in UPWARDS.get(name, ()):
                yield f"{path}: a {name} of the room {home[name]}, which would call into the room {room}"


def defined_elsewhere(texts):
    """Functions that a room declares and another one defines, so that its callers call into that room; but
    include/dtrain/gpu.h is that of cuda."""
    home = {name: room_of(path) for path, text in texts.items() if path.endswith(".h") for name in DECLARED.findall(COMMENT.sub("", text))}
    for path, text in texts.items():
        for name in DEFINED.findall(text) if path.endswith(".c") else ():
            if home.get(name, "backend") not in ("backend", room_of(path)):
                yield f"{path}: defines {name}, which the room {home[name]} declares"


def repeated_names(paths):
    names = sorted((os.path.basename(path), path) for path in paths if path.startswith("src"))
    for (name, path), (other, where) in zip(names, names[1:]):
        if name == other:
            yield f"{path}: {where} has the same name"


problems, edges, texts = [], {}, {}
for path in sources():
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        texts[path] = file.read()
    includes = INCLUDE.findall(texts[path])
    problems += check(path, includes)
    others = {unit_of(header_path(header)) for kind, header in includes if kind == '"'}
    edges.setdefault(unit_of(path), set()).update(others - {unit_of(path)})
problems += [*calls_upwards(texts), *defined_elsewhere(texts), *repeated_names(texts)]
problems += ["circle: " + ", ".join(group) for group in circles(edges)]
print("\n".join(problems) or f"includes: {len(edges)} units, as allowed, no circles")
sys.exit(1 if problems else 0)
