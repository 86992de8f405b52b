"""Builds dtrain, tests and measures it on the GPU: every precision, PyTorch in turns with it, the
kernels, two NCCL ranks. scripts/gpu_check.sh calls it.

    python3 tests/perf/gpu_check.py BUILD --out DIR --seconds N [--parts compare,sweep]

Prints tables and writes DIR/gpu.json after every part. The parts are done in the order of PARTS,
what matters most first; what does not fit into N seconds is left out and listed. Exit code 1: a
part failed, or what it found is wrong. The other options are for trying it without a GPU."""

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import xml.etree.ElementTree

import gpu_tools
from gpu_tools import OutOfTime

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# The first ones matter most.
BATCHES = (256, 400, 128, 64)
PRECISIONS = ("fp16", "bf16", "tf32", "fp32")
MODES = ("eager", "graph", "compile")
ROUNDS = 3
MEMCHECKED = "ops_fp16 streams norm pool update loss pointwise linear ops_fp32 ops_bf16 ops_tf32"

RESNET20 = {
    "model.name": "resnet20",
    "model.image_size": 32,
    "model.num_classes": 10,
    "data.synthetic_train": 25600,
    "train.global_batch_size": 128,
    "train.max_steps": 200,
    "train.label_smoothing": 0.1,
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
    "train.deterministic": "true",
    "schedule.lr": 0.01,
    "output.log_every": 1,
}


class Check:
    """What the parts work with, and gpu.json."""

    def __init__(self, args):
        self.args, self.out = args, os.path.abspath(args.out)
        os.makedirs(self.out, exist_ok=True)
        self.build = os.path.abspath(args.build)
        self.program = os.path.abspath(args.program or os.path.join(self.build, "dtrain"))
        self.clock = gpu_tools.Clock(args.seconds)
        # Algorithms that are timed while other tests run are none for the measurements.
        self.bench, self.small = (
            gpu_tools.Dtrain(
                self.program,
                os.path.join(ROOT, "configs", "resnet50_synthetic.json"),
                self.clock,
                os.path.join(self.out, cache),
                args.set,
            )
            for cache in ("cache", "cache-small")
        )
        self.torch = None  # not started yet
        self.modes = list(MODES) if "compare" in args.parts else []
        self.lock = threading.Lock()
        self.data = {
            "date": time.strftime("%Y-%m-%d"),
            "command": " ".join(sys.argv),
            "seconds": {},
            "left_out": [],
            "problems": [],
        }

    def look(self):
        """Machine and source; an error where there is no GPU."""
        fields = "name,driver_version,memory.total,clocks.max.sm,compute_cap"
        smi = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
        line = subprocess.run(smi, capture_output=True, text=True, timeout=60, check=True).stdout
        *machine, capability = line.splitlines()[0].split(", ")
        git = ["git", "-C", ROOT, "log", "-1", "--format=%h %cs"]
        commit = subprocess.run(git, capture_output=True, text=True, timeout=20).stdout.strip()
        self.data["machine"] = ", ".join(machine)
        self.data["architecture"] = capability.replace(".", "")
        self.data["commit"] = commit or "not a git checkout"
        print(f"{self.data['machine']}, dtrain {self.data['commit']}", flush=True)

    def start_torch(self):
        """PyTorch, which prepares its modes first, for the comparison."""
        if not self.torch and {"ceilings", "compare"} & set(self.args.parts):
            self.torch = gpu_tools.Torch(self.args.torch, self.clock, self.log("torch"))
            for mode in self.modes:
                self.torch.send(f"images {mode} {self.args.batches[0]} 0.1")
        return self.torch

    def wait_for_torch(self, seconds=120):
        """Answers of the modes. A mode that hangs is given up, and the others are prepared anew."""
        answers = self.start_torch().ready(min(seconds, self.clock.left() - 60))
        answers = dict(zip(self.modes, answers[1:]))
        good = [mode for mode, answer in answers.items() if "error" not in answer]
        if not self.torch.has_ended or len(good) in (0, len(answers)):
            return answers
        lost = ", ".join(mode for mode in self.modes if mode not in good)
        self.data["left_out"].append(f"PyTorch's {lost}: not ready in time")
        self.modes = good
        self.torch.close()
        self.torch = None
        return self.wait_for_torch(60)

    def log(self, name):
        return os.path.join(self.out, name + ".log")

    def save(self):
        path = os.path.join(self.out, "gpu.json")
        with open(path + ".part", "w", encoding="utf-8") as f:
            json.dump(self.data, f, indent=1)
        os.replace(path + ".part", path)


