"""Tab completes sub-commands, options, keys, their values, configurations, networks and files, in real shells.

    python3 test_completion.py BUILD/dtrain"""

import os
import pty
import re
import select
import shutil
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import DTRAIN, TESTS, write  # noqa: E402

FOLDER = os.path.join(TESTS, "..", "scripts", "completion")
START = {  # a prompt that no completion has
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
SETUP = {
    "bash": f". '{FOLDER}/dtrain.bash'; bind 'set show-all-if-ambiguous on'; bind 'set page-completions off';"
            "bind 'set completion-query-items -1'; bind 'set enable-bracketed-paste off'; PS1='@@ '\n",
    "zsh": f"fpath=('{FOLDER}' $fpath); autoload -U compinit; compinit -u -D; LISTMAX=0; PS1='@@ '; unsetopt prompt_sp\n",
}
# What is typed before Tab, and what the line or the list then has.
CASES = [
    ("dtrain foreca", "dtrain forecast"),
    ("dtrain eval --confu", "--confusion"),
    ("dtrain bench --con", "--config"),
    ("dtrain --set train.label_sm", "train.label_smoothing="),
    ("dtrain --set train.precision=bf", "train.precision=bf16"),
    ("dtrain --set=device.kind=cu", "--set=device.kind=cuda"),
    ("dtrain --set model.name=alex", "model.name=alexnet"),
    ("dtrain --set data.train=some_p", "data.train=some_photos"),
    ("dtrain --config cifar1", "cifar10_resnet20"),
    ("dtrain --config some_o", "some_other"),
    ("dtrain models squeezenet1_", "squeezenet1_0"),
    ("dtrain config help train.ep", "train.epochs"),
    ("dtrain config sch", "schema"),
    ("dtrain help exit", "exit-codes"),
    ("dtrain --resume mu", "must"),
    ("dtrain verify some_ph", "some_photos"),
]


class Shell:
    def __init__(self, name):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            path = os.path.dirname(DTRAIN) + os.pathsep + os.environ["PATH"]
            os.execvpe(name, START[name], {**os.environ, "PATH": path, "TERM": "dumb", "COLUMNS": "200"})
        self.send(SETUP[name] + "echo re''ady\n", "ready")

    def send(self, text, until, patience=60):
        """What the terminal shows, until this appears."""
        os.write(self.fd, text.encode())
        seen, end = "", time.monotonic() + patience
        while until not in seen.replace("\a", "") and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.5)[0]:
                seen += os.read(self.fd, 65536).decode(errors="replace")
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\a", "", seen)

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


write("some_photos/a", "")
write("some_other.json", "{}")
names = [name for name in START if shutil.which(name)]
if len(names) < len(START):
    print("skipped: there is no zsh")
    sys.exit(77)
for name in names:
    shell = Shell(name)
    for typed, wanted in CASES:
        seen = shell.send(typed + "\t\t", wanted)
        assert wanted in seen, f"{name}: {typed!r} and Tab shows {seen!r} without {wanted}"
        shell.send("\x15", "", 0.2)  # ^U: an empty line again
    shell.close()
print(f"{len(CASES)} completions in {' and '.join(names)}")
