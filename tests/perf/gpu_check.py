"""Builds dtrain, tests it and measures it beside PyTorch on one GPU, in four parts that each end
in time. scripts/gpu_check.sh calls it.

    python3 tests/perf/gpu_check.py PART FOLDER --out DIR --seconds N

FOLDER may have what an earlier part has written (last/), programs for the case that the build fails
(build.tar.xz), and C programs that ask cuDNN (*.c). DIR/gpu.json gets the figures and a verdict for
every check: passed, failed, or skipped, with the reason. A check that has no time left, or does not end in
time, is skipped. A part does what the parts before it have skipped, then its own checks. Exit
code 1: a check has failed. The options are for trying it without a GPU."""

import argparse
import dataclasses
import functools
import glob
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import typing
import zipfile
from concurrent import futures

import gpu_tools
import results_file
from gpu_tools import Failed, LeftOut

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, "build")
MODES = ("eager", "graph", "compile")
ROUNDS = 3
# Of the sweep: precision, multiple of the batch size. PyTorch is measured at the batch size itself.
CELLS = (("bf16", 1), ("tf32", 1), ("fp16", 1), ("fp16", 1.5), ("fp16", 2))
# More networks in fp16: the share of the batch size, PyTorch's modes, and keys of the section model.
# Compiling DenseNet takes minutes, and compiled detectors recompile from step to step.
NETWORKS = {
    "convnext_tiny": (1 / 2, ("eager", "compile"), {}),
    "efficientnet_b0": (1 / 2, ("eager", "compile"), {}),
    "resnext50_32x4d": (1 / 2, ("eager", "compile"), {}),
    "mobilenet_v2": (1 / 2, ("eager", "compile"), {}),
    "retinanet_resnet50_fpn": (
        1 / 16,
        ("eager",),
        {"num_classes": 80, "canvases": '["1088x800"]'},
    ),
    "densenet121": (1 / 2, ("eager",), {}),
    "vgg16": (1 / 2, ("eager",), {}),
}

RESNET20 = {
    "model.name": "resnet20",
    "model.image_size": 32,
    "model.num_classes": 10,
    "data.synthetic_train": 38400,  # 300 steps
    "train.global_batch_size": 128,
    "train.label_smoothing": 0.1,
    "output.log_every_s": 0,
    "schedule.lr": 0.05,
    "schedule.lr_scaling": "none",
}
# No batch norm: two halves of a batch then have the gradients of the whole.
VGG11 = {
    "model.name": "vgg11",
    "model.image_size": 64,
    "model.num_classes": 10,
    "model.dropout": 0,
    "device.allow_shared_gpu": "true",
    "comm.bucket_cap_mb": 512,
    "train.global_batch_size": 64,
    "train.max_steps": 20,
    "train.precision": "fp32",
    "train.deterministic": "true",
    "schedule.lr": 0.01,
    "output.log_every": 1,
}


def say(text=""):
    print(text + "\n", end="", flush=True)  # one write: other threads print as well


def names_of(pattern, prefix):
    files = sorted(glob.glob(os.path.join(ROOT, "tests", pattern)))
    return [prefix + os.path.basename(path)[len("test_") : -len(".c")] for path in files]


GPU_TESTS = [f"emulator/{name}" for name in names_of("gpu/test_*.c", "gpu_")]
NCCL_TESTS = [n for n in names_of("dist/test_*nccl*.c", "dist_") if not n.endswith("calls")]
# Programs, below the build folder.
PROGRAMS = ["dtrain", *(f"tests/{name}" for name in ["steps_tool", *GPU_TESTS, *NCCL_TESTS])]


