"""The page of `dtrain report` in headless Chromium, on a phone and on a desk: no console errors, whatever the
texts of the runs contain, nothing wider than the window, and the charts are there; in print too."""

import base64
import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

DTRAIN = os.path.realpath(sys.argv[1])
BROWSERS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
EVIL = "</title><script>console.error(1)</script><img src=x onerror='console.error(2)'/>\x1b]0;\u00e9"
N_CHARTS = 10  # 9 topics with curves, and telemetry
PROBE = """[innerWidth, document.documentElement.scrollWidth,
document.querySelectorAll('figure svg').length,
[...document.querySelectorAll('path.curve')].every(path => path.getTotalLength() > 50)]"""
COMPLAINTS = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}


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


class Browser:
    """Headless Chromium under the DevTools protocol: JSON texts with a NUL behind each, which it reads from
    descriptor 3 and writes to 4. It ends when nobody is left who could write to it."""

    def __init__(self):
        reads, self.commands = os.pipe()
        self.answers, writes = os.pipe()
        options = ["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        options += ["--disable-background-networking", "--user-data-dir=" + os.path.realpath("profile")]
        ends = [(os.POSIX_SPAWN_DUP2, reads, 3), (os.POSIX_SPAWN_DUP2, writes, 4)]
        self.pid = os.posix_spawn(BROWSER, [BROWSER, *options, "about:blank"], os.environ, file_actions=ends)
        os.close(reads)
        os.close(writes)
        self.unread, self.events, self.n_calls, self.session = b"", [], 0, {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def receive(self):
        while b"\0" not in self.unread:
            more = os.read(self.answers, 1 << 20)
            assert more, "the browser has ended"
            self.unread += more
        text, self.unread = self.unread.split(b"\0", 1)
        message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    def call(self, method, **parameters):
        self.n_calls += 1
        command = {"id": self.n_calls, "method": method, "params": parameters, **self.session}
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        while (answer := self.receive()).get("id") != self.n_calls:
            pass
        assert "result" in answer, (method, answer)
        return answer["result"]

    def show(self, path):
        """Loads the page, and returns what PROBE finds there and what the console says."""
        self.events.clear()
        loader = self.call("Page.navigate", url="file://" + os.path.realpath(path))["loaderId"]
        load = {"name": "load", "loaderId": loader}
        while not any(load.items() <= event["params"].items() for event in self.events):
            self.receive()
        found = self.call("Runtime.evaluate", expression=PROBE, returnByValue=True)["result"]["value"]
        return found, [event for event in self.events if event["method"] in COMPLAINTS]

    def close(self):
        os.close(self.commands)
        os.waitpid(self.pid, 0)


if not BROWSER:
    print("skipped: no Chromium (apt-get install chromium-headless-shell)")
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    write_run("a", 0.002)
    write_run("<b>", 0.004)
    subprocess.run([DTRAIN, "report", "a", "<b>", "-o", "page.html"], check=True, capture_output=True)
    with open("evil.html", "w", encoding="utf-8") as f:
        f.write(f"<title>{EVIL}")
    with contextlib.closing(Browser()) as browser:
        assert len(browser.show("evil.html")[1]) >= 2  # the texts do harm where they are not escaped
        for width in (390, 1280):
            metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
            browser.call("Emulation.setDeviceMetricsOverride", **metrics)
            (inner, scroll, n_charts, is_drawn), complaints = browser.show("page.html")
            assert not complaints, complaints
            assert scroll <= inner == width, (width, inner, scroll)
            assert n_charts == N_CHARTS and is_drawn, (n_charts, is_drawn)
        for method in ("Page.captureScreenshot", "Page.printToPDF"):
            assert len(base64.b64decode(browser.call(method)["data"])) > 10000, method
        assert not any(event["method"] in COMPLAINTS for event in browser.events), browser.events
