"""Speed on the GPU: dtrain in every precision, PyTorch in turns with it, the kernels, two NCCL ranks.

    python3 tests/perf/gpu_check.py BUILD/dtrain --out DIR --seconds N

Prints tables and writes DIR/gpu.json after every part. Parts are done in the order of what matters
most; what does not fit into N seconds is left out and listed."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
CONFIG = os.path.join(ROOT, "configs", "resnet50_synthetic.json")
# The first ones matter most.
BATCHES = (256, 400, 128, 64)
PRECISIONS = ("fp16", "bf16", "tf32", "fp32")
ROUNDS = 3
RESERVE_S = 6  # for writing, and for what takes longer than expected


class OutOfTime(Exception):
    pass


class Clock:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic() - RESERVE_S

    def need(self, seconds):
        if self.left() < seconds:
            raise OutOfTime


class Dtrain:
    """Runs dtrain bench; remembers how long a run took, to know whether the next one fits."""

    def __init__(self, program, clock, cache):
        self.program, self.clock, self.cache = program, clock, cache
        self.longest = 20.0

    def bench(self, precision, batch, record=True, profile=False, steps=10, rounds=1):
        self.clock.need(self.longest)
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bench.json")
            command = [self.program, "bench", "--config", CONFIG, "--json", path]
            command += ["--profile"] if profile else []
            for key, value in {
                "device.kind": "cuda",
                "device.record": str(record).lower(),
                "device.cache_dir": self.cache,
                "train.precision": precision,
                "train.global_batch": batch,
                "bench.warmup_steps": 8,
                "bench.rounds": rounds,
                "bench.steps_per_round": steps,
            }.items():
                command += ["--set", f"{key}={value}"]
            run = subprocess.run(
                command, capture_output=True, text=True, timeout=max(self.clock.left(), 10)
            )
            if run.returncode != 0:
                return {"error": run.stderr.strip()[-500:], "exit_code": run.returncode}
            with open(path, encoding="utf-8") as f:
                result = json.load(f)
        self.longest = max(8.0, time.monotonic() - start)
        return result


class Torch:
    """torch_gpu.py as a process; None where PyTorch is not there."""

    def __init__(self, clock):
        self.clock = clock
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "torch_gpu.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.about = self.read(90)

    def read(self, seconds):
        """One answer; a process that takes too long is ended, and answers nothing more."""
        timer = threading.Timer(max(1, min(seconds, self.clock.left())), self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        return json.loads(line) if line else {"error": "no answer from PyTorch"}

    def ask(self, request, seconds=60):
        self.clock.need(5)
        if self.process.poll() is not None:
            return {"error": "PyTorch has ended"}
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
        except OSError as error:
            return {"error": str(error)}
        return self.read(seconds)

    def close(self):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()


class Report:
    def __init__(self, folder):
        self.path = os.path.join(folder, "gpu.json")
        self.data = {
            "date": time.strftime("%Y-%m-%d"),
            "command": " ".join(sys.argv),
            "left_out": [],
        }

    def save(self):
        with open(self.path, "w", encoding="utf-8") as f:
            json.dump(self.data, f, indent=1)


def rate(result):
    return f"{result['images_per_s']:9.0f}" if "images_per_s" in result else f"{'failed':>9}"


def print_error(result):
    if "error" in result:
        print("    " + result["error"].replace("\n", "\n    "))


def measure_ceilings(report, torch):
    ceilings = {"copy": torch.ask("copy")}
    for kind in ("fp16", "tf32"):
        ceilings[kind] = torch.ask(f"matmul {kind}")
    report.data["ceilings"] = ceilings
    copy, fp16 = ceilings["copy"].get("bytes_per_s", 0), ceilings["fp16"].get("flops_per_s", 0)
    print(f"device-to-device copy {copy / 1e12:.2f} TB/s, fp16 product {fp16 / 1e12:.0f} TFLOP/s")


def compare(report, dtrain, torch, batch=256):
    """dtrain fp16 against PyTorch's modes, in turns."""
    modes = ["eager", "graph", "compile"]
    ours, theirs = [], {mode: [] for mode in modes}
    print(f"\nResNet-50, fp16, batch {batch}, images/s in turns")
    print(f"{'dtrain':>9} " + " ".join(f"torch {mode:>9}" for mode in modes))
    try:
        for round_ in range(ROUNDS):
            ours.append(dtrain.bench("fp16", batch))
            row = []
            for mode in modes:
                wait = 150 if round_ == 0 else 20  # torch.compile compiles in the first round
                theirs[mode].append(torch.ask(f"images {mode} {batch} 2", wait))
                row.append(rate(theirs[mode][-1]))
            print(rate(ours[-1]) + " " + " ".join(f"{cell:>15}" for cell in row), flush=True)
            print_error(ours[-1])
    finally:
        report.data["compare"] = {"batch": batch, "dtrain": ours, "torch": theirs}
    good = [r["images_per_s"] for r in ours if "images_per_s" in r]
    medians = {
        mode: statistics.median(r["images_per_s"] for r in results if "images_per_s" in r)
        for mode, results in theirs.items()
        if any("images_per_s" in r for r in results)
    }
    if good and medians:
        best = max(medians, key=medians.get)
        ratio = statistics.median(good) / medians[best]
        report.data["compare"].update({"best_torch_mode": best, "ratio": ratio})
        print(f"dtrain / PyTorch's best mode ({best}): {ratio:.2f}")