class Session:
    """What the checks work with, and gpu.json."""

    def __init__(self, args, logs):
        self.args, self.logs, self.out = args, logs, os.path.abspath(args.out)
        self.clock = gpu_tools.Clock(args.seconds)
        config = os.path.join(ROOT, "configs", "resnet50_synthetic.json")
        # Algorithms that are timed while other tests run are none for the measurements.
        caches = (os.path.join(self.out, name) for name in ("cache", "cache-small"))
        self.bench, self.small = (
            gpu_tools.Dtrain(self.program("dtrain"), config, self.clock, cache, logs, args.set)
            for cache in caches
        )
        self.torch, self.modes = None, []  # not started yet
        self.lock = threading.Lock()
        self.data = {"checks": {}, "parts": []}
        last = os.path.join(args.folder, "last")
        if os.path.isdir(last) and not os.path.exists(os.path.join(self.out, "gpu.json")):
            ignored = shutil.ignore_patterns("logs-*", f"report-{args.part}.txt")
            shutil.copytree(last, self.out, ignore=ignored, dirs_exist_ok=True)
        if os.path.exists(os.path.join(self.out, "gpu.json")):
            with open(os.path.join(self.out, "gpu.json"), encoding="utf-8") as f:
                self.data = json.load(f)

    def program(self, name):
        return os.path.join(os.path.abspath(self.args.programs), name)

    def log(self, name):
        return os.path.join(self.logs, os.path.basename(name).replace(" ", "-") + ".log")

    def run(self, name, command, seconds, **options):
        return gpu_tools.run(command, self.clock.limit(seconds), self.log(name), **options)

    def put(self, key, value):
        """A figure. Lists in it may grow later, all else stays."""
        with self.lock:
            self.data[key] = value

    def save(self):
        """All that has been found until now."""
        data, logs = (os.path.join(self.out, n) for n in ("gpu.json", f"logs-{self.args.part}.zip"))
        with self.lock:
            results_file.save(data + ".part", self.data)
            with zipfile.ZipFile(logs + ".part", "w", zipfile.ZIP_DEFLATED) as f:
                for path in glob.glob(os.path.join(self.logs, "*")):
                    with open(path, "rb") as log:
                        f.writestr(os.path.basename(path), log.read()[-1 << 20 :])
            os.replace(data + ".part", data)
            os.replace(logs + ".part", logs)

    def is_done(self, name):
        return self.data["checks"].get(name, {}).get("verdict") in ("passed", "failed")

    def record(self, name, verdict, why="", seconds=0.0):
        with self.lock:
            found = {"verdict": verdict, "why": why, "seconds": round(seconds, 1)}
            self.data["checks"][name] = found
        why = why and ": " + why.rstrip().replace("\n", "\n" + 11 * " ")
        say(f"{verdict:8} | {name} ({seconds:.0f} s){why}")

    def check(self, name, work):
        """Whatever happens in a check, the next one follows."""
        begin, verdict, why = self.clock.now(), "passed", ""
        try:
            work(self)
        except LeftOut as reason:
            verdict, why = "skipped", str(reason)
        except Failed as reason:
            verdict, why = "failed", str(reason)
        except Exception:  # as said above
            verdict, why = "failed", traceback.format_exc(limit=-3)
        self.record(name, verdict, why, self.clock.now() - begin)
        self.save()

    def look(self):
        """Machine and source; an error where there is no GPU."""
        fields = "name,driver_version,memory.total,clocks.max.sm,compute_cap"
        smi = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
        line = subprocess.run(smi, capture_output=True, text=True, timeout=60, check=True).stdout
        machine, _, capability = line.splitlines()[0].rpartition(", ")
        commit = ""
        if shutil.which("git"):
            git = ["git", "-C", ROOT, "log", "-1", "--format=%h %cs"]
            commit = subprocess.run(git, capture_output=True, text=True, timeout=20).stdout.strip()
        self.data["architecture"] = capability.replace(".", "")
        about = {"part": self.args.part, "date": time.strftime("%Y-%m-%d %H:%M")}
        about.update({"machine": machine, "commit": commit or "not a git checkout"})
        self.data["parts"].append(about)
        say(f"part {self.args.part}: {machine}, dtrain {about['commit']}")

    def start_torch(self, modes):
        """PyTorch, which prepares its modes first."""
        self.modes = modes
        self.torch = gpu_tools.Torch(self.args.torch, self.log("torch"))
        for mode in modes:
            self.torch.send(f"images {mode} 0.1")

    def wait_for_torch(self, seconds=0):
        """Until it has prepared its modes, or failed to. If one hangs, the others start anew."""
        if not self.torch or not self.torch.n_unread:
            return
        # What is left must do for the others.
        seconds = seconds or 20 * len(self.modes) + 60
        left = self.clock.limit(seconds + 60)
        about, *answers = self.torch.read_all(max(left - 60, min(left, 20)))
        self.put("torch", about)
        say(f"PyTorch: {json.dumps(about)}")
        for mode, answer in zip(self.modes, answers):
            verdict = "skipped" if "error" in answer else "passed"
            self.record(f"PyTorch, {mode}", verdict, answer.get("error", ""))
        self.modes = [mode for mode in self.modes if self.is_done(f"PyTorch, {mode}")]
        if self.torch.has_ended and self.modes:
            self.torch.close()
            self.start_torch(self.modes)
            self.wait_for_torch(60)

    def ask_torch(self, request, seconds=20):
        self.wait_for_torch()
        return self.torch.ask(request, seconds) if self.torch else {"error": "not started"}


