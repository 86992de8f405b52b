"""tests/perf/gpu_check.py on the emulated GPU, with a tiny network and stand-ins for PyTorch, the
build, most tests, the memory checker and nvidia-smi: all parts run, a failing check does not stop
the others, one that hangs is killed with all its children and skipped, and the next part goes on.

    python3 test_gpu_check.py BUILD/dtrain-emulated"""

import json
import os
import shutil
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

# A mode that fails, and noise on stdout.
TORCH = """
import json, os, sys, time
print("a warning")
print(json.dumps({"torch": "0.0"}), flush=True)
for line in sys.stdin:
    what, *words = line.split()
    open(os.environ["STUB_LOG"], "a").write(line)
    if words[1:2] == [os.environ.get("STUB_HANGS")]:
        time.sleep(1000)
    answer = {"copy": {"bytes_per_s": 1e9}, "matmul": {"flops_per_s": 1e10}}.get(what)
    if what == "images" and words[:3] == ["resnet50", "compile", "fp16"]:
        answer = {"error": "RuntimeError: out of memory"}
    print(json.dumps(answer or {"images_per_s": 100.0 + len(words[1])}), flush=True)
"""
NVIDIA_SMI = "echo 'Stub GPU, 1.2.3, 100 MiB, 1980 MHz, 9.0'"
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
    os.makedirs(os.path.dirname(path), exist_ok=True)
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
        self.folder = folder
        names = subprocess.run([sys.executable, SCRIPT, "programs"], stdout=subprocess.PIPE, text=True)
        self.programs = names.stdout.split()
        for name in self.programs:
            self.program(name, "exit 0")
        os.remove(os.path.join(folder, "dtrain"))
        os.symlink(program, os.path.join(folder, "dtrain"))
        self.program("tests/emulator/gpu_cuda_pool", "echo 'skipped: a stand-in'; exit 77")
        write(os.path.join(folder, "torch.py"), "raise ImportError('a stand-in')\n")
        write(os.path.join(folder, "server.py"), TORCH)
        self.program("bin/nvidia-smi", NVIDIA_SMI)
        self.program("bin/compute-sanitizer", SANITIZER)
        self.env = dict(
            os.environ,
            PATH=os.path.join(folder, "bin") + ":" + os.environ["PATH"],
            PYTHONPATH=folder,
            DTRAIN_EMULATED_GPUS="1",
            STUB_LOG=os.path.join(folder, "requests"),
        )

    def program(self, name, text):
        write(os.path.join(self.folder, name), "#!/bin/bash\n" + text, 0o755)

    def run(self, part, out, *options):
        """Exit code, output, gpu.json."""
        out = os.path.join(self.folder, out)
        command = [sys.executable, SCRIPT, str(part), self.folder, "--out", out, "--batch", "8"]
        command += ["--programs", self.folder, "--measure", "0.2", "--build-seconds", "0"]
        command += ["--torch", os.path.join(self.folder, "server.py"), *options]
        for setting in SETTINGS:
            command += ["--set", setting]
        ended = subprocess.run(
            command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        print(f"---- {part} {' '.join(options)}: exit code {ended.returncode}\n{ended.stdout}", flush=True)
        with open(os.path.join(out, "gpu.json"), encoding="utf-8") as f:
            return ended.returncode, ended.stdout, json.load(f)


def other_than_passed(data):
    """Name and verdict of the checks that have not passed."""
    verdicts = {name: check["verdict"] for name, check in data["checks"].items()}
    return {name: verdict for name, verdict in verdicts.items() if verdict != "passed"}


def check_compare(rig, data):
    compare = data["compare"]
    assert len(compare["dtrain"]) == 3 and compare["best_torch_mode"] == "eager", compare
    median = sorted(run["images_per_s"] for run in compare["dtrain"])[1]
    assert abs(compare["ratio"] / (median / 105) - 1) < 1e-9, compare
    with open(rig.env["STUB_LOG"], encoding="utf-8") as f:
        requests = f.read().split("\n")
    prepared = [f"images resnet50 {mode} fp16 8 0.1" for mode in ("eager", "graph", "compile")]
    turns = [f"images resnet50 {mode} fp16 8 0.2" for mode in ("eager", "graph")] * 3
    assert requests == prepared + ["copy", "matmul fp16", "matmul tf32"] + turns + [""], requests


def check_profile(data):
    nodes, roofline = data["profile"]["nodes"], data["roofline"]
    floor_ms = sum(1e3 * max(n["mb"] * 1e6 / 1e9, n["gflop"] * 1e9 / 1e10) for n in nodes)
    assert abs(roofline["floor_ms"] / floor_ms - 1) < 1e-9, roofline
    assert abs(roofline["ratio"] - floor_ms / sum(n["ms"] for n in nodes)) < 1e-9, roofline


def check_fusions(data):
    fusions = data["fusions"]
    assert [len(fusions["images_per_s"][way]) for way in ("off", "auto", "on")] == [2, 2, 2], fusions["images_per_s"]
    assert fusions["profile off"]["nodes"] and fusions["profile on"]["nodes"], fusions


def part_1(rig):
    code, text, data = rig.run(1, "out1")
    assert code == 0, code
    assert data["parts"][0]["machine"] == "Stub GPU, 1.2.3, 100 MiB, 1980 MHz", data["parts"]
    assert data["architecture"] == "90" and data["torch"] == {"torch": "0.0"}, data
    check_compare(rig, data)
    check_profile(data)
    check_fusions(data)
    assert other_than_passed(data) == {
        "build": "skipped",  # no time for it
        "gpu_cuda_pool": "skipped",
        "PyTorch, resnet50 compile fp16 8": "skipped",
        "probes": "skipped",
    }, data["checks"]
    assert data["checks"]["gpu_cuda_pool"]["why"] == "skipped: a stand-in", data["checks"]
    assert "recording" not in data["checks"] and "roofline of these ops" in text, data["checks"]


def part_2(rig):
    """Goes on where part 1 has stopped."""
    shutil.copytree(os.path.join(rig.folder, "out1"), os.path.join(rig.folder, "last"))
    rig.program("tests/emulator/gpu_cuda_pool", "exit 0")
    code, text, data = rig.run(2, "out2")
    assert code == 1, code  # the memory checker found something
    assert other_than_passed(data) == {
        "build": "skipped",
        "PyTorch, resnet50 compile fp16 8": "skipped",
        "probes": "skipped",
        "parity": "skipped",
        "memcheck gpu_cuda_norm": "failed",
    }, data["checks"]
    assert data["checks"]["gpu_cuda_pool"]["verdict"] == "passed", data["checks"]
    assert "==== doctor" not in text and "compare" not in text, "what is done is done again"
    assert "Invalid __global__ write" in data["checks"]["memcheck gpu_cuda_norm"]["why"], data
    assert data["recording"]["true"] == data["recording"]["false"], data["recording"]
    assert len(data["ranks"]["2"]) == 4 and len(data["curves"]["fp16"]) == 4, data
    assert os.path.exists(os.path.join(rig.folder, "out2", "cache", "cudnn-plans.json"))


def part_3(rig):
    code, _, data = rig.run(3, "out2")
    assert code == 1, code  # of part 2
    for precision, batch in (("fp16", 8), ("fp16", 12), ("fp16", 16), ("bf16", 8), ("tf32", 8)):
        row = data[f"sweep {precision} {batch}"]
        assert row["dtrain"]["recorded"] and row["dtrain"]["precision"] == precision, row
        assert ("torch" in row) == (precision != "fp16"), row
    assert data["sweep bf16 8"]["torch"]["images_per_s"] == 107, data


def part_4(rig):
    code, text, data = rig.run(4, "out2", "--checks", "network (vgg16|convnext)")
    assert code == 1, code  # of part 2
    rows = [data[f"network {name}"] for name in ("convnext_tiny", "vgg16")]
    assert [row["eager"]["images_per_s"] for row in rows] == [105, 105], rows
    assert rows[0]["compile"]["images_per_s"] == 107 and rows[0]["profile"]["nodes"], rows
    assert "convnext_tiny, fp16, batch 4: " in text, text


def in_time(rig):
    rig.program("tests/emulator/gpu_cuda_norm", HANG)
    options = "--seconds", "45", "--checks", "gpu_cuda_norm"  # of which 15 are for other checks
    code, _, data = rig.run(1, "short", *options)
    assert code == 0, code
    assert "not done after" in data["checks"]["gpu_cuda_norm"]["why"], data["checks"]
    rig.program("tests/emulator/gpu_cuda_norm", "exit 0")
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
    code, _, data = rig.run(1, "hangs", "--seconds", "90", "--checks", "compare")
    del rig.env["STUB_HANGS"]
    assert code == 0 and data["checks"]["PyTorch, resnet50 compile fp16 8"]["verdict"] == "skipped", data
    assert [len(data["compare"]["torch"][m]) for m in ("eager", "graph")] == [3, 3], data


def broken(rig):
    """Every check fails and is reported; no GPU."""
    os.remove(os.path.join(rig.folder, "dtrain"))
    rig.program("dtrain", "exit 77")  # no permission
    shutil.rmtree(os.path.join(rig.folder, "last"))
    code, _, data = rig.run(3, "broken")
    assert code == 1, code
    for name in ("doctor", "choose", "compare", "profile", "recording", "curves", "ranks", "sweep tf32 8"):
        assert data["checks"][name]["verdict"] == "failed", (name, data["checks"])
    rig.program("bin/nvidia-smi", "exit 9")
    command = [sys.executable, SCRIPT, "1", rig.folder, "--out", os.path.join(rig.folder, "none")]
    ended = subprocess.run(command, env=rig.env, stdout=subprocess.PIPE, text=True)
    assert ended.returncode == 1 and "no NVIDIA GPU" in ended.stdout, ended


with tempfile.TemporaryDirectory() as top:
    the_rig = Rig(os.path.abspath(sys.argv[1]), top)
    for case in (part_1, part_2, part_3, part_4, in_time, torch_hangs, broken):
        case(the_rig)
