"""tests/perf/gpu_check.py on the emulated GPU, with a tiny network and stand-ins for PyTorch, ctest,
the memory checker and nvidia-smi: all parts run, a failing one does not stop the others, a part that
does not fit is skipped, and a part that hangs is killed with all its children.

    python3 test_gpu_check.py BUILD/dtrain-emulated

Label: numeric."""

import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "..", "perf", "gpu_check.py")
SETTINGS = (
    "model.name=tiny model.num_classes=10 model.image_size=16 data.synthetic_train=32 "
    "data.workers=1 data.augment=none train.global_batch_size=8 train.max_steps=4 device.threads=1 "
    "bench.warmup_steps=2 bench.steps_per_round=2 output.log_every=1 checkpoint.every_epochs=0"
).split()
PARTS = "doctor ceilings compare profile tests curves recording parity memcheck ranks sweep".split()

# A mode that fails, and noise on stdout.
TORCH = """
import json, os, sys, time
print("a warning")
print(json.dumps({"torch": "0.0"}), flush=True)
for line in sys.stdin:
    what, *words = line.split()
    open(os.environ["STUB_LOG"], "a").write(line)
    if words[:1] == [os.environ.get("STUB_HANGS")]:
        time.sleep(1000)
    answer = {"copy": {"bytes_per_s": 1e9}, "matmul": {"flops_per_s": 1e10}}.get(what)
    if what == "images" and words[0] == "compile":
        answer = {"error": "RuntimeError: out of memory"}
    print(json.dumps(answer or {"images_per_s": 100.0 + len(words[0])}), flush=True)
"""
NVIDIA_SMI = "echo 'Stub GPU, 1.2.3, 100 MiB, 1980 MHz, 9.0'"
CTEST = """
for last in "$@"; do :; done
echo '<testsuite tests="3" failures="0" skipped="1"/>' > "$last"
"""
SANITIZER = """
for last in "$@"; do :; done
case $last in *gpu_cuda_norm) echo "Invalid __global__ write"; exit 9 ;; esac
"""
# Its child has a process group of its own, like the ranks of mpirun, and asks to be killed.
HANG = """
set -m
bash -c 'trap "" TERM; echo $$ > "$STUB_LOG.pid"; while :; do sleep 0.1; done' &
wait
"""


