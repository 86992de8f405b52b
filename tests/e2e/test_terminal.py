"""On a terminal, also through mpirun, progress is one line that rewrites itself. In a file it
consists of plain lines, printed by time even if log_every alone would print none."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import DTRAIN, rig, sets, write_config  # noqa: E402

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
BY_TIME = {"output.log_every": 100000, "output.log_every_s": 0.001, "train.epochs": 1000, "train.max_steps": 200}


def command(ranks, name, *settings):
    words = [*rig.MPIRUN, str(ranks)] if ranks else []
    return [*words, DTRAIN, "train", "--config", "config.json", "--out", name, *sets(*settings)]


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


def on_terminal(words, **environment):
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    env = {**os.environ, "TERM": "xterm", "NO_COLOR": "", **environment}
    with subprocess.Popen(words, stdin=other, stdout=other, stderr=other, env=env) as process:
        os.close(other)
        text = read_all(main)
    return process.returncode, text


def in_file(words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


write_config({"data": {"source": "synthetic"}})
for ranks in (0, 2):
    code, text = on_terminal(command(ranks, f"terminal-{ranks}", SETTINGS))
    rewritten = text.count(REWRITE + b"epoch ")
    assert code == 0 and rewritten >= 6, f"{ranks} ranks on a terminal: {code}, {rewritten} lines rewritten: {text}"
    assert b"step 24/24 (100 %):" in text and b"  elapsed " in text, f"{ranks} ranks: share and time: {text}"
    lines = [line.split(REWRITE)[-1] for line in text.split(b"\r\n")]
    assert max(map(len, lines)) <= 120 and b"\r\n        " in text, f"not wrapped: {text}"
    code, text = in_file(command(ranks, f"file-{ranks}", SETTINGS, BY_TIME))
    plain = text.count(b"\ndtrain: epoch ")
    assert code == 0 and plain > 2 and b"\r" not in text and b"\n   " not in text, f"{ranks} ranks in a file: {code}, {plain} lines: {text}"

# Colours for errors and warnings, on a terminal, unless NO_COLOR is set.
wrong = command(0, "wrong", SETTINGS, {"model.name": "tinny"})
assert b"dtrain: \x1b[31merror[CONFIG]\x1b[0m " in on_terminal(wrong)[1]
assert b"\x1b[31m" not in on_terminal(wrong, NO_COLOR="1")[1] + in_file(wrong)[1]

# What waits for its configuration ends at once.
os.mkfifo("fifo")
with subprocess.Popen([DTRAIN, "--config", "fifo"], stderr=subprocess.DEVNULL) as waiting:
    while True:
        try:
            writer = os.open("fifo", os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:  # it has not come yet
            assert waiting.poll() is None, "it has ended"
            time.sleep(0.01)
    waiting.send_signal(signal.SIGTERM)
    try:
        assert waiting.wait(100) == -signal.SIGTERM, waiting.returncode
    finally:
        waiting.kill()
os.close(writer)
