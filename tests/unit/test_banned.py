"""Functions that are not used, because they cannot be used safely or start other programs."""

import os
import re
import sys

ROOT = os.environ.get("DTRAIN_SOURCE_DIR", os.path.join(os.path.dirname(__file__), "..", ".."))

BANNED = (
    "system popen exec[lv]p?e? execvpe fexecve strcpy strcat stpcpy sprintf vsprintf gets atoi atol "
    "atoll atof strtok strtok_r tmpnam tempnam mktemp alloca rand srand random"
).split()
STARTS_PROGRAMS = "src/launch/process.c"  # execvp, there alone
CALL = re.compile(r"(?<![\w.>])(%s)\s*\(" % "|".join(BANNED))
# Comments and texts are blanked out; a text may hold what looks like a comment and the reverse.
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def calls(text):
    """Line numbers and names of the banned calls in C source."""
    code = NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    return [(code.count("\n", 0, m.start()) + 1, m[1]) for m in CALL.finditer(code)]


def self_test():
    found = 'a = atoi (x); /* rand() */\n// gets(b)\nputs("system(c)"); execvp(d, e);\nstrcpy(f, "\\"(");'
    assert calls(found) == [(1, "atoi"), (2 + 1, "execvp"), (4, "strcpy")], calls(found)
    allowed = "dt_rng_rand(a); file->system(b); mkdtemp(c); snprintf(d); operand(e); brand (f);"
    assert calls(allowed) == [], calls(allowed)
    for name in BANNED:
        if re.fullmatch(r"\w+", name):
            assert calls(f"x = {name}(y);") == [(1, name)], name


def sources():
    for top in ("src", "include", "kernels"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".cu", ".cuh")):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


self_test()
n_files = 0
problems = []
for path in sources():
    n_files += 1
    text = open(os.path.join(ROOT, path), encoding="utf-8").read()
    found = [call for call in calls(text) if (path, call[1]) != (STARTS_PROGRAMS, "execvp")]
    problems += [f"{path}:{line}: {name}() is banned" for line, name in found]
print("\n".join(problems) or f"banned functions: none in {n_files} files")
sys.exit(1 if problems or n_files < 100 else 0)
