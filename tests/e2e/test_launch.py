"""dtrain launch: the launcher's command line, exit codes, signals, restarts, and that nothing is left behind.

    python3 test_launch.py BUILD/dtrain"""

import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import DTRAIN, content, load, rig, run, train, write, write_config  # noqa: E402

SETS = ["--set", "train.max_steps=1000000", "--set", "output.log_every=1000000"]


def start(folder, *options, sets=SETS, fault="", ignored=None, env=()):
    words = [DTRAIN, "launch", "--ranks", "2", *options, "--", "--config", "config.json", "--out", folder, *sets]
    env = {**os.environ, **rig.ENVIRONMENT, "DTRAIN_FAULT": fault, **dict(env)}
    with open(f"{folder}.log", "w", encoding="utf-8") as log:
        before = signal.signal(ignored, signal.SIG_IGN) if ignored else None  # the child has it too
        process = subprocess.Popen(words, stdout=log, stderr=log, env=env)
    if ignored:
        signal.signal(ignored, before)
    return process


def said(folder):
    return content(f"{folder}.log").decode()


def left(folder):
    """Processes of this test with this run folder in their command line, but for the supervisor: ranks and launcher."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = content(path).decode().split("\0")
            is_ours = os.path.samefile(f"{os.path.dirname(path)}/cwd", ".")
        except OSError:
            continue
        if is_ours and folder in words and "launch" not in words:
            found[int(path.split("/")[2])] = os.path.basename(words[0])
    return found


def wait(what, seconds=300):
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, what
        time.sleep(0.02)
    return found


def wait_for_checkpoint(folder):
    """A newer one than now."""
    before = rig.newest_step(folder)
    wait(lambda: rig.newest_step(folder) > before)


def kill_rank(folder):
    pids = [pid for pid, name in left(folder).items() if name == "dtrain"]
    os.kill(max(pids), signal.SIGKILL)


def ends(process, code, folder):
    assert process.wait(300) == code, (code, process.returncode, said(folder))
    wait(lambda: not left(folder))


def make_launcher(name, cases):
    """A script in place of mpirun; `cases` of a shell's case for all its words."""
    write(name, f'#!/bin/sh\ncase "$*" in {cases} esac\nexec mpirun "$@"\n')
    os.chmod(name, 0o755)
    return {"DTRAIN_MPIRUN": os.path.abspath(name)}


is_open_mpi = "Open MPI" in rig.LAUNCHER or "OpenRTE" in rig.LAUNCHER
write_config({**rig.SETTINGS, "checkpoint": {"every_epochs": 0, "every_steps": 20}})

# A host that is frozen before the start: mpirun waits for it, and so does whoever asks. Looked at when all else is done.
write("agent", '#!/bin/sh\n[ "$1" = frozen ] && exec sleep 1000\nshift\nexec sh -c "$*"\n')
os.chmod("agent", 0o755)
late = make_launcher("late", '*"--version"*) ;; *frozen*) exec sleep 1000 ;;')
late["OMPI_MCA_plm_rsh_agent"] = os.path.abspath("agent")
hosts = ["--hosts", "localhost:1,frozen:1", "--max-restarts", "1"]
frozen = start("late-run", *hosts, sets=["--set", "watchdog.init_timeout_s=1", "--set", "train.max_steps=60"], env=late)

plain = train("plain", "train.max_steps=60", ranks=2)
short = run("--ranks", "2", "--config", "config.json", "--out", "short", "--set", "train.max_steps=60")
line = r"^dtrain: launch: .* -np? 2 .*dtrain'? --config config.json --out short"
assert re.search(line, short.said, re.M), short.said
assert content("plain/model.safetensors") == content("short/model.safetensors"), "other bits than with mpirun"
assert not os.path.exists("short/restarts.jsonl")
# Killed behind its last checkpoint, and asked for no more steps than that has: there is nothing left to do.
again = ["--ranks", "2", "--config", "config.json", "--out", "short", "--set"]
assert run(*again, "train.max_steps=80", code=None, env={"DTRAIN_FAULT": "kill@70:1"}).returncode in rig.after(9)
assert "already finished after 60 steps" in run(*again, "train.max_steps=60").said
print("as mpirun: passed", flush=True)