# --- Part 1 ---


def build(s):
    """Where it fails, what was brought along has to do."""
    targets = [os.path.basename(name) for name in PROGRAMS] + s.args.targets.split()
    env = {**os.environ, "DTRAIN_TARGETS": " ".join(targets)}
    options = ["-DDTRAIN_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=" + s.data["architecture"]]
    setup = os.path.join(ROOT, "scripts", "setup.sh")
    try:
        s.run("build", [setup, "test", "release", *options], s.args.build_seconds, env=env)
    except (LeftOut, Failed) as reason:
        archive = os.path.join(s.args.folder, "build.tar.xz")
        if os.path.exists(archive):
            shutil.unpack_archive(archive, BUILD)
            raise type(reason)(f"build.tar.xz does instead; {reason}") from reason
        raise


def doctor(s):
    say(s.run("doctor", [s.program("dtrain"), "doctor"], 30))


def one_test(name, s):
    s.run(name, [s.program(f"tests/{name}")], 240, is_test=True)


def choose(s):
    """Times cuDNN's algorithms, alone. What it has chosen stays, so that a second try goes on."""
    s.wait_for_torch()
    try:
        s.bench.bench("fp16", s.args.batch, seconds=300)
    except (LeftOut, Failed) as reason:
        say(f"choose, once more: {reason}")
        s.bench.bench("fp16", s.args.batch, seconds=300)


def ceilings(s):
    found = {what: s.ask_torch(what) for what in ("copy", "matmul fp16", "matmul tf32")}
    for what, answer in found.items():
        if "error" in answer:
            raise LeftOut(f"{what}: {answer['error']}")
    s.put("ceilings", found)
    copy, product = found["copy"]["bytes_per_s"], found["matmul fp16"]["flops_per_s"]
    say(f"device-to-device copy {copy / 1e12:.2f} TB/s, fp16 product {product / 1e12:.0f} TFLOP/s")


def turns(s, modes, batch, ours, theirs):
    result = s.bench.bench("fp16", batch)  # says how many steps to take
    steps = math.ceil(s.args.measure * result["images_per_s"] / batch)
    for _ in range(ROUNDS):
        ours.append(s.bench.bench("fp16", batch, steps=min(max(steps, 5), 400)))
        row = f"{ours[-1]['images_per_s']:9.0f}"
        for mode in modes:
            answer = s.ask_torch(f"images resnet50 {mode} fp16 {batch} {s.args.measure}")
            theirs[mode] += [answer["images_per_s"]] if "images_per_s" in answer else []
            row += f"{answer.get('images_per_s', math.nan):15.0f}"
        waits = ours[-1].get("data_wait_share", 0)
        say(row + (f"   {100 * waits:.0f} % of it waiting for data" if waits > 0.02 else ""))