class Part:
    """One part at work: its name, its lines, what it could not do. Parts that run beside others
    print their lines at the end."""

    def __init__(self, check, name, at_once):
        self.check, self.name, self.at_once = check, name, at_once
        self.lines = []

    def say(self, line=""):
        self.lines.append(line)
        if self.at_once:
            print(line, flush=True)

    def problem(self, what):
        self.check.data["problems"].append(f"{self.name}: {what}")
        self.say("FAIL " + f"{self.name}: {what}".replace("\n", "\n     "))

    def left_out(self, what):
        self.check.data["left_out"].append(what)
        self.say(f"--   left out: {what}")

    def command(self, name, command, seconds, **options):
        """A command with its own log; whether it was good."""
        self.check.clock.need(min(seconds, 10))
        log = self.check.log(name)
        ended = gpu_tools.run(command, min(seconds, self.check.clock.left()), log, **options)
        result = {"ok": ended.error() is None, "seconds": round(ended.seconds, 1)}
        if ended.code == 77:
            result = {"ok": True, "skipped": ended.text.strip()[-200:]}
            self.left_out(f"{name}, {result['skipped']}")
        elif not result["ok"]:
            result.update(ended.error())
            lines = ended.text.rstrip().splitlines()[-25:]
            why = f"ended after {ended.seconds:.0f} s" if ended.timed_out else f"code {ended.code}"
            self.problem("\n".join([f"{name}: {why}, log {log}", *lines]))
        else:
            self.say(f"ok   {name} ({ended.seconds:.0f} s)")
        with self.check.lock:
            self.check.data.setdefault("commands", {})[name] = result
        return result["ok"]


# --- The parts ---


def build(part):
    """Meanwhile PyTorch prepares its modes."""
    check = part.check
    check.start_torch()
    if check.args.program:
        return
    options = ["-DDTRAIN_CUDA=ON", "-DDTRAIN_WERROR=OFF"]
    options.append("-DCMAKE_CUDA_ARCHITECTURES=" + check.data["architecture"])
    setup = os.path.join(ROOT, "scripts", "setup.sh")
    if not part.command("build", [setup, "test", "release", *options], 240):
        # A test that does not compile does not keep the others from running.
        part.command("build-rest", ["cmake", "--build", check.build, "--", "-k", "0"], 120)


def doctor(part):
    part.command("doctor", [part.check.program, "doctor"], 30)
    with open(part.check.log("doctor"), encoding="utf-8") as f:
        part.say(f.read().rstrip())


def ceilings(part):
    answers, torch = part.check.wait_for_torch(), part.check.torch
    part.check.data["torch"] = torch.about
    part.say("PyTorch: " + json.dumps(torch.about))
    if "error" in torch.about:
        part.left_out("PyTorch, see torch.log")
        return
    for mode, answer in answers.items():
        if "error" in answer:
            part.say(f"     PyTorch, {mode}: {answer['error']}")
    found = part.check.data["ceilings"] = {
        "copy": torch.ask("copy"),
        "fp16": torch.ask("matmul fp16"),
        "tf32": torch.ask("matmul tf32"),
    }
    copy, fp16 = found["copy"].get("bytes_per_s", 0), found["fp16"].get("flops_per_s", 0)
    part.say(
        f"device-to-device copy {copy / 1e12:.2f} TB/s, fp16 product {fp16 / 1e12:.0f} TFLOP/s"
    )


def rate(result):
    return f"{result['images_per_s']:9.0f}" if "images_per_s" in result else f"{'failed':>9}"


def compare_rounds(part, batch, ours, theirs):
    check = part.check
    check.wait_for_torch()
    result = check.bench.bench("fp16", batch)  # chooses algorithms, and says how many steps to take
    for _ in range(ROUNDS):
        waits = ""
        if "error" not in result:
            steps = math.ceil(check.args.measure * result["images_per_s"] / batch)
            result = check.bench.bench("fp16", batch, steps=min(max(steps, 5), 400))
            if result.get("data_wait_share", 0) > 0.02:
                waits = f"   {100 * result['data_wait_share']:.0f} % of it waiting for data"
        ours.append(result)
        for mode in check.modes:
            theirs[mode].append(check.torch.ask(f"images {mode} {batch} {check.args.measure}"))
        row = [f"{rate(results[-1] if results else {}):>15}" for results in theirs.values()]
        part.say(f"{rate(result)} {' '.join(row)}{waits}")
    if "error" in result:
        part.problem(result["error"])