# What cannot work is refused before ranks are started.
for code, text, words in (
    (64, "--confg: dtrain train has no such option", ["--", "--confg", "config.json"]),
    (66, "nowhere.json: no such file", ["--", "--config", "nowhere.json"]),
    (78, "train.epochs", ["--", "--config", "config.json", "--set", "train.epochs=many"]),
    (64, "dtrain report does not run on several ranks", ["--", "report", "short"]),
    (64, '"a:x" is not a host', ["--hosts", "a:x", "--", "--config", "config.json"]),
    (64, "give one of them", ["--hosts", "a", "--hostfile", "b", "--", "--config", "config.json"]),
    (66, "hosts.txt", ["--hostfile", "hosts.txt", "--", "--config", "config.json"]),
    (64, "needs ARGUMENT", []),
    (64, "dtrain help does not run", ["--", "help", "ranks"]),
    (64, "can be read only once", ["--max-restarts", "2", "--", "--config", "-"]),
):
    refused = run("launch", "--ranks", "2", *words, code=code)
    assert text in refused.said and "launch: " not in refused.said, (text, refused.said)
missing = run("--ranks", "2", "--config", "config.json", code=66, env={"DTRAIN_MPIRUN": "no-mpirun"})
assert "there is no no-mpirun in PATH" in missing.said, missing.said
write("sleepy", "#!/bin/sh\nsleep 1000.25\n")
os.chmod("sleepy", 0o755)
os.environ["DTRAIN_MPIRUN"], before = "./sleepy", os.environ.get("DTRAIN_MPIRUN")
sleepy = start("sleepy-run")
del os.environ["DTRAIN_MPIRUN"]
os.environ.update({"DTRAIN_MPIRUN": before} if before else {})
closed = ["sh", "-c", 'exec "$@" <&- >&-', "sh", DTRAIN, "--ranks", "2", "--config", "config.json", "--out", "closed"]
subprocess.run([*closed, "--set", "train.max_steps=2"], env={**os.environ, **rig.ENVIRONMENT}, check=True)
inside = run("launch", "--", "--config", "config.json", code=64, env={"PMI_RANK": "0", "PMI_SIZE": "2"})
assert "call it without mpirun" in inside.said, inside.said
failed = run("--ranks", "2", "--config", "config.json", "--set", "train.global_batch_size=1", code=78)
assert "restart" not in failed.said, failed.said
print("refused before the start: passed", flush=True)

# Ctrl-C and SIGTERM save.
for number in (signal.SIGINT, signal.SIGTERM):
    process = start("stopped", "--max-restarts", "3")
    wait_for_checkpoint("stopped")
    process.send_signal(number)
    ends(process, 75, "stopped")
    assert load("stopped/RUN")["exit_code"] == 75 and "restart 1" not in said("stopped"), said("stopped")
# One that comes twice counts once, and one that is ignored (nohup) not at all.
process = start("stopped", ignored=signal.SIGHUP)
wait(lambda: "resum" in said("stopped"))
process.send_signal(signal.SIGHUP)
wait_for_checkpoint("stopped")
process.send_signal(signal.SIGTERM)
process.send_signal(signal.SIGINT)
ends(process, 75, "stopped")
assert "Hangup" not in said("stopped"), said("stopped")
listed = run("runs", "stopped").said
assert re.search(r"^stopped +stopped .*\n +a request to dtrain launch \(SIGUSR1\)$", listed, re.M), listed
# A job that hangs does not save; the second request ends it.
process = start("hangs", fault="stop@30:1")
wait(lambda: [pid for pid in left("hangs") if rig.process_state(pid)[0] == "T"])
process.send_signal(signal.SIGTERM)
time.sleep(1.5)
process.send_signal(signal.SIGTERM)
assert process.wait(20) == 75, said("hangs")
wait(lambda: not left("hangs"))
words = ["bench", "--config", "config.json", "--set", "bench.rounds=100000", "--set", "output.dir=b"]
bench = subprocess.Popen(
    [DTRAIN, "--ranks", "2", *words],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
    env={**os.environ, **rig.ENVIRONMENT},
)
wait(lambda: [name for name in left("output.dir=b").values() if name == "dtrain"])
bench.send_signal(signal.SIGINT)
assert bench.wait(100) != 0
wait(lambda: not left("output.dir=b"))
# A launcher that ends with 0 has trained nothing.
if is_open_mpi:
    trap = "*--version*) ;; *) trap 'exit 0' USR1; touch \"$DTRAIN_JOB\"; while :; do sleep 0.1; done ;;"
    empty = {**make_launcher("empty", trap), "DTRAIN_JOB": os.path.abspath("waits")}
    process = start("nothing", env=empty)
    wait(lambda: os.path.exists("waits"))
    process.send_signal(signal.SIGTERM)
    ends(process, 75, "nothing")
    assert "ended on request (Terminated) before the job had finished; run again" in said("nothing"), said("nothing")
    run("--ranks", "2", "--config", "config.json", code=205, env=make_launcher("zero", "*--version*) ;; *) exit 0 ;;"))
