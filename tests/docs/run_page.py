"""Runs a page: run_page.py DTRAIN PAGE. Its command blocks run as printed, in order, in a fresh folder.

A block ```sh is commands, and so is a row of a table whose last cell is one in backticks; in a block
```console, lines that begin with "$ " are commands and the others the output, compared by shape: a
number matches any number, "..." any text, a line "..." any lines. Comments before a block or in a row:

    <!-- skip: REASON -->      is not run
    <!-- with: OPTIONS -->     options behind every --config FILE of the block, to make it small
    <!-- before: COMMANDS -->  run first, unseen by readers: what they are assumed to have

Run or not, a block may name only files, options and keys that there are. Links are followed too. Blocks
of other languages (text, json, python) are for reading."""

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = os.environ.get("DTRAIN_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
DTRAIN, PAGE = os.path.abspath(sys.argv[1]), sys.argv[2]
TOKEN = re.compile(
    r"^<!-- (?P<mark>skip|with|before): (?P<value>(?s:.*?))\s-->$"
    r"|^```(?P<language>\w*)\n(?P<body>(?s:.*?))^```$"
    r"|^\|.*\| `(?P<cell>[^`|]*)` ?(?:<!-- skip: (?P<cell_skip>.*?) --> ?)?\|$",
    re.M,
)
TOOLS = ("build/dtrain ", "dtrain ", "mpirun ", "scripts/")
SEEN = (".c", ".h", ".cu", ".cuh", ".py", ".sh", ".md", ".cpp")  # names with these endings must exist,
NOT_OURS = ("use-deps.sh",)  # but these
BEFORE = {"README.md": "/usr/bin/python3 tests/docs/assumed.py readme"}  # where readers shall see no comment before the first command
problems = []


def problem(line, text):
    problems.append(f"{PAGE}:{line}: {text}")


# --- What there is ---


@functools.lru_cache(maxsize=None)
def printed(*command):
    return subprocess.run([DTRAIN, *command], capture_output=True, text=True, check=True).stdout


@functools.lru_cache(maxsize=None)
def names():
    found = set()
    for top in (".ci", "src", "include", "kernels", "configs", "scripts", "tests", "docker"):
        for folder, _, files in os.walk(os.path.join(ROOT, top)):
            found.update(files, {os.path.join(os.path.basename(folder), file) for file in files})
    return found


def check_command(line, text):
    """The options and keys of dtrain in a command line, and the files of the repository."""
    for words in re.split(r"[|;&]+|\n", re.sub(r"\\\n", " ", text)):
        try:
            words = shlex.split(words, comments=True)
        except ValueError:
            continue
        own = [i for i, word in enumerate(words) if os.path.basename(word) == "dtrain"]
        for word in words:
            if re.match(r"(configs|scripts|tests)/[\w./-]+\.\w+$", word) and not os.path.exists(os.path.join(ROOT, word)):
                problem(line, f"there is no {word}")
        for i, word in enumerate(words[own[-1] + 1 :] if own else []):
            option = word.split("=")[0]
            if option.startswith("--") and not re.search(rf"^\s+{option}\b|{option}\b", printed("help", "all"), re.M):
                problem(line, f"dtrain has no option {option}")
            if word == "--set":
                key = words[own[-1] + 2 + i].split("=")[0]
                if f"- `{key}`:" not in printed("config", "help"):
                    problem(line, f"dtrain has no key {key}")


def anchors(path):
    with open(path, encoding="utf-8") as file:
        heads = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", file.read(), flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def check_links(text):
    base = os.path.join(ROOT, os.path.dirname(PAGE))
    for match in re.finditer(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)|srcset=\"([^\"]+)", text):
        target, _, anchor = (match[1] or match[2] or match[3]).partition("#")
        path, line = os.path.join(base, target) if target else os.path.join(ROOT, PAGE), text.count("\n", 0, match.start()) + 1
        if "://" in target:
            continue
        if not os.path.exists(path):
            problem(line, f"a link leads to {target}, which there is not")
        elif anchor and anchor not in anchors(path):
            problem(line, f"a link leads to #{anchor} of {target or PAGE}, which has no such heading")
    for match in re.finditer(r"`([\w./-]*\w\.\w+)`", text):
        name = match[1]
        if name.endswith(SEEN) and name not in NOT_OURS and "x." not in name and "/".join(name.split("/")[-2:]) not in names():
            problem(text.count("\n", 0, match.start()) + 1, f"{name} is named, which there is not")