def write(path, text, mode=0o644):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, mode)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Rig:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.bin = os.path.join(folder, "bin")
        os.makedirs(self.bin)
        write(os.path.join(folder, "torch.py"), "raise ImportError('a stand-in')\n")
        write(os.path.join(folder, "server.py"), TORCH)
        self.stub("nvidia-smi", NVIDIA_SMI)
        self.stub("ctest", CTEST)
        self.stub("compute-sanitizer", SANITIZER)
        self.env = dict(
            os.environ,
            PATH=self.bin + ":" + os.environ["PATH"],
            PYTHONPATH=folder,
            DTRAIN_EMULATED_GPUS="1",
            STUB_LOG=os.path.join(folder, "requests"),
        )

    def stub(self, name, text):
        write(os.path.join(self.bin, name), "#!/bin/bash\n" + text, 0o755)

    def run(self, out, *options, program=None):
        """Exit code, output, gpu.json, seconds."""
        out = os.path.join(self.folder, out)
        command = [sys.executable, SCRIPT, self.folder, "--out", out, "--batches", "8", "--measure", "0.2"]
        command += ["--program", program or self.program]
        command += ["--torch", os.path.join(self.folder, "server.py"), *options]
        for setting in SETTINGS:
            command += ["--set", setting]
        begin = time.monotonic()
        ended = subprocess.run(
            command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        print(f"---- {' '.join(options)}: exit code {ended.returncode}\n{ended.stdout}", flush=True)
        with open(os.path.join(out, "gpu.json"), encoding="utf-8") as f:
            return ended.returncode, ended.stdout, json.load(f), time.monotonic() - begin


def check_compare(rig, data):
    compare = data["compare"]
    assert len(compare["dtrain"]) == 3 and compare["best_torch_mode"] == "eager", compare
    median = sorted(run["images_per_s"] for run in compare["dtrain"])[1]
    assert abs(compare["ratio"] / (median / 105) - 1) < 1e-9, compare
    with open(rig.env["STUB_LOG"], encoding="utf-8") as f:
        requests = f.read().split("\n")
    prepared = [f"images {mode} 8 0.1" for mode in ("eager", "graph", "compile")]
    turns = [f"images {mode} 8 0.2" for mode in ("eager", "graph", "compile")] * 3
    assert requests == prepared + ["copy", "matmul fp16", "matmul tf32"] + turns + [""], requests


def check_profile(data):
    nodes, roofline = data["profile"]["nodes"], data["roofline"]
    floor_ms = sum(1e3 * max(n["mb"] * 1e6 / 1e9, n["gflop"] * 1e9 / 1e10) for n in nodes)
    assert abs(roofline["floor_ms"] / floor_ms - 1) < 1e-9, roofline
    assert abs(roofline["ratio"] - floor_ms / sum(n["ms"] for n in nodes)) < 1e-9, roofline
    assert any(n["op"] == "conv" and n["of_product"] > 0 for n in nodes), nodes


def everything(rig):
    code, text, data, _ = rig.run("all", "--seconds", "500")
    assert code == 1, code  # the memory checker found something
    assert set(PARTS) <= set(data["seconds"]), data["seconds"]
    assert data["machine"] == "Stub GPU, 1.2.3, 100 MiB, 1980 MHz", data["machine"]
    assert data["architecture"] == "90" and data["torch"] == {"torch": "0.0"}, data
    check_compare(rig, data)
    check_profile(data)
    assert data["tests"] == {"total": 3, "failed": 0, "skipped": 1}, data["tests"]
    assert 0 < data["curves"]["fp16"]["worst"] < 0.03, data["curves"]
    assert data["recording"]["same"] and len(data["recording"]["true"]["losses"]) == 4
    assert data["ranks"]["worst"] < 1e-3 and len(data["ranks"]["2"]["losses"]) == 4
    assert len(data["sweep"]) == 8, data["sweep"]
    for row in data["sweep"]:
        assert row["result"]["recorded"] == row["record"], row
        assert row["result"]["precision"] == row["precision"], row
    assert [p.partition(":")[0] for p in data["problems"]] == ["memcheck"], data["problems"]
    assert data["commands"]["memcheck-norm"]["exit_code"] == 9, data["commands"]
    assert data["commands"]["memcheck-ops_tf32"]["ok"], "one failure stops the memory checker"
    assert data["left_out"] == ["torch-parity, skipped: a stand-in"], data["left_out"]
    for words in ("roofline of these ops", "Invalid __global__ write", "not recorded, images/s"):
        assert words in text, words


def in_time(rig):
    rig.stub("ctest", HANG)
    parts = "ceilings,tests,curves,ranks,sweep"
    code, text, data, seconds = rig.run("short", "--seconds", "24", "--parts", parts)
    assert code == 1 and seconds < 40, (code, seconds)
    assert any("ctest: ended after" in problem for problem in data["problems"]), data["problems"]
    assert "worst" in data["curves"]["fp16"], "what hangs stops the others"
    assert [text.partition(",")[0] for text in data["left_out"]] == ["ranks", "sweep"], data
    assert "left out: ranks" in text, text
    with open(rig.env["STUB_LOG"] + ".pid", encoding="utf-8") as f:
        pid = int(f.read())
    for _ in range(100):
        if not is_alive(pid):
            return
        time.sleep(0.1)
    raise AssertionError("what the hanging test started lives")


def torch_hangs(rig):
    """A PyTorch mode that is not ready in time is skipped, and the others are measured."""
    rig.env["STUB_HANGS"] = "compile"
    code, _, data, _ = rig.run("hangs", "--seconds", "70", "--parts", "compare")
    del rig.env["STUB_HANGS"]
    assert code == 0 and data["left_out"] == ["PyTorch's compile: not ready in time"], data
    assert [len(data["compare"]["torch"][m]) for m in ("eager", "graph", "compile")] == [3, 3, 0]


def broken(rig):
    """Every part fails and is reported; no GPU."""
    parts = "doctor,compare,profile,curves,recording,ranks,sweep"
    code, _, data, _ = rig.run("broken", "--parts", parts, program="/bin/false")
    assert code == 1 and set(data["seconds"]) == set(parts.split(",")), data
    assert len(data["compare"]["torch"]["eager"]) == 3, "PyTorch is measured all the same"
    failed = {problem.partition(":")[0] for problem in data["problems"]}
    assert failed == set(data["seconds"]), data["problems"]
    rig.stub("nvidia-smi", "exit 9")
    command = [sys.executable, SCRIPT, rig.folder, "--out", os.path.join(rig.folder, "none")]
    ended = subprocess.run(command, env=rig.env, capture_output=True, text=True)
    assert ended.returncode == 1 and "no NVIDIA GPU" in ended.stdout, ended


with tempfile.TemporaryDirectory() as top:
    the_rig = Rig(os.path.abspath(sys.argv[1]), top)
    for case in (everything, in_time, torch_hangs, broken):
        case(the_rig)