def compare(part):
    """dtrain fp16 against PyTorch's modes, in turns."""
    batch = part.check.args.batches[0]
    ours, theirs = [], {mode: [] for mode in MODES}
    found = part.check.data["compare"] = {"batch": batch, "dtrain": ours, "torch": theirs}
    part.say(f"ResNet-50, fp16, batch {batch}, images/s in turns")
    part.say(f"{'dtrain':>9} " + " ".join(f"{'torch ' + mode:>15}" for mode in MODES))
    try:
        compare_rounds(part, batch, ours, theirs)
    finally:
        good = [r["images_per_s"] for r in ours if "images_per_s" in r]
        medians = {
            mode: statistics.median(r["images_per_s"] for r in results if "images_per_s" in r)
            for mode, results in theirs.items()
            if any("images_per_s" in r for r in results)
        }
        if good and medians:
            best = max(medians, key=medians.get)
            ratio = statistics.median(good) / medians[best]
            found.update({"best_torch_mode": best, "ratio": ratio, "torch_medians": medians})
            part.say(f"dtrain / PyTorch's best mode ({best}): {ratio:.2f}")


def breakdown(part, nodes, total_ms, step_ms):
    ops = {}
    for node in nodes:
        ms, mb = ops.get(node["op"], (0.0, 0.0))
        ops[node["op"]] = (ms + node["ms"], mb + node["mb"])
    part.say(f"{'op':20} {'ms':>9} {'share':>7} {'MB':>10} {'GB/s':>8}")
    for op, (ms, mb) in sorted(ops.items(), key=lambda item: -item[1][0]):
        share = 100 * ms / total_ms
        part.say(f"{op:20} {ms:9.3f} {share:5.1f} % {mb:10.1f} {mb / ms:8.0f}")  # MB/ms = GB/s
    part.say(f"{'update':20} {step_ms - total_ms:9.3f}")


def profile(part):
    """Time of every node on the device, its bytes, its share of the ceilings; the roofline."""
    check, batch = part.check, part.check.args.batches[0]
    result = check.bench.bench("fp16", batch, profile=True, steps=5)
    check.data["profile"] = result
    if "error" in result:
        part.problem(result["error"])
        return
    nodes = result["nodes"]
    total_ms = sum(node["ms"] for node in nodes)
    part.say(f"step breakdown, fp16, batch {batch}: {total_ms:.2f} ms in ops, each by itself")
    breakdown(part, nodes, total_ms, 1e3 * result["compute_s"])
    found = check.data.get("ceilings", {})
    copy = found.get("copy", {}).get("bytes_per_s")
    product = found.get("fp16", {}).get("flops_per_s")
    if not copy or not product:
        part.left_out("shares of the ceilings and roofline: no ceilings")
        return
    part.say(f"\n{'node':34} {'op':18} {'ms':>8} {'MB':>8} {'of copy':>8} {'of product':>10}")
    for node in sorted(nodes, key=lambda n: -n["ms"]):
        node["of_copy"] = node["mb"] * 1e6 / (node["ms"] * 1e-3) / copy
        node["of_product"] = node["gflop"] * 1e9 / (node["ms"] * 1e-3) / product
    for node in sorted(nodes, key=lambda n: -n["ms"])[:40]:
        part.say(
            f"{node['name'][:34]:34} {node['op']:18} {node['ms']:8.3f} {node['mb']:8.1f} "
            f"{100 * node['of_copy']:6.0f} % {100 * node['of_product']:8.0f} %"
        )
    floor_ms = 1e3 * sum(max(n["mb"] * 1e6 / copy, n["gflop"] * 1e9 / product) for n in nodes)
    ratio = floor_ms / total_ms
    check.data["roofline"] = {"floor_ms": floor_ms, "ops_ms": total_ms, "ratio": ratio}
    part.say(f"roofline of these ops: {floor_ms:.2f} ms, reached {100 * ratio:.0f} %")