def compare(s):
    """dtrain in fp16 and PyTorch's modes, in turns."""
    s.wait_for_torch()
    batch = s.args.batch
    modes = [mode for mode in MODES if f"resnet50 {mode} fp16 {batch}" in s.modes]
    ours, theirs = [], {mode: [] for mode in modes}
    found = {"batch": batch, "dtrain": ours, "torch": theirs}
    s.put("compare", found)
    say(f"ResNet-50, fp16, batch {batch}, images/s in turns")
    say(f"{'dtrain':>9}" + "".join(f"{'torch ' + mode:>15}" for mode in modes))
    turns(s, modes, batch, ours, theirs)
    medians = {mode: statistics.median(results) for mode, results in theirs.items() if results}
    if not medians:
        raise LeftOut("no mode of PyTorch to compare with")
    best = max(medians, key=medians.get)
    ratio = statistics.median(run["images_per_s"] for run in ours) / medians[best]
    s.put("compare", {**found, "torch_medians": medians, "best_torch_mode": best, "ratio": ratio})
    say(f"dtrain / PyTorch's best mode ({best}): {ratio:.2f}")


def breakdown(nodes, total_ms, step_ms):
    ops = {}
    for node in nodes:
        ms, mb = ops.get(node["op"], (0.0, 0.0))
        ops[node["op"]] = (ms + node["ms"], mb + node["mb"])
    say(f"{'op':20} {'ms':>9} {'share':>7} {'MB':>10} {'GB/s':>8}")
    for op, (ms, mb) in sorted(ops.items(), key=lambda item: -item[1][0]):
        share = 100 * ms / total_ms
        say(f"{op:20} {ms:9.3f} {share:5.1f} % {mb:10.1f} {mb / ms:8.0f}")  # MB/ms = GB/s
    say(f"{'update':20} {step_ms - total_ms:9.3f}")


def profile(s):
    """Time of every node on the device, its bytes, its share of the ceilings; the roofline."""
    batch = s.args.batch
    result = s.bench.bench("fp16", batch, profile=True, steps=5)
    nodes = sorted(result["nodes"], key=lambda node: -node["ms"])
    s.put("profile", result)
    total_ms = sum(node["ms"] for node in nodes)
    say(f"step breakdown, fp16, batch {batch}: {total_ms:.2f} ms in ops, each by itself")
    breakdown(nodes, total_ms, 1e3 * result["compute_s"])
    if "ceilings" not in s.data:
        raise LeftOut("no ceilings for shares and roofline")
    copy = s.data["ceilings"]["copy"]["bytes_per_s"]
    product = s.data["ceilings"]["matmul fp16"]["flops_per_s"]
    say(f"\n{'node':34} {'op':18} {'ms':>8} {'MB':>8} {'of copy':>8} {'of product':>10}")
    for node in nodes[:40]:
        of_copy = node["mb"] * 1e6 / (node["ms"] * 1e-3) / copy
        of_product = node["gflop"] * 1e9 / (node["ms"] * 1e-3) / product
        say(
            f"{node['name'][:34]:34} {node['op']:18} {node['ms']:8.3f} {node['mb']:8.1f} "
            f"{100 * of_copy:6.0f} % {100 * of_product:8.0f} %"
        )
    floor_ms = 1e3 * sum(max(n["mb"] * 1e6 / copy, n["gflop"] * 1e9 / product) for n in nodes)
    ratio = floor_ms / total_ms
    s.put("roofline", {"floor_ms": floor_ms, "ops_ms": total_ms, "ratio": ratio})
    say(f"roofline of these ops: {floor_ms:.2f} ms, reached {100 * ratio:.0f} %")


