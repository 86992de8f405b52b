"""The page of `dtrain report` in headless Chromium, on a phone and on a desk: no console errors, whatever the
texts of the runs contain, nothing wider than the window, and the charts are there; in print too."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

DTRAIN = os.path.realpath(sys.argv[1])
BROWSERS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
EVIL = "</title><script>console.error(1)</script><img src=x onerror='console.error(2)'/>\x1b]0;\u00e9"
N_CHARTS = 10  # 9 topics with curves, and telemetry
PROBE = """<script>document.title = [innerWidth, document.documentElement.scrollWidth,
document.querySelectorAll('figure svg').length,
[...document.querySelectorAll('path.curve')].every(path => path.getTotalLength() > 50)].join()</script></body>"""


def write_run(name, rate):
    """Eight epochs of 100 steps, restarted in the middle, with a warning."""
    events, start = [], {"config": {"schedule": {"lr": rate}, "model": {"name": EVIL}}, "device": EVIL}
    start |= {"global_batch_size": 64, "steps_per_epoch": 100, "hosts": {EVIL: 2}, "libraries": [EVIL] * 20}
    for first, last in ((0, 450), (400, 800)):
        events.append({"event": "run_start", "start_step": first, **start})
        events.append({"event": "warning", "text": EVIL})
        for step in range(first + 10, last + 1, 10):
            loss, wait = 2.3 * math.exp(-step * rate), {"data_wait_s": 0.001, "comm_s": 0.01}
            accuracy = {"loss": loss, "top1": 100 - 40 * loss, "top5": 100 - 20 * loss}
            events.append({"event": "step", "step": step, "lr": rate, "images_per_s": 640 + step % 70, "step_s": 0.1, **accuracy, **wait})
            if step % 100 == 0:
                events.append({"event": "eval", "step": step, "epoch": step // 100, **accuracy})
                events.append({"event": "telemetry", "step": step, "gpu0_power_w": 600 + step / 10})
    os.mkdir(name)
    with open(f"{name}/metrics.jsonl", "w", encoding="utf-8") as f:
        for i, event in enumerate(events):
            f.write(json.dumps({"ts": f"2026-01-31T12:{i // 60:02}:{i % 60:02}.000Z", **event}) + "\n")


def browse(*options):
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    command += ["--user-data-dir=" + os.path.realpath("profile"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


if not BROWSER:
    print("skipped: no Chromium (apt-get install chromium-headless-shell)")
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    write_run("a", 0.002)
    write_run("<b>", 0.004)
    subprocess.run([DTRAIN, "report", "a", "<b>", "-o", "page.html"], check=True, capture_output=True)
    with open("page.html", encoding="utf-8") as f:
        page = f.read()
    with open("probe.html", "w", encoding="utf-8") as f:
        f.write(page.replace("</body>", PROBE))
    for width in (390, 1280):
        dom = browse(f"--window-size={width},900", "--dump-dom", f"file://{folder}/probe.html")
        inner, scroll, n_charts, is_drawn = re.search(r"<title>([^<]*)</title>", dom)[1].split(",")
        assert int(scroll) <= int(inner) == width, (width, inner, scroll)
        assert int(n_charts) == N_CHARTS and is_drawn == "true", (n_charts, is_drawn)
    for option, name in (("screenshot", "page.png"), ("print-to-pdf", "page.pdf")):
        browse(f"--{option}={folder}/{name}", f"file://{folder}/page.html")
        assert os.path.getsize(name) > 10000, name
