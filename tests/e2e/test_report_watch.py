"""`dtrain report --watch`: the page and its events while a run trains, the list of a folder of runs, and requests
that are refused or never come."""

import contextlib
import http.client
import http.server
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from browser import BROWSER, Browser  # noqa: E402
from scratch import DTRAIN, content, rig, run, sets, train, write, write_config  # noqa: E402

CONFIG = {
    "model": {"name": "tiny", "num_classes": 10, "image_size": 32},
    "data": {"source": "synthetic", "synthetic_train": 120, "synthetic_val": 24, "workers": 1},
    "train": {"epochs": 2, "global_batch_size": 12},
    "eval": {"batch_size_per_rank": 8},
    "schedule": {"kind": "constant", "lr_scaling": "none", "warmup_epochs": 0},
    "device": {"kind": "cpu", "threads": 1},
    "output": {"log_every": 2, "log_every_s": 0},
}
WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextlib.contextmanager
def serving(*words):
    """Yields the port of a server, which SIGTERM then ends."""
    command = [DTRAIN, "report", *words, "--watch", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            line = server.stdout.readline()
            yield int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\n", line)[1])
            assert server.poll() is None, "it has ended"
            server.send_signal(signal.SIGTERM)
            assert server.wait(rig.HANG_S) == 0, server.returncode
        finally:
            server.kill()


def ask(port, path="/", code=200, method="GET", **headers):
    """The text of an answer, without the minute at which a page was made."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=rig.HANG_S)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == code, (path, answer.status, text)
    assert answer.headers["Cache-Control"] == "no-store" and answer.headers["X-Content-Type-Options"] == "nosniff"
    assert int(answer.headers["Content-Length"]) == len(text), path
    connection.close()
    return undated(text.decode())


def undated(page):
    return re.sub(r"\d\d:\d\d UTC", "UTC", page)


def send(port, text):
    """The connection, of which the caller reads."""
    connection = socket.create_connection(("127.0.0.1", port), rig.HANG_S)
    connection.sendall(text)
    return connection


class Events:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=rig.HANG_S)
        self.connection.request("GET", "/?events")
        self.answer = self.connection.getresponse()
        assert self.answer.headers["Content-Type"] == "text/event-stream", self.answer.headers

    def wait(self, line=b"data: changed\n"):
        while (got := self.answer.readline()) != line:
            assert got, "the stream has ended"

    def close(self):
        self.answer.close()
        self.connection.close()


def steps(page):
    """How far the page says that the run is."""
    return int(re.search(r"(\d+) (of \d+ )?steps", page)[1])


@contextlib.contextmanager
def training(folder):
    """A run that is going on, which is killed."""
    command = [DTRAIN, "--config", "config.json", "--out", folder, *sets("train.epochs=100000")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            while not os.path.exists(f"{folder}/metrics.jsonl") or b'"step":4,' not in content(folder, "metrics.jsonl"):
                assert process.poll() is None, "it has ended"
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


def check_renewed():
    """One page of a run that goes on, by its folder and by its file."""
    with training("live"), serving("live") as port, serving("live/metrics.jsonl", "done") as other:
        events, others = Events(port), Events(other)
        first = steps(ask(port))
        events.wait()
        while steps(ask(port)) == first:
            events.wait()
        others.wait()
        assert "live and done" in ask(other)
        assert ask(port, "/run/live", 404) and ask(port, "/live/metrics.jsonl", 404)
        events.close()
        again = Events(port)
        again.wait()
        again.close()
        others.close()


def check_browser():
    """There the page renews itself, and keeps what has been chosen."""
    last = "charts[0].series[0].steps.at(-1)"
    with training("seen"), serving("seen") as port, contextlib.closing(Browser()) as browser:
        browser.show(f"http://127.0.0.1:{port}/")
        browser.run("zoomTo([0.1, 0.3]); $('input[type=range]')[0].focus()")
        first = browser.run(last)
        browser.run("new Promise((done) => { const look = () => "
                    f"{last} > {first} ? done() : setTimeout(look, 50); look(); }})")
        assert browser.run("charts[0].x1") == 0.3 and browser.run('$(".tools").length') == 1
        assert browser.run("document.activeElement.type") == "range"
        assert not browser.complaints(), browser.complaints()


def check_elsewhere():
    """A page that another server shows asks for nothing."""
    run("report", "done", "-o", "done.html")
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append(self.path)

    asked = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server, contextlib.closing(Browser()) as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.show(f"http://127.0.0.1:{server.server_port}/done.html")
        browser.run("new Promise((done) => setTimeout(done, 300))")
        assert asked == ["/done.html"] and not browser.complaints(), (asked, browser.complaints())
        server.shutdown()


def row(page, name):
    """The cells of a run in the list."""
    found = re.search(f'<a href="/run/{name}">.*?</tr>', page, re.S)
    return re.findall("<td.*?>(.*?)</td>", found[0]) if found else None


def check_list():
    """A folder: states, also of a run that is killed, comes or is damaged; each has its page."""
    odd = "runs/<b> ä%2F"
    shutil.copytree("done", "runs/done")
    shutil.copytree("done", odd)
    os.mkdir("runs/empty")
    with serving("runs") as port:
        events = Events(port)
        page = ask(port)
        link = "%3Cb%3E%20%C3%A4%252F"
        assert row(page, "done")[:2] == ["finished", "2.0/2"] and row(page, link)[0] == "finished", page
        assert "&#60;b&#62; ä%2F</a>" in page and "<b>" not in page and "empty" not in page, page
        assert "<svg" in ask(port, f"/run/{link}") and "<svg" in ask(port, "/run/done?x=1")
        with training("runs/later"):
            while not row(ask(port), "later") or row(ask(port), "later")[0] != "running":
                events.wait()
        while row(ask(port), "later")[0] != "killed":
            events.wait()
        write("runs/done/metrics.jsonl", "}{\n")
        while row(ask(port), "done"):
            events.wait()
        assert "no run has started" in ask(port, "/run/done")
        shutil.rmtree("runs/done")
        assert row(ask(port), "later")[0] == "killed"
        for path in ("/run/done", "/run/", "/run", "/run/..", "/run/../done", "/run/later/metrics.jsonl", "/run/empty",
                     "/run/%2e%2e%2Fdone", "/run/later%00", "/run/%", "/run/%zz", "//", "/etc/passwd", "/favicon.ico"):
            ask(port, path, 404)
        events.close()


def check_begins():
    """A folder in which no run has begun yet has a page that says so."""
    os.mkdir("soon")
    with serving("soon") as port:
        events = Events(port)
        assert "soon/metrics.jsonl" in ask(port)
        shutil.copy("done/metrics.jsonl", "soon")
        while "<svg" not in ask(port):
            events.wait()
        events.close()


def check_requests(port):
    for host in "evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost@evil.example", "":
        ask(port, "/", 403, Host=host)
        ask(port, "/?events", 403, Host=host)
    for host in "localhost", f"LOCALHOST:{port}", "127.0.0.1:1", f"[::1]:{port}":
        ask(port, "/", Host=host)
    for method in "POST", "PATCH", "PUT", "OPTIONS":
        send(port, f"{method} / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nabcd".encode()).close()
    ask(port, "/", 405, "POST")
    ask(port, "/?events", 405, "DELETE")
    with send(port, WHOLE) as whole, send(port, WHOLE.replace(b"GET", b"HEAD")) as head:
        texts = [connection.makefile("rb").read().partition(b"\r\n\r\n") for connection in (whole, head)]
    assert texts[0][0] == texts[1][0] and texts[0][2] and not texts[1][2], texts[1]
    with send(port, b"HEAD /?events HTTP/1.1\r\nHost: localhost\r\n\r\n").makefile("rb") as answer:
        assert b" 200 OK\r\n" in answer.read()
    for text in b"GET /\r\n\r\n", b"\r\n\r\n", b"GET / SMTP\r\n\r\n", b"x" * 8192:
        with send(port, text).makefile("rb") as answer:
            assert answer.read().split()[1] == (b"431" if text[:1] == b"x" else b"400"), text


def check_others(port):
    """Clients that say nothing, or too little, or go away, are not waited for."""
    page = ask(port)
    waiting = [send(port, text) for text in (b"", WHOLE[:9], WHOLE) for _ in range(3)]
    assert ask(port) == page
    for connection in waiting:
        connection.close()
    events = [Events(port) for _ in range(9)]
    for client in events:
        client.close()
    idle = [send(port, b"") for _ in range(40)]  # more than there is room for
    assert ask(port) == page
    for connection in idle:
        connection.close()


def check_full():
    """More streams than there is room for are told so."""
    with serving("done") as port:
        streams = [Events(port) for _ in range(100)]
        assert "are open; close some" in ask(port, "/?events", 503) + ask(port, "/", 503)
        for client in streams:
            client.close()


def check_slow():
    """An answer of more bytes than the system takes at once is sent as fast as it is read."""
    shutil.copytree("done", "large")
    write("large/samples.png", b"\x89PNG\r\n\x1a\n" + bytes(12 << 20))
    with serving("large") as port:
        page = ask(port)
        with send(port, WHOLE) as slow, send(port, WHOLE), slow.makefile("rb") as answer:
            assert ask(port) == page
            assert undated(answer.read().decode()).endswith("\r\n\r\n" + page)


def check_port(port):
    said = run("report", "done", "--watch", "--port", port, code=74).said
    assert re.search(f"cannot listen on 127.0.0.1, port {port}: .* in use; choose another --port, or 0 ", said), said


def check_refused():
    assert "nowhere" in run("report", "nowhere", "--watch", code=66).said
    assert "--port needs --watch" in run("report", "done", "--port", "1", code=64).said
    assert "--address needs --watch" in run("report", "done", "--address", "::1", code=64).said
    assert "--output" in run("report", "done", "--watch", "-o", "a.html", code=64).said
    assert "not an IP address" in run("report", "done", "--watch", "--address", "a.example", code=64).said
    assert "this machine" in run("report", "done", "--watch", "--address", "192.0.2.1", code=74).said


def check_address():
    """Ctrl-C ends it as well; on another address than loopback it warns."""
    command = [DTRAIN, "report", "done", "--watch", "--port", "0", "--address", "0.0.0.0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        port = int(re.fullmatch(r"http://0\.0\.0\.0:(\d+)/\n", server.stdout.readline())[1])
        assert "<svg" in ask(port, Host="node7:80")
        server.send_signal(signal.SIGINT)
        said = server.communicate(timeout=rig.HANG_S)[1]
    assert server.returncode == 0 and "can read the runs" in said, (server.returncode, said)


write_config(CONFIG)
train("done")
check_renewed()
if BROWSER:
    check_browser()
    check_elsewhere()
check_list()
check_begins()
with serving("done") as shown:
    check_requests(shown)
    check_others(shown)
    check_port(shown)
check_full()
check_slow()
check_refused()
check_address()
