"""power_loss.so itself: synced changes survive a power loss, unsynced ones do not, and a save that
forgets a sync is detected."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile

import rig

LIBRARY = rig.preloaded(sys.argv[1], "power_loss.so")

# Operations of the children; each makes one or two counted calls.
OPS = """
import os, sys
def put(name, data, flags=os.O_CREAT | os.O_TRUNC, sync=True, at=None):
    fd = os.open(name, os.O_WRONLY | flags, 0o666)
    if at is not None:
        os.lseek(fd, at, 0)
    os.write(fd, data)
    if sync:
        os.fsync(fd)
    os.close(fd)
def sync(name="."):
    fd = os.open(name, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
def cut(name, size):
    fd = os.open(name, os.O_WRONLY)
    os.ftruncate(fd, size)
    os.close(fd)
def end():
    os.mkdir("end")
BIG = bytes(range(1, 251)) * 200
"""
BIG = bytes(range(1, 251)) * 200
END = "\nend()\n"  # power is lost instead of this call


def tree(top):
    """Contents of every file by path, None for folders."""
    found = {}
    for folder, dirs, files in os.walk(top):
        for name in dirs:
            found[os.path.relpath(os.path.join(folder, name), top)] = None
        for name in files:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, top)] = file.read()
    return found


def run(before, script, at=None, mode="all", seed=1, **environment):
    """Returns exit status, report and the resulting contents of the folder."""
    with tempfile.TemporaryDirectory() as top:
        work, report = os.path.join(top, "work"), os.path.join(top, "report")
        os.mkdir(work)
        for name, data in before.items():
            os.makedirs(os.path.dirname(os.path.join(work, name)), exist_ok=True)
            if data is not None:
                with open(os.path.join(work, name), "wb") as file:
                    file.write(data)
        env = dict(os.environ, LD_PRELOAD=LIBRARY, POWER_LOSS_DIR=work, POWER_LOSS_MODE=mode)
        env.update(POWER_LOSS_SEED=str(seed), POWER_LOSS_REPORT=report, **environment)
        if at:
            env["POWER_LOSS_AT"] = str(at)
        command = [sys.executable, "-S", "-E", "-c", OPS + script]
        status = subprocess.run(command, cwd=work, env=env, check=False).returncode
        text = ""
        if os.path.exists(report):
            with open(report, encoding="utf-8") as file:
                text = file.read()
        shutil.rmtree(os.path.join(work, "__pycache__"), ignore_errors=True)
        left = [name for name in os.listdir(top) if "power-loss" in name]
        assert not left, left
        return status, text, tree(work)


def n_calls(before, script):
    status, text, _ = run(before, script)
    assert status == 0 and text.startswith("calls "), (status, text, script)
    return int(text.split()[1])


def lose(before, script, at=None, mode="all", seed=1):
    """The folder after power loss at a call, by default the last."""
    at = at or n_calls(before, script)
    status, text, after = run(before, script, at, mode, seed)
    assert status == -signal.SIGKILL, (status, text, script)
    assert text.startswith(f"lost at call {at}: "), text
    return after


CASES = [  # before, script, after a power loss at its end
    ({}, "put('a', b'1', sync=False)", {}),
    ({}, "put('a', b'1')", {}),  # its name was not synced
    ({}, "put('a', b'1', sync=False); sync()", {"a": b""}),  # its data was not
    ({}, "put('a', b'1'); sync()", {"a": b"1"}),
    ({}, "put('a', b'1'); sync(); put('a', b'2', 0, False)", {"a": b"1"}),
    ({}, "put('a', b'1'); sync(); put('a', b'2', 0)", {"a": b"2"}),
    ({"a": b"1"}, "os.rename('a', 'b')", {"a": b"1"}),
    ({"a": b"1"}, "os.rename('a', 'b'); sync()", {"b": b"1"}),
    ({"a": b"1", "b": b"2"}, "os.rename('a', 'b')", {"a": b"1", "b": b"2"}),
    ({"a": b"1", "b": b"2"}, "os.rename('a', 'b'); sync()", {"b": b"1"}),
    ({"b": b"2"}, "put('a', b'1'); os.rename('a', 'b')", {"b": b"2"}),
    ({"b": b"2"}, "put('a', b'1'); os.rename('a', 'b'); sync()", {"b": b"1"}),
    ({"b": b"2"}, "put('a', b'1', sync=False); os.rename('a', 'b'); sync()", {"b": b""}),
    ({"a": b"1"}, "os.unlink('a')", {"a": b"1"}),
    ({"a": b"1"}, "os.unlink('a'); sync()", {}),
    ({"a": b"1"}, "os.unlink('a'); put('a', b'2')", {"a": b"1"}),
    ({"a": b"1"}, "os.unlink('a'); put('a', b'2'); sync()", {"a": b"2"}),
    ({"a": b"1"}, "os.link('a', 'b')", {"a": b"1"}),
    ({"a": b"1"}, "os.link('a', 'b'); os.unlink('a'); sync()", {"b": b"1"}),
    ({"a": b"1"}, "os.link('a', 'b'); os.rename('a', 'b'); sync()", {"a": b"1", "b": b"1"}),
    ({"a": b"1"}, "os.symlink('a', 'b')", {"a": b"1"}),
    ({"a": b"1"}, "os.symlink('a', 'b'); sync()", {"a": b"1", "b": b"1"}),
    ({"a": b"1"}, "os.symlink('x', 'b'); os.symlink('a', 'c'); os.rename('c', 'b'); sync()", {"a": b"1", "b": b"1"}),
    ({}, "os.mkdir('d'); put('d/a', b'1'); sync('d')", {}),
    ({}, "os.mkdir('d'); put('d/a', b'1'); sync()", {"d": None}),
    ({}, "os.mkdir('d'); put('d/a', b'1'); sync('d'); sync()", {"d": None, "d/a": b"1"}),
    ({"d/a": b"1"}, "os.unlink('d/a'); os.rmdir('d')", {"d": None, "d/a": b"1"}),
    ({"d/a": b"1"}, "os.unlink('d/a'); sync('d'); os.rmdir('d')", {"d": None}),
    ({"d/a": b"1"}, "os.unlink('d/a'); os.rmdir('d'); sync()", {}),
    ({"d/a": b"1"}, "os.rename('d', 'e'); put('e/b', b'2')", {"d": None, "d/a": b"1"}),
    ({"d/a": b"1"}, "os.rename('d', 'e'); sync()", {"e": None, "e/a": b"1"}),
    ({"d/a": b"1"}, "os.rename('d/a', 'a'); sync('d')", {"d": None, "a": b"1"}),
    ({"d/a": b"1"}, "os.rename('d/a', 'a')", {"d": None, "d/a": b"1"}),
    # A change is synced together with earlier changes of the same name, in any folder.
    ({"d/": None}, "put('d/a', b'1'); os.rename('d/a', 'a'); sync()", {"d": None, "a": b"1"}),
    # Data changed in place
    ({"a": b"123"}, "put('a', b'45', os.O_APPEND, False)", {"a": b"123"}),
    ({"a": b"123"}, "put('a', b'45', os.O_APPEND)", {"a": b"12345"}),
    ({"a": b"123"}, "put('a', b'45', 0, False, 1)", {"a": b"123"}),
    ({"a": b"123"}, "put('a', b'45', 0, True, 1); put('a', b'6', 0, False)", {"a": b"145"}),
    ({"a": b"123"}, "put('a', b'4', os.O_TRUNC, False)", {"a": b"123"}),
    ({"a": b"123"}, "cut('a', 1)", {"a": b"123"}),
    ({"a": b"123"}, "cut('a', 1); put('a', b'456', os.O_APPEND, False)", {"a": b"123"}),
    ({"a": b"123"}, "cut('a', 9)", {"a": b"123"}),
    ({"a": BIG}, "put('a', b'x' * 9000, 0, False, 4000); cut('a', 5)", {"a": BIG}),
]


def test_cases():
    for before, script, expected in CASES:
        after = lose(before, script + END)
        assert after == expected, (script, after)


def test_counting():
    script = "put('a', b'1'); sync(); os.rename('a', 'b'); os.unlink('b'); os.mkdir('d'); os.rmdir('d')"
    # create, write, fsync, close; fsync of the folder; rename, unlink, mkdir, rmdir
    assert n_calls({}, script) == 9
    reports = [run({}, script, at)[1].split(": ")[1].split(",")[0] for at in range(1, 10)]
    expected = "create a,write a,fsync a,close a,fsync .,rename b,unlink b,mkdir d,rmdir d"
    assert reports == expected.split(","), reports
    status, text, after = run({}, script, 10)
    assert status == 0 and text == "calls 9\n" and after == {}
    assert run({}, script, POWER_LOSS_IGNORE="x:a:aa")[1] == "calls 5\n"
    # Other ranks, and files elsewhere, are not affected.
    status, text, after = run({}, "put('a', b'1')", 1, OMPI_COMM_WORLD_RANK="1")
    assert status == 0 and text == "" and after == {"a": b"1"}
    assert run({}, "put('../a', b'1'); put('/dev/null', b'1', sync=False)", 1)[:2] == (0, "")


def kind_of(data):
    """How much of an unsynced BIG survived; fails if a disk could not leave such data."""
    if data in (b"", BIG):
        return "all" if data else "nothing"
    if BIG.startswith(data):
        return "cut"
    assert len(data) == len(BIG)
    for page in range(0, len(data), 4096):
        part = data[page : page + 4096]
        assert part in (bytes(len(part)), BIG[page : page + 4096])
    return "pages"


def test_some_data():
    script = "put('a', BIG, sync=False); put('b', b'2'); sync()" + END
    at = n_calls({}, script)
    seen = set()
    for seed in range(40):
        after = lose({}, script, at, "some", seed)
        assert sorted(set(after) - {"end"}) == ["a", "b"] and after["b"] == b"2"
        seen.add(kind_of(after["a"]))
        assert after == lose({}, script, at, "some", seed) if seed < 3 else True
    assert seen == {"nothing", "all", "cut", "pages"}, seen


def test_some_names():
    script = "put('a', b'1'); put('b', b'2'); os.rename('c', 'd'); os.rename('d', 'e')" + END
    before = {"c": b"3"}
    at = n_calls(before, script)
    seen = set()
    for seed in range(60):
        after = lose(before, script, at, "some", seed)
        assert all(after[name] == {"a": b"1", "b": b"2"}.get(name, b"3") for name in after)
        names = "".join(sorted(after))
        assert sum(name in names for name in "cde") == 1, names  # a rename is all or nothing
        seen.add(names)
    # Each of a and b without the other, and every step of the chain.
    assert len(seen) >= 9 and all(any(name in names for names in seen) for name in "cde"), seen


PROTOCOL = {
    "right": "put('t', BIG); os.rename('t', 'f'); sync()",
    "no fsync": "put('t', BIG, sync=False); os.rename('t', 'f'); sync()",
    "in place": "put('f', BIG); sync()",
    "unlinked first": "put('t', BIG); os.unlink('f'); os.rename('t', 'f'); sync()",
}


def n_damaged(script):
    """Counts losses that leave neither the old nor the new f: every call of a save, 3 seeds."""
    before = {"f": b"old"}
    damaged = n = 0
    for at in range(1, n_calls(before, script) + 1):
        for mode, seed in (("all", 1), ("some", 1), ("some", 2), ("some", 3)):
            after = lose(before, script, at, mode, seed)
            damaged += after.get("f") not in (b"old", BIG)
            n += 1
    return damaged, n


def test_protocols():
    for name, script in PROTOCOL.items():
        damaged, n = n_damaged(script + END)
        print(f"{name}: {damaged} of {n} losses leave a damaged file")
        assert (damaged == 0) == (name == "right"), name


def test_saved_is_kept():
    """Once the last sync has returned, the new content survives."""
    script = PROTOCOL["right"] + END
    for seed in range(10):
        assert lose({"f": b"old"}, script, mode="some", seed=seed)["f"] == BIG


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print(name, "ok", flush=True)