def sweep(report, dtrain):
    """images/s by precision and batch, recorded; then unrecorded."""
    results = report.data.setdefault("sweep", [])
    for record in (True, False):
        print(f"\nResNet-50, {'recorded' if record else 'not recorded'}, images/s")
        print(f"{'batch':>6} " + " ".join(f"{p:>9}" for p in PRECISIONS))
        for batch in BATCHES:
            cells = []
            for precision in PRECISIONS:
                try:
                    result = dtrain.bench(precision, batch, record)
                except OutOfTime:
                    report.data["left_out"].append(f"{precision} {batch} record={record}")
                    cells.append(f"{'-':>9}")
                    continue
                results.append(
                    {"precision": precision, "batch": batch, "record": record, "result": result}
                )
                cells.append(rate(result))
                if "error" in result:
                    print_error(result)
            print(f"{batch:6} " + " ".join(cells), flush=True)
            report.save()


def print_breakdown(nodes, total_s):
    ops = {}
    for node in nodes:
        ms, mb = ops.get(node["op"], (0.0, 0.0))
        ops[node["op"]] = (ms + node["ms"], mb + node["mb"])
    print(f"{'op':20} {'ms':>9} {'share':>7} {'MB':>10} {'GB/s':>8}")
    for op, (ms, mb) in sorted(ops.items(), key=lambda item: -item[1][0]):
        print(f"{op:20} {ms:9.3f} {ms / total_s / 10:6.1f} % {mb:9.1f} {mb / ms:8.0f}")


def profile(report, dtrain, precision="fp16", batch=256):
    """Time of every node on the device, its bytes, its share of the copy bandwidth; the roofline."""
    result = dtrain.bench(precision, batch, profile=True, steps=5)
    report.data["profile"] = result
    if "error" in result:
        print_error(result)
        return
    nodes = result.get("nodes", [])
    copy = report.data.get("ceilings", {}).get("copy", {}).get("bytes_per_s")
    product = report.data.get("ceilings", {}).get("fp16", {}).get("flops_per_s")
    total_s = sum(node["ms"] for node in nodes) / 1e3
    if not nodes or total_s == 0:
        return
    print(f"\nstep breakdown, {precision}, batch {batch}: {1e3 * total_s:.2f} ms in ops")
    print_breakdown(nodes, total_s)
    if not copy or not product:
        return
    print(f"\n{'node':34} {'op':18} {'ms':>7} {'MB':>8} {'of copy':>8} {'of product':>10}")
    for node in sorted(nodes, key=lambda n: -n["ms"])[:40]:
        bandwidth = node["mb"] * 1e6 / (node["ms"] * 1e-3) / copy
        rate_ = node.get("gflop", 0) * 1e9 / (node["ms"] * 1e-3) / product
        print(
            f"{node['name'][:34]:34} {node['op']:18} {node['ms']:7.3f} {node['mb']:8.1f} "
            f"{100 * bandwidth:6.0f} % {100 * rate_:8.0f} %"
        )
    floor_s = sum(max(n["mb"] * 1e6 / copy, n.get("gflop", 0) * 1e9 / product) for n in nodes)
    report.data["roofline"] = {"floor_s": floor_s, "ops_s": total_s, "ratio": floor_s / total_s}
    print(f"roofline of these ops: {1e3 * floor_s:.2f} ms, reached {100 * floor_s / total_s:.0f} %")


def train(program, folder, clock, ranks, sets):
    """Losses of a training run, one per logged step, or what went wrong."""
    clock.need(15)
    os.makedirs(folder, exist_ok=True)
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
    command = [program, "--config", CONFIG, "--out", folder]
    for key, value in {"device.kind": "cuda", "data.synthetic_val": 0, **sets}.items():
        command += ["--set", f"{key}={value}"]
    run = subprocess.run(
        (mpirun if ranks > 1 else []) + command,
        capture_output=True,
        text=True,
        timeout=max(10, min(60, clock.left())),
    )
    if run.returncode != 0:
        result = {"error": run.stderr.strip()[-500:]}
        print_error(result)
        return result
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as f:
        events = [json.loads(line) for line in f]
    return {"losses": [event["loss"] for event in events if event["event"] == "step"]}


