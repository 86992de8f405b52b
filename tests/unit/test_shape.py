"""The source has at most the lines of tests/tools/most_lines.txt, and one more would fail."""

import os
import re
import subprocess
import sys
import tempfile

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools")


def shape(path):
    return subprocess.run([sys.executable, f"{TOOLS}/shape.py", "--max", path], capture_output=True, text=True, check=False)


if subprocess.run(["git", "-C", TOOLS, "rev-parse"], capture_output=True, check=False).returncode:
    print("skipped: this is no checkout of git")
    sys.exit(77)
done = shape(f"{TOOLS}/most_lines.txt")
print(done.stdout + done.stderr)
assert done.returncode == 0, "too many lines"
found = re.findall(r"^(\w+): (\d+) lines, at most", done.stdout, re.M)
assert [what for what, _ in found] == ["product", "tests"], found
with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
    for less in 0, 1:
        file.seek(0)
        file.write("".join(f"{what} {int(n) - less} none\n" for what, n in found))
        file.flush()
        done = shape(file.name)
        assert done.returncode == less and done.stdout.count("1 lines too many") == 2 * less, done.stdout