def tests(part):
    junit = os.path.join(part.check.out, "ctest.xml")
    if os.path.exists(junit):
        os.remove(junit)
    command = ["ctest", "--test-dir", part.check.build, "-L", "gpu", "--output-on-failure", "-j"]
    part.command("ctest", [*command, "4", "--output-junit", junit], 120)
    if not os.path.exists(junit):
        return
    suite = xml.etree.ElementTree.parse(junit).getroot()
    total, failed, skipped = (int(suite.get(key, 0)) for key in ("tests", "failures", "skipped"))
    part.check.data["tests"] = {"total": total, "failed": failed, "skipped": skipped}
    part.say(f"     tests on the GPU: {total}, failed {failed}, skipped {skipped}")
    if total == skipped:
        part.problem("no test ran on the GPU")


def curves(part):
    """200 steps of the CIFAR ResNet-20 in 16 bits against fp32: means of 20 steps."""
    results = part.check.data["curves"] = {}
    with tempfile.TemporaryDirectory() as folder:
        for precision in ("fp32", "bf16", "fp16"):
            sets = {**RESNET20, "train.precision": precision, "output.log_every": 20}
            results[precision] = part.check.small.train(os.path.join(folder, precision), 1, sets)
            if "error" in results[precision]:
                part.problem(f"{precision}: {results[precision]['error']}")
                return
    for precision in ("bf16", "fp16"):
        worst = distance(results["fp32"], results[precision])
        results[precision]["worst"] = worst
        part.say(f"{precision}, ResNet-20: loss within {100 * worst:.2f} % of fp32")
        if not worst <= 0.03:
            part.problem(f"{precision} is not within 3 % of fp32")


def distance(a, b):
    """The largest relative difference between losses; infinite where there are not as many."""
    a, b = a["losses"], b["losses"]
    if not a or len(a) != len(b) or not all(map(math.isfinite, a + b)):
        return math.inf
    return max(abs(y - x) / abs(x) for x, y in zip(a, b))


def recording(part):
    """Recorded and walked steps give the same losses in deterministic mode."""
    runs = part.check.data["recording"] = {}
    with tempfile.TemporaryDirectory() as folder:
        for record in ("true", "false"):
            sets = {
                **RESNET20,
                "train.precision": "fp16",
                "train.max_steps": 30,
                "train.deterministic": "true",
                "device.cuda_graph": record,
                "output.log_every": 1,
            }
            runs[record] = part.check.small.train(os.path.join(folder, record), 1, sets)
            if "error" in runs[record]:
                part.problem(f"device.cuda_graph {record}: {runs[record]['error']}")
                return
    same = distance(runs["true"], runs["false"]) == 0
    part.check.data["recording"]["same"] = same
    part.say(f"recorded and walked steps: losses {'are identical' if same else 'DIFFER'}")
    if not same:
        part.problem("recording changes the losses")


def parity(part):
    script = os.path.join(ROOT, "tests", "interop", "test_torch_parity.py")
    part.command("torch-parity", [sys.executable, script, part.check.program, "cuda"], 110)


def memcheck(part):
    """The memory checker on the tests of the ops and kernels, as many as fit."""
    if not shutil.which("compute-sanitizer"):
        part.left_out("memcheck: no compute-sanitizer in PATH")
        return
    until = part.check.clock.now() + 110
    for what in MEMCHECKED.split():
        name = f"gpu_cuda_{what}"
        left = min(until - part.check.clock.now(), 75)
        if left < 10:
            part.left_out(f"memcheck of {name}")
            continue
        # Errors of calls are the tests' affair: some provoke them, and cuDNN tries what may fail.
        options = ["--tool", "memcheck", "--error-exitcode", "9", "--report-api-errors", "no"]
        test = os.path.join(part.check.build, "tests", "emulator", name)
        part.command(f"memcheck-{what}", ["compute-sanitizer", *options, test], left)


def ranks(part):
    """Two NCCL ranks on this GPU: the losses of one rank with the same global batch."""
    runs = part.check.data["ranks"] = {}
    with tempfile.TemporaryDirectory() as folder:
        for n in (1, 2):
            runs[str(n)] = part.check.small.train(os.path.join(folder, str(n)), n, VGG11)
            if "error" in runs[str(n)]:
                part.problem(f"{n} rank(s): {runs[str(n)]['error']}")
                return
    worst = runs["worst"] = distance(runs["1"], runs["2"])
    n = len(runs["1"]["losses"])
    part.say(f"two NCCL ranks on one GPU, {n} steps: losses within {worst:.1e} of one rank's")
    if not worst <= 1e-3:
        part.problem("two ranks do not follow one rank")


