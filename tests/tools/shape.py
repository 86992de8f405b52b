#!/usr/bin/env python3
"""The shape of the source in figures: tests/tools/shape.py [-v | --max FILE]

Lines, lengths of functions, literal operands, files that tell kinds of run apart, members of the structs that are
passed around and functions that take them, and the circles of calls between the files of a room; -v names the files
and the calls of every circle. It reads the text: a call is the name of a function in the body of another one.
--max compares the lines with FILE, such as most_lines.txt, and fails if there are more.
"""
import collections
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRODUCT = ("src", "include", "kernels")
STRUCTS = ("dt_ranks", "dt_engine", "dt_sets", "dt_evaluator", "run")
# What tells kinds of run apart, and what only some files may know.
NAMED = {
    "has_boxes, targets, detects or n_canvases": r"\b(has_boxes|\w*detects|n_canvases)\b|\btargets [=!]=",
    "a parallel mode": r"\bDT_(MODE|PARALLEL)_[A-Z]+\b|\bdt_async_\w+",
}
OPERANDS = {  # tests/ops and tests/emulator speak of operands too
    "literal operands above 1": r"(?<!int )\b(?:src|dst)(?:_data)?\[(?:[2-9]|\d\d+)\]"
    r"|\b(?:dt_cpu|ref)_(?:src|dst)\([^()]*, (?:[2-9]|\d\d+)\)|\b(?:SRC|DST)\(\d, \d\)",
    "numbers of operands": r"\bn_(?:src|dst)\s*(?:[=!<>]=|[<>])\s*\d",
}


def tracked(*folders, suffixes=r"c|h|cu|cuh|cpp"):
    names = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.splitlines() if re.search(rf"\.({suffixes})$", name)]


def n_lines(paths):
    return sum(path.read_bytes().count(b"\n") for path in paths)


def check_lines(path):
    """Every line of the file: product or tests, the most lines, and why. Returns the exit code."""
    parts = {"product": tracked(*PRODUCT), "tests": tracked("tests", suffixes=r"c|h|cpp|py|sh|js")}
    n_over = 0
    for line in pathlib.Path(path).read_text().splitlines():
        what, most, why = line.split(maxsplit=2)
        n = n_lines(parts[what])
        print(f"{what}: {n} lines, at most {most}: {why}")
        if n > int(most):
            print(f"{what}: {n - int(most)} lines too many; remove some, or raise the number in {path} and say why")
            n_over += 1
    return min(n_over, 1)


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def functions(text):
    """(name, head, body) of every function: clang-format puts its braces into the first column."""
    lines = text.splitlines()
    for end, line in enumerate(lines):
        if line.rstrip() != "}":
            continue
        begin = next((i for i in range(end, -1, -1) if lines[i].rstrip() == "{"), None)
        if begin is None:
            continue
        first = begin
        while first > 0 and lines[first - 1].strip() and not re.search(r"[;}]\s*$|^#", lines[first - 1]):
            first -= 1
        head = "\n".join(lines[first:begin])
        name = re.search(r"(\w+)\s*\(", head)
        if name:
            yield name[1], head, lines[begin : end + 1]


def components(edges):
    """The strongly connected components of two or more members (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges[node]:
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            member = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(member) > 1:
                found.append(sorted(member))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def print_circles(bodies, verbose):
    rooms = collections.defaultdict(list)
    for path, found in bodies.items():
        rooms[path.relative_to(ROOT).parts[1] if path.is_relative_to(ROOT / "src") else path.parts[-2]].append((path, found))
    n_circles = 0
    for room, files in sorted(rooms.items()):
        defined = {}  # name -> file without its ending
        for path, found in files:
            for name, head, _ in found:
                if not head.startswith("static") or path.suffix == ".h":
                    defined[name] = path.stem
        edges, calls = collections.defaultdict(set), collections.defaultdict(set)
        for path, found in files:
            own = {name for name, _, _ in found}
            edges[path.stem]
            for name, _, body in found:
                for word in set(re.findall(r"(?<!struct )\b\w+", "\n".join(body))) & defined.keys() - own:
                    if defined[word] != path.stem:
                        edges[path.stem].add(defined[word])
                        calls[path.stem, defined[word]].add(f"{name} -> {word}")
        for circle in components(edges):
            n_circles += 1
            print(f"circle in {room}: {', '.join(circle)}")
            for one in circle if verbose else ():
                for other in sorted(edges[one] & set(circle)):
                    print(f"    {one} -> {other}: {'; '.join(sorted(calls[one, other]))}")
    print(f"circles of calls inside rooms: {n_circles}")


def main():
    if sys.argv[1:2] == ["--max"]:
        sys.exit(check_lines(sys.argv[2]))
    verbose = "-v" in sys.argv[1:]
    text = {path: without_comments(path.read_text()) for path in tracked(*PRODUCT, "tests/ops", "tests/emulator")}
    product = {path: t for path, t in text.items() if path.relative_to(ROOT).parts[0] in PRODUCT}
    bodies = {path: list(functions(t)) for path, t in product.items()}
    lengths = sorted(len(body) for found in bodies.values() for _, _, body in found)
    print(f"product: {n_lines(product)} lines, {len(product)} files")
    print(
        f"functions: {len(lengths)}, lines: median {statistics.median(lengths):g}, "
        f"90 % at most {lengths[len(lengths) * 9 // 10]}, longest {lengths[-1]}"
    )
    for struct in STRUCTS:
        taken = [h for f in bodies.values() for _, h, _ in f if re.search(rf"struct {struct} \*", h)]
        defined = [m for t in product.values() for m in re.findall(rf"^struct {struct} {{\n(.*?)\n}};", t, re.M | re.S)]
        members = sum(d.count(";") + d.count(",") for d in defined)
        if defined:
            print(f"struct {struct}: {members} members, a parameter of {len(taken)} functions")
    for what, pattern in NAMED.items():
        files = [str(p.relative_to(ROOT)) for p, t in product.items() if re.search(pattern, t)]
        print(f"files that name {what}: {len(files)}", *(files if verbose else ()), sep="\n    " if verbose else "")
    for what, pattern in OPERANDS.items():
        about = {str(p.relative_to(ROOT)): t for p, t in text.items() if "image" not in p.parts}
        hits = collections.Counter({name: len(re.findall(pattern, t)) for name, t in about.items()})
        print(f"{what}: {sum(hits.values())} in {sum(n > 0 for n in hits.values())} files")
        for name, n in hits.most_common() if verbose else ():
            if n > 0:
                print(f"    {n:4} {name}")
    print_circles(bodies, verbose)


main()