RESNET20 = {
    "model.name": "resnet20",
    "model.image_size": 32,
    "model.num_classes": 10,
    "data.synthetic_train": 25600,
    "train.global_batch": 128,
    "train.max_steps": 200,
    "train.label_smoothing": 0.1,
    "schedule.lr": 0.05,
    "schedule.lr_unit": "absolute",
}


def curves(report, program, clock, cache):
    """200 steps of the CIFAR ResNet-20 in 16 bits against fp32: means of 20 steps."""
    results = report.data["curves"] = {}
    with tempfile.TemporaryDirectory() as folder:
        for precision in ("fp32", "bf16", "fp16"):
            sets = {**RESNET20, "train.precision": precision, "output.log_every": 20}
            sets["device.cache_dir"] = cache
            results[precision] = train(program, os.path.join(folder, precision), clock, 1, sets)
    if not all("losses" in result for result in results.values()):
        return
    for precision in ("bf16", "fp16"):
        pairs = zip(results["fp32"]["losses"], results[precision]["losses"])
        worst = max(abs(b / a - 1) for a, b in pairs)
        results[precision]["worst"] = worst
        print(f"\n200 steps of ResNet-20, {precision}: loss within {100 * worst:.2f} % of fp32")


def recording(report, program, clock, cache):
    """Recorded and walked steps give the same losses in deterministic mode."""
    runs = report.data["recording"] = {}
    with tempfile.TemporaryDirectory() as folder:
        for record in ("true", "false"):
            sets = {
                **RESNET20,
                "train.precision": "fp16",
                "train.max_steps": 30,
                "train.deterministic": "true",
                "device.record": record,
                "device.cache_dir": cache,
                "output.log_every": 1,
            }
            runs[record] = train(program, os.path.join(folder, record), clock, 1, sets)
    same = runs["true"].get("losses", 1) == runs["false"].get("losses", 2)
    report.data["recording"]["same"] = same
    print(f"recorded and walked steps: losses {'are identical' if same else 'DIFFER'}")


def two_ranks(report, program, clock, cache):
    """Two NCCL ranks on this GPU for 20 steps: the losses of one rank with the same global batch, on
    a network without batch norm."""
    runs = report.data["two_ranks"] = {}
    sets = {
        "model.name": "vgg11",
        "model.image_size": 64,
        "model.num_classes": 10,
        "model.dropout": 0,
        "device.share": "true",
        "device.cache_dir": cache,
        "comm.bucket_mb": 512,
        "train.global_batch": 64,
        "train.max_steps": 20,
        "train.deterministic": "true",
        "schedule.lr": 0.01,
        "output.log_every": 1,
    }
    with tempfile.TemporaryDirectory() as folder:
        for ranks in (1, 2):
            runs[ranks] = train(program, os.path.join(folder, str(ranks)), clock, ranks, sets)
    if all("losses" in run for run in runs.values()):
        pairs = list(zip(runs[1]["losses"], runs[2]["losses"]))
        worst = max(abs(b / a - 1) for a, b in pairs)
        report.data["two_ranks_worst"] = worst
        print(f"two NCCL ranks on one GPU, {len(pairs)} steps: losses within {worst:.1e}")


def part(report, what, work, *arguments):
    """One part of the measurements: whatever happens in it, the next one follows."""
    try:
        work(report, *arguments)
    except OutOfTime:
        report.data["left_out"].append(what)
        print(f"--   out of time: {what} is left out or cut short")
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        report.data.setdefault("problems", []).append(f"{what}: {error}")
        print(f"FAIL {what}: {error}")
    report.save()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=300)
    args = parser.parse_args()
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    clock, report = Clock(args.seconds), Report(args.out)
    cache = os.path.join(args.out, "cache")
    program = os.path.abspath(args.program)
    dtrain, torch = Dtrain(program, clock, cache), Torch(clock)
    report.data["torch"] = torch.about
    print("PyTorch: " + json.dumps(torch.about))
    part(report, "ceilings", measure_ceilings, torch)
    part(report, "comparison", compare, dtrain, torch)
    torch.close()
    part(report, "profile", profile, dtrain)
    for what, work in (("curves", curves), ("recording", recording), ("two ranks", two_ranks)):
        part(report, what, work, program, clock, cache)
    part(report, "sweep", sweep, dtrain)
    results = [report.data.get("compare", {}).get("dtrain", [])]
    failures = [r for group in results for r in group if "error" in r]
    sys.exit(1 if failures or "problems" in report.data else 0)


main()