def sweep(part):
    """images/s by precision and batch, recorded; then not."""
    check, batches = part.check, part.check.args.batches
    results = check.data["sweep"] = []
    for record in (True, False):
        part.say(f"ResNet-50, {'recorded' if record else 'not recorded'}, images/s")
        part.say(f"{'batch':>6} " + " ".join(f"{p:>9}" for p in PRECISIONS))
        for batch in batches:
            cells = []
            for precision in PRECISIONS:
                what = {"precision": precision, "batch": batch, "record": record}
                try:
                    result = check.bench.bench(precision, batch, record)
                except OutOfTime:
                    check.data["left_out"].append(f"sweep: {precision} {batch} record={record}")
                    cells.append(f"{'-':>9}")
                    continue
                results.append({**what, "result": result})
                cells.append(rate(result))
                if "error" in result:
                    part.problem(f"{precision} {batch}: {result['error']}")
            part.say(f"{batch:6} " + " ".join(cells))
            check.save()


# What matters most first. A line is done at once, its parts beside each other; what is measured is
# alone. Seconds: the least that must be left to begin.
PARTS = (
    ((build, 20),),
    ((doctor, 3),),
    ((ceilings, 10),),
    ((compare, 15),),
    ((profile, 10),),
    ((tests, 10), (curves, 10), (recording, 10), (parity, 10), (memcheck, 10)),
    ((ranks, 10),),
    ((sweep, 5),),
)


def do_part(part, work, least_s):
    """Whatever happens in a part, the next one follows."""
    check, begin = part.check, part.check.clock.now()
    try:
        check.clock.need(least_s)
        work(part)
    except OutOfTime:
        part.left_out(f"{part.name}, or the rest of it: out of time")
    except Exception as error:  # as said above
        part.problem(f"{type(error).__name__}: {error}")
        with open(check.log(f"{part.name}-error"), "w", encoding="utf-8") as f:
            traceback.print_exc(file=f)
    check.data["seconds"][part.name] = round(check.clock.now() - begin, 1)


def do_parts(check, works):
    print(f"\n==== {', '.join(work.__name__ for work, _ in works)} ({check.clock.now():.0f} s)")
    parts = [Part(check, work.__name__, len(works) == 1) for work, _ in works]
    threads = [
        threading.Thread(target=do_part, args=(part, *work), daemon=True)
        for part, work in zip(parts, works)
    ]
    for thread in threads:
        thread.start()
    for thread, part in zip(threads, parts):
        thread.join()
        if not part.at_once:
            print("\n".join(part.lines), flush=True)
    check.save()


def stop(number, _):
    sys.exit(128 + number)


def parse():
    names = [work.__name__ for line in PARTS for work, _ in line]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("build", help="build folder")
    parser.add_argument("--out", required=True, help="folder for gpu.json and the logs")
    parser.add_argument("--seconds", type=float, default=460)
    parser.add_argument("--parts", default=",".join(names), help="default: %(default)s")
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    parser.add_argument(
        "--program", help="a dtrain that is built already, in place of BUILD/dtrain"
    )
    parser.add_argument(
        "--measure", type=float, default=2.0, help="seconds of each in a round of the comparison"
    )
    parser.add_argument("--torch", default=os.path.join(HERE, "torch_gpu.py"))
    parser.add_argument(
        "--set", action="append", default=[], help="setting for every run of dtrain"
    )
    args = parser.parse_args()
    args.batches = [int(batch) for batch in args.batches.split(",")]
    args.parts = args.parts.split(",")
    for name in args.parts:
        if name not in names:
            parser.error(f"no part {name}; there are {', '.join(names)}")
    return args


def main():
    args = parse()
    check = Check(args)
    try:
        check.look()
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        print(f"gpu_check: no NVIDIA GPU: {error}")
        return 1
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        for line in PARTS:
            works = [(work, s) for work, s in line if work.__name__ in args.parts]
            if works:
                do_parts(check, works)
            if compare in [work for work, _ in line] and check.torch:
                check.torch.close()
    finally:
        gpu_tools.end_all()
        check.save()
    for what in ("left_out", "problems"):
        if check.data[what]:
            print(f"\n{what.replace('_', ' ')}:")
            print("\n".join("  " + text.partition("\n")[0] for text in check.data[what]))
    print(f"\n{check.clock.now():.0f} s, {check.out}/gpu.json", flush=True)
    return 1 if check.data["problems"] else 0


sys.exit(main())