print("signals: passed", flush=True)

# A rank is lost: the job goes on, with the bits of a run without a fault.
process = start("killed", "--max-restarts", "3", sets=["--set", "train.max_steps=3000"])
for n in (1, 2):
    wait_for_checkpoint("killed")
    kill_rank("killed")
    wait(lambda: f"restart {n} of" in said("killed"))
ends(process, 0, "killed")
train("whole", "train.max_steps=3000", ranks=2)
assert rig.state_of("killed") == rig.state_of("whole"), "other bits after restarts"
lines = [json.loads(line) for line in content("killed/restarts.jsonl").splitlines()]
assert [line["exit_code"] for line in lines][-1] == 0 and lines[0]["exit_code"] in rig.after(9), lines
assert [line["then"] for line in lines] == ["restart"] * (len(lines) - 1) + ["ended"], lines
assert "restarts of dtrain launch" in run("compare", "killed", "whole").said
print("restarts: passed", flush=True)

# Without progress it gives up: every start dies in the same step.
def dies(folder, step, n, *options, codes=tuple(rig.after(9)), **env):
    words = ["--ranks", "2", "--max-restarts", n, "--", "--config", "config.json", "--out", folder, *options]
    died = run("launch", *words, code=None, env={"DTRAIN_FAULT": f"kill@{step}:1", **env})
    assert died.returncode in codes, (died.returncode, died.said)
    return died.said


said_at_30 = dies("stuck", 30, 9)
assert "gave up: no newer checkpoint than at the last restart" in said_at_30, said_at_30
lines = [json.loads(line) for line in content("stuck/restarts.jsonl").splitlines()]
assert [line["checkpoint_step"] for line in lines] == [20, 20], lines
assert "gave up" in dies("limit", 5, 1)
# The doctor finds that a GPU is lost.
if is_open_mpi:
    sick = make_launcher("sick", '*" doctor "*) echo "GPU 3 is lost"; exit 69 ;;')
    died = dies("sick-run", 30, 9, codes=[69], **sick)
    assert "GPU 3 is lost" in died and "ended with 69; gave up: by dtrain doctor" in died, died
    # One that is ended knows nothing, so the next start has to show it.
    slow = make_launcher("slow", '*" doctor "*) echo "GPU 3 is slow"; kill $$ ;;')
    died = dies("slow-run", 30, 9, **slow)
    assert "doctor did not finish (code 143), so it is ignored" in died and "is slow" not in died and "restart 1 of 9" in died, died
print("gives up: passed", flush=True)

# The time of a job is that of all its starts.
times = re.findall(r"--max-time ([0-9.]+)s$", dies("timed", 30, 9, "--max-time", "10m"), re.M)
assert len(times) == 2 and 500 < float(times[1]) < float(times[0]) <= 600, times
died = dies("over", "init", 9, "--max-time", "0.1s", codes=[75])
assert "ended on request (--max-time) before the job had finished; run again" in died and "restart" not in died, died
print("--max-time: passed", flush=True)

# The supervisor dies: so does the job.
process = start("orphans")
wait_for_checkpoint("orphans")
process.kill()
process.wait()
wait(lambda: not left("orphans"))
# A launcher that it does not know.
write("unknown", "#!/bin/sh\necho some launcher 1.0\n")
os.chmod("unknown", 0o755)
unknown = run("--ranks", "2", "--config", "config.json", code=66, env={"DTRAIN_MPIRUN": os.path.abspath("unknown")})
assert "does not know (some launcher 1.0)" in unknown.said, unknown.said
print("nothing is left: passed", flush=True)

if is_open_mpi:
    ends(frozen, 0, "late-run")
    for text in ("within 31 s; no answer from frozen; the job is ended", "from frozen: the job continues without"):
        assert text in said("late-run"), said("late-run")
frozen.kill()
print("a host that is frozen before the start: passed", flush=True)

ends(sleepy, 80, "1000.25")
assert re.search(r"\./sleepy --version has not .* 5 s and was ended(.|\n)* 20 s and was ended; find out", said("sleepy-run"))
print("a launcher that hangs: passed", flush=True)