def fusions(s):
    """What running nodes together gains: never, where it was measured to be faster, and always, in
    turns; and the profile without and with all of it."""
    batch, ways = s.args.batch, ("off", "auto", "on")
    rates = {way: [] for way in ways}
    s.put("fusions", {"images_per_s": rates})
    for turn in range(2):  # to and fro
        for way in ways if turn % 2 == 0 else reversed(ways):
            result = s.bench.bench("fp16", batch, steps=50, seconds=200, fusion=way)
            rates[way].append(result["images_per_s"])
    say(", ".join(f"{way} {statistics.median(rates[way]):.0f} images/s" for way in ways))
    for way in ("off", "on"):
        result = s.bench.bench("fp16", batch, profile=True, steps=5, fusion=way)
        s.put("fusions", {**s.data["fusions"], f"profile {way}": result})
        total_ms = sum(node["ms"] for node in result["nodes"])
        say(f"device.fusion={way}: {total_ms:.2f} ms in ops, each by itself")
        breakdown(result["nodes"], total_ms, 1e3 * result["compute_s"])


def probes(s):
    """C programs that ask cuDNN what it offers for this GPU; their output is in the logs."""
    sources = glob.glob(os.path.join(s.args.folder, "*.c"))
    if not sources:
        raise LeftOut("none in the folder")
    for source in sources:
        with tempfile.TemporaryDirectory() as folder:
            name, program = os.path.basename(source)[:-2], os.path.join(folder, "probe")
            cc = ["cc", "-O1", source, "-o", program, "-lcudnn", "-lcudart"]
            s.run(f"{name}-cc", [*cc, "-I/usr/local/cuda/include", "-L/usr/local/cuda/lib64"], 20)
            s.run(name, [program, "-f", "-n", str(s.args.batch)], 60)


# --- Part 2 ---


def recording(s):
    """Recorded and walked steps give the same losses in deterministic mode."""
    sets = {**RESNET20, "train.precision": "fp16", "train.deterministic": "true"}
    sets.update({"train.max_steps": 30, "output.log_every": 1})
    losses = {
        graph: s.small.train(f"graph-{graph}", {**sets, "device.cuda_graph": graph})
        for graph in ("true", "false")
    }
    s.put("recording", losses)
    if not distance(losses["true"], losses["false"]) == 0:
        raise Failed("recording changes the losses")


def distance(a, b):
    """The largest relative difference between losses; infinite where there are not as many."""
    if not a or len(a) != len(b) or not all(map(math.isfinite, a + b)):
        return math.inf
    return max(abs(y - x) / abs(x) for x, y in zip(a, b))


def curves(s):
    """300 steps of the CIFAR ResNet-20 in 16 bits against fp32: the last 100 steps, in means of 20.
    Before, where the loss falls steeply, rounding alone moves it."""
    sets = {**RESNET20, "train.max_steps": 300, "output.log_every": 20}
    losses = {
        precision: s.small.train(f"curve-{precision}", {**sets, "train.precision": precision})
        for precision in ("fp32", "bf16", "fp16")
    }
    s.put("curves", losses)
    for precision in ("bf16", "fp16"):
        worst = distance(losses["fp32"][-5:], losses[precision][-5:])
        say(f"ResNet-20, {precision}: loss within {100 * worst:.2f} % of fp32")
        if not worst <= 0.03:
            raise Failed(f"{precision} is not within 3 % of fp32")


def parity(s):
    script = os.path.join(ROOT, "tests", "interop", "test_torch_parity.py")
    threads = str(min(8, os.cpu_count()))
    command = [sys.executable, script, s.program("dtrain"), "cuda", threads]
    s.run("parity", command, 200, is_test=True)


def memcheck(name, s):
    """The memory checker on a test."""
    if not shutil.which("compute-sanitizer"):
        raise LeftOut("no compute-sanitizer in PATH")
    # Errors of calls are the tests' affair: some provoke them, and cuDNN tries what may fail.
    options = ["--tool", "memcheck", "--error-exitcode", "9", "--report-api-errors", "no"]
    command = ["compute-sanitizer", *options, s.program(f"tests/{name}")]
    s.run(f"memcheck-{os.path.basename(name)}", command, 200, is_test=True)


