"""On a terminal, also through mpirun, progress is one line that rewrites itself. In a file it
consists of plain lines, printed by time even if log_every alone would print none."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios

dtrain = sys.argv[1]
REWRITE = b"\r\x1b[K"
SETTINGS = {
    "model.name": "tiny",
    "model.num_classes": 10,
    "model.image_size": 32,
    "data.synthetic_train": 64,
    "data.synthetic_val": 0,
    "train.global_batch_size": 8,
    "train.max_steps": 24,
    "schedule.warmup_epochs": 0,
    "output.log_every": 4,
    "output.log_every_s": 0,
    "device.kind": "cpu",
}


# log_every alone would print no line before the last step.
BY_TIME = {"output.log_every": 100000, "output.log_every_s": 0.001, "train.epochs": 1000, "train.max_steps": 400}


def command(ranks, folder, name, settings):
    words = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks else []
    words += [dtrain, "train", "--config", os.path.join(folder, "empty.json"), "--out", os.path.join(folder, name)]
    return words + [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def read_all(fd):
    text = b""
    while True:
        try:
            block = os.read(fd, 65536)
        except OSError:  # the last process has closed the terminal
            return text
        if not block:
            return text
        text += block


def on_terminal(words):
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    env = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(words, stdin=other, stdout=other, stderr=other, env=env) as process:
        os.close(other)
        text = read_all(main)
    return process.returncode, text


def in_file(words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


failed = 0


def check(what, good, text):
    global failed
    if not good:
        failed += 1
        print(f"FAILED: {what}:\n{text.decode(errors='replace')}")


for ranks in (0, 1, 2):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "empty.json"), "w", encoding="utf-8") as file:
            file.write("{}")
        code, text = on_terminal(command(ranks, folder, "a", SETTINGS))
        check(f"{ranks} ranks on a terminal: exit code {code}", code == 0, text)
        rewritten = text.count(REWRITE + b"epoch ")
        check(f"{ranks} ranks on a terminal: {rewritten} lines rewritten", rewritten >= 6, text)
        check(f"{ranks} ranks: share and time", b"step 24/24 (100 %):" in text and b"  elapsed " in text, text)
        code, text = in_file(command(ranks, folder, "b", {**SETTINGS, **BY_TIME}))
        check(f"{ranks} ranks in a file: exit code {code}", code == 0, text)
        plain = text.count(b"\ndtrain: epoch ")
        check(f"{ranks} ranks in a file: {plain} lines by time", plain > 2 and b"\r" not in text, text)
sys.exit(1 if failed else 0)
