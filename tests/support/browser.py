"""Headless Chromium, driven through its DevTools protocol."""

import json
import os
import shutil

NAMES = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
COMPLAINTS = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}


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
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

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
        """Loads a file or an address, and waits for the end of that."""
        self.events.clear()
        url = path if path.startswith("http:") else "file://" + os.path.realpath(path)
        load = {"name": "load", "loaderId": self.call("Page.navigate", url=url)["loaderId"]}
        while not any(load.items() <= event["params"].items() for event in self.events):
            self.receive()

    def complaints(self):
        """What the console has said since the page was shown."""
        return [event for event in self.events if event["method"] in COMPLAINTS]

    def run(self, script):
        """The value of an expression, or of what it promises."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, (script, answer)
        return answer["result"].get("value")

    def resize(self, width, height=900):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")  # it is laid out

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def press(self, key, **more):
        code = {"Tab": 9, "Escape": 27, "Enter": 13, " ": 32, "ArrowLeft": 37, "ArrowRight": 39}.get(key, 0)
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code, **more)

    def close(self):
        os.close(self.commands)
        os.waitpid(self.pid, 0)