def nccl_test(name, n, s):
    launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(n)]
    s.run(f"{name}-np{n}", [*launcher, s.program(f"tests/{name}")], 45, is_test=True)


def ranks(s):
    """Two NCCL ranks on this GPU: the losses of one rank with the same global batch."""
    losses = {str(n): s.small.train(f"ranks-{n}", VGG11, n, seconds=45) for n in (1, 2)}
    s.put("ranks", losses)
    worst = distance(losses["1"], losses["2"])
    say(f"two NCCL ranks on one GPU: losses within {worst:.1e} of one rank's")
    if not worst <= 1e-3:
        raise Failed("two ranks do not follow one rank")


# --- Part 3 ---


def cell(precision, batch, s):
    s.wait_for_torch()
    result = s.bench.bench(precision, batch, steps=50, seconds=200)
    row = {"precision": precision, "batch": batch, "dtrain": result}
    text = f"ResNet-50, {precision}, batch {batch}: {result['images_per_s']:.0f} images/s"
    mode = f"resnet50 compile {precision} {batch}"
    if mode in s.modes:
        row["torch"] = s.ask_torch(f"images {mode} {s.args.measure}")
        text += f", torch compile {row['torch'].get('images_per_s', math.nan):.0f}"
    say(text)
    s.put(f"sweep {precision} {batch}", row)


# --- Part 4 ---


def network(name, s):
    """dtrain, PyTorch's modes, and dtrain's time by op."""
    share, modes, keys = NETWORKS[name]
    batch = int(s.args.batch * share)
    bench = functools.partial(s.bench.bench, "fp16", batch, seconds=200, name=name, **keys)
    row = {"batch": batch, "dtrain": bench(steps=50)}
    text = f"{name}, fp16, batch {batch}: {row['dtrain']['images_per_s']:.0f} images/s"
    for mode in (mode for mode in modes if mode in s.args.modes):
        row[mode] = s.ask_torch(f"images {name} {mode} fp16 {batch} {s.args.measure}", 60)
        text += f", torch {mode} {row[mode].get('images_per_s', math.nan):.0f}"
        if "error" in row[mode]:
            say(f"{name}, {mode}: {row[mode]['error']}")
    say(text)
    s.put(f"network {name}", row)
    row["profile"] = bench(steps=5, profile=True)
    nodes = row["profile"]["nodes"]
    breakdown(nodes, sum(node["ms"] for node in nodes), 1e3 * row["profile"]["compute_s"])


def torch_modes(s):
    """What the checks to come want of PyTorch, with the name of the check."""
    batch = s.args.batch
    modes = {f"resnet50 {mode} fp16 {batch}": "compare" for mode in MODES}
    if s.args.part == 3:
        modes.update(
            {f"resnet50 compile {p} {batch}": f"sweep {p} {batch}" for p, n in CELLS if n == 1}
        )
    if s.args.part == 4:
        for name, (share, kinds, _) in NETWORKS.items():
            modes.update({f"{name} {k} fp16 {int(batch * share)}": f"network {name}" for k in kinds})
    chosen = {mode: check for mode, check in modes.items() if mode.split()[1] in s.args.modes}
    return [mode for mode, check in chosen.items() if wanted(s, check)]


def wanted(s, name):
    return bool(re.search(s.args.checks, name)) if s.args.checks else not s.is_done(name)


@dataclasses.dataclass
class Stage:
    """Checks that may run beside each other, so many at a time, and the first part to do them. They
    leave reserve_s seconds to the stages after them."""

    part: int
    workers: int
    reserve_s: float
    checks: typing.Dict[str, typing.Callable]