# --- Running ---


def run(folder, commands):
    """(exit code, output) of shell commands; variables and the folder are those of the last ones."""
    script = r"""set -eo pipefail
        [ ! -e "$STATE" ] || . "$STATE"
        trap '{ export -p; printf "cd %q\n" "$PWD"; } > "$STATE"' EXIT
        """
    environment = {
        **os.environ,
        "STATE": os.path.join(folder, ".state"),
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "DTRAIN_NO_INSTALL": "1",
    }
    done = subprocess.run(
        ["bash", "-c", script + commands],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=500,
    )  # fmt: skip
    return done.returncode, done.stdout


def shape(expected):
    """A regular expression for printed lines."""
    kinds = (
        (re.compile(r"(?:\d+ h )?(?:\d+ min )?[\d.]+ s\b"), r"(?:\d+ h )?(?:\d+ min )?[\d.]+ m?s"),
        (re.compile(r"\d[\d.,]*\d(?:e-?\d+)?|\d"), r"[\d.,]+(?:e-?\d+)?"),
        (re.compile(r"\.\.\."), r".*"),
        (re.compile(r" +"), r" +"),
    )
    whole = re.compile("|".join(f"({kind.pattern})" for kind, _ in kinds) + "|([^ ])")
    pattern = ""
    for line in expected.strip("\n").split("\n"):
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            found = whole.finditer(line)
            pattern += "".join(re.escape(m[5]) if m[5] else kinds[m.lastindex - 1][1] for m in found) + " *\n"
    return pattern


def fresh_folder():
    folder = tempfile.mkdtemp(prefix="dtrain-docs-")
    for name in ("build", "bin"):
        os.mkdir(os.path.join(folder, name))
        os.symlink(DTRAIN, os.path.join(folder, name, "dtrain"))
    for name in ("configs", "scripts"):
        shutil.copytree(os.path.join(ROOT, name), os.path.join(folder, name))
    for name in ("tests", "src", "docker", "README.md"):
        os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
    return folder


def run_block(folder, line, language, body, options):
    def with_options(command):
        return re.sub(r"--config [\w./-]+", rf"\g<0> {options}", command) if options else command

    parts = [(body, None)]
    if language == "console":
        parts = re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", body, re.M)
    for command, expected in parts:
        code, output = run(folder, with_options(command))
        if code != 0:
            problem(line, f"exit code {code}: {command}\n{output[-3000:]}")
        elif expected and not re.search(shape(expected), output + "\n"):
            problem(line, f"{command}\nprints other lines than the page says:\n{output[-3000:]}\nshape: {shape(expected)}")


def main():
    with open(os.path.join(ROOT, PAGE), encoding="utf-8") as file:
        text = file.read()
    check_links(text)
    folder, n_run, n_skipped = fresh_folder(), 0, 0
    marks = {"before": BEFORE[PAGE]} if PAGE in BEFORE else {}
    try:
        for token in TOKEN.finditer(text):
            line = text.count("\n", 0, token.start()) + 1
            body = token["body"] if token["cell"] is None else token["cell"]
            if token["mark"]:
                marks[token["mark"]] = token["value"]
                continue
            if token["language"] in ("sh", "console") or (token["cell"] or "").startswith(TOOLS):
                check_command(line, re.sub(r"^\$ ", "", body, flags=re.M))
                if "before" in marks:
                    code, output = run(folder, marks.pop("before"))
                    if code == 77:
                        print(output.strip().split("\n")[-1])
                        sys.exit(77)
                    if code != 0:
                        problem(line, f"the commands before it end with {code}: {output[-3000:]}")
                if "skip" in marks or token["cell_skip"]:
                    n_skipped += 1
                else:
                    n_run += 1
                    run_block(folder, line, token["language"], body, marks.get("with"))
            marks = {} if token["cell"] is None else marks
    finally:
        shutil.rmtree(folder)
    for number, indented in enumerate(text.split("\n"), 1):
        if re.match(r"    (build/dtrain|dtrain|mpirun|scripts/)\b", indented) and not re.search(r"```|<!--", text):
            problem(number, "commands of a page stand in ```sh")
    print(f"{PAGE}: {n_run} blocks run, {n_skipped} not")
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


main()