def stages(s):
    bind, base, batch = functools.partial, os.path.basename, s.args.batch
    first = {"choose": choose, "ceilings": ceilings, "compare": compare, "profile": profile}
    first["fusions"] = fusions
    beside = {"parity": parity, "recording": recording, "curves": curves}
    # Not of what runs all of cuDNN's algorithms, of which one may be at fault.
    checked = [name for name in GPU_TESTS if "autotune" not in name]
    beside.update({f"memcheck {base(name)}": bind(memcheck, name) for name in checked})
    cells = [(precision, int(n * batch)) for precision, n in CELLS]
    # Measurements come first, and last what may hang: two ranks on one GPU.
    return [
        Stage(1, 1, 300, {"doctor": doctor}),
        Stage(1, 8, 300, {base(name): bind(one_test, name) for name in GPU_TESTS}),
        Stage(1, 1, 20, {**first, "probes": probes}),
        Stage(3, 1, 60, {f"sweep {p} {b}": bind(cell, p, b) for p, b in cells}),
        Stage(2, 4, 200, beside),
        Stage(4, 1, 20, {f"network {n}": bind(network, n) for n in NETWORKS}),
        Stage(2, 1, 150, {f"{name} np1": bind(nccl_test, name, 1) for name in NCCL_TESTS}),
        Stage(2, 1, 60, {f"{name} np2": bind(nccl_test, name, 2) for name in NCCL_TESTS}),
        Stage(2, 1, 0, {"ranks": ranks}),
    ]


def do_part(s):
    modes = torch_modes(s)
    if modes:
        s.start_torch(modes)
    s.clock.reserve_s = 300
    s.check("build", build)
    for stage in stages(s):
        checks = [item for item in stage.checks.items() if wanted(s, item[0])]
        if stage.part > s.args.part or not checks:
            continue
        say(f"\n==== {', '.join(name for name, _ in checks)} (at {s.clock.now():.0f} s)")
        s.clock.reserve_s = min(stage.reserve_s, s.args.seconds / 3)  # in a short visit less
        with futures.ThreadPoolExecutor(stage.workers) as pool:
            list(pool.map(lambda item: s.check(*item), checks))
        if "compare" in stage.checks and s.torch and s.args.part < 3:
            s.torch.close()


def save_often(s):
    while not gpu_tools.STOPPED.wait(20):
        s.save()


def stop(number, _):
    gpu_tools.end_all()
    sys.exit(128 + number)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("part", type=int, choices=(1, 2, 3, 4))
    parser.add_argument("folder", help="what travels")
    parser.add_argument("--out", required=True, help="folder for gpu.json and the logs")
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--checks", default="", help="only those that match this pattern")
    parser.add_argument("--modes", default=",".join(MODES), help="of PyTorch's modes, these")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--measure", type=float, default=2.0, help="seconds per turn")
    parser.add_argument("--build-seconds", type=float, default=200)
    parser.add_argument("--targets", default="", help="more to build")
    parser.add_argument("--programs", default=BUILD, help="folder of the programs that are checked")
    parser.add_argument("--torch", default=os.path.join(HERE, "torch_gpu.py"))
    parser.add_argument("--set", action="append", default=[], help="setting for all runs of dtrain")
    return parser.parse_args()


def main():
    if sys.argv[1:] == ["programs"]:  # for scripts/gpu_check.sh pack
        print("\n".join(PROGRAMS))
        return 0
    args = parse()
    os.makedirs(args.out, exist_ok=True)
    with tempfile.TemporaryDirectory() as logs:
        s = Session(args, logs)
        try:
            s.look()
        except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
            say(f"gpu_check: no NVIDIA GPU: {error}")
            return 1
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, stop)
        threading.Thread(target=save_often, args=(s,), daemon=True).start()
        try:
            do_part(s)
        finally:
            gpu_tools.end_all()
            s.save()
    verdicts = [check["verdict"] for check in s.data["checks"].values()]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in ("passed", "failed", "skipped"))
    say(f"\n{counts}; {s.clock.now():.0f} s, {s.out}/gpu.json")
    return 1 if "failed" in verdicts else 0


sys.exit(main())
