"""Training speed and memory of dtrain and of PyTorch on this CPU, alternating in one run.

    python3 tests/perf/vs_torch.py BUILD/dtrain [--python PATH ...] [--rounds 5] [--only resnet50]
                                   [--precision bf16] [--isa AVX2] [--threads N] [--wait 600]
                                   [--json FILE]

A case is a network. In every round dtrain bench trains it, then each PyTorch: eager, and from 2.0
compiled (torch.compile; needs g++), channels_last, SGD with momentum, whole step on synthetic data,
freed memory kept in the heap; each in a fresh process. --python names a Python that has torch and
torchvision, and may be repeated. A variant that fails is skipped, with its reason. With --precision
bf16 PyTorch runs the forward pass under autocast, and dtrain trains in fp32 as well.

Before a round the script waits for up to --wait seconds until others use less than 3 % of the CPUs,
and it measures what they use during the round. --isa AVX2 limits dtrain, and PyTorch's oneDNN,
own and compiled kernels, and MKL (which on CPUs that are not Intel's may not obey).

Printed: images/s (medians over the rounds), how many times as fast dtrain is (median, lowest and
highest of the ratios of each round), peak memory of rank 0. The best variant has a star. dtrain's
share of the FMA peak (fma_peak.c, fp32) counts convolutions as direct, so that Winograd's algorithm and
bf16 may exceed it. The file is written after every case."""

import inspect
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import results_file
import turns

# case: model, image size, classes, images per rank, ranks, steps, warm-up steps
CASES = {
    "resnet50": ("resnet50", 224, 1000, 16, 1, 5, 2),
    "resnet18": ("resnet18", 224, 1000, 16, 1, 10, 3),
    "vgg16": ("vgg16", 224, 1000, 16, 1, 3, 1),
    "resnext50": ("resnext50_32x4d", 224, 1000, 16, 1, 4, 2),
    "densenet121": ("densenet121", 224, 1000, 16, 1, 4, 2),
    "mobilenet_v2": ("mobilenet_v2", 224, 1000, 16, 1, 8, 3),
    "efficientnet_b0": ("efficientnet_b0", 224, 1000, 16, 1, 6, 2),
    "convnext_tiny": ("convnext_tiny", 224, 1000, 16, 1, 3, 1),
    "resnet20": ("resnet20", 32, 10, 128, 1, 30, 5),
    "resnet50-2ranks": ("resnet50", 224, 1000, 16, 2, 4, 2),
}
QUIET, QUIET_S = 0.03, 3  # others use less than this share of the CPUs for this long
OWN_FP32 = "dtrain fp32"
LIMIT_S = 1800  # of one measurement, with its compilation
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


# --- PyTorch ---


def torch_worker(case, kind, precision, threads, rank):
    import torch
    import torch.distributed as dist
    import torchvision
    from cifar_resnet import CifarResNet

    name, size, classes, batch, ranks, steps, warmup = CASES[case]
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    model = CifarResNet() if name == "resnet20" else getattr(torchvision.models, name)(weights=None)
    model = model.to(memory_format=torch.channels_last)
    if ranks > 1:
        dist.init_process_group("gloo", rank=int(rank), world_size=ranks)
        model = torch.nn.parallel.DistributedDataParallel(model)
    if kind == "compiled":
        model = torch.compile(model)
    options = {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4}
    if "fused" in inspect.signature(torch.optim.SGD).parameters:
        options["fused"] = True
    optimizer = torch.optim.SGD(model.parameters(), **options)
    loss = turns.images_loss(model, batch, size, classes)
    if precision == "bf16":
        loss = torch.autocast("cpu", torch.bfloat16)(loss)
    step_s = turns.torch_step_s(optimizer, loss, warmup, steps)
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(json.dumps({"step_s": step_s, "rss_mb": rss_mb}), flush=True)
    if ranks > 1:
        dist.destroy_process_group()


def last_line(text, start=""):
    return ([line for line in text.splitlines() if line.startswith(start)] or ["no output"])[-1]


def find_variants(pythons):
    """Label -> (Python, eager or compiled, versions)."""
    ask = """
import json, re, torch, torchvision
onednn = re.search(r"MKL-DNN v([0-9.]+)", torch.__config__.show())
print(json.dumps({"torch": torch.__version__, "onednn": onednn and onednn[1]}))"""
    variants = {}
    for python in pythons:
        result = subprocess.run([python, "-c", ask], capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"{python} cannot be used: {last_line(result.stderr)}")
        versions = json.loads(last_line(result.stdout))
        for kind in ["eager"] + ["compiled"] * (int(versions["torch"].split(".")[0]) >= 2):
            variants[f"torch {versions['torch']} {kind}"] = (python, kind, versions)
    return variants


def run_torch(case, variant, precision, threads, port):
    """Raises RuntimeError with the reason if it fails."""
    python, kind, _ = variant
    env = ENV | turns.HEAP | {"OMP_NUM_THREADS": threads, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [python, __file__, "--worker", case, kind, precision, threads]
    logs = [tempfile.TemporaryFile("w+") for _ in range(CASES[case][4])]
    workers = [
        subprocess.Popen([*command, str(rank)], env=env, stdout=log, stderr=log)
        for rank, log in enumerate(logs)
    ]
    texts = []
    try:
        for worker, log in zip(workers, logs):
            code = worker.wait(LIMIT_S)
            log.seek(0)
            texts.append(log.read())
            if code != 0:
                raise RuntimeError(f"exit code {code}: {last_line(texts[-1])}")
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not done after {LIMIT_S} s") from None
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return json.loads(last_line(texts[0], '{"step_s"'))


# --- dtrain ---


def run_dtrain(program, case, precision, threads):
    name, size, classes, batch, ranks, steps, warmup = CASES[case]
    config = {
        "model": {"name": name, "num_classes": classes, "image_size": size},
        "data": {"source": "synthetic", "workers": 1},
        "train": {"global_batch_size": batch * ranks, "precision": precision},
        "device": {"kind": "cpu", "threads": int(threads)},
        "bench": {"warmup_steps": warmup, "rounds": 1, "steps_per_round": steps},
    }
    launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", ranks]
    data = turns.bench(program, config, launcher, ENV)
    rss_mb = data["peak_rss_bytes"] / 1e6
    return {"step_s": data["step_median_s"], "rss_mb": rss_mb, "bench": data}


# --- The machine ---


class Others:
    """CPU time of everything but this process and its children; with what a hypervisor takes."""

    def __init__(self):
        self.begin = self.now()

    def now(self):
        with open("/proc/stat") as f:
            ticks = [int(x) for x in f.readline().split()[1:9]]
        busy_s = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), busy_s - sum(os.times()[:4])

    def share(self):
        """Of all CPUs, since it was created."""
        clock_s, busy_s = (b - a for a, b in zip(self.begin, self.now()))
        return max(0.0, busy_s / (clock_s * os.cpu_count()))


def wait_for_quiet(limit_s):
    """Returns the share of others at the end."""
    begin_s = time.monotonic()
    while True:
        others = Others()
        time.sleep(QUIET_S)
        share = others.share()
        if share < QUIET or time.monotonic() - begin_s > limit_s:
            return share


def measure_fma_peak(flags, isa, threads):
    """GFLOP/s of all threads together."""
    lanes = 16 if "avx512f" in flags and not isa else 8 if "avx2" in flags else 4
    options = {16: ["-mavx512f"], 8: ["-mavx2", "-mfma"], 4: ["-msse4.1"]}[lanes]
    with tempfile.TemporaryDirectory() as folder:
        tool = os.path.join(folder, "fma_peak")
        command = ["gcc", "-std=gnu11", "-O2", "-fopenmp", f"-DLANES={lanes}", *options]
        turns.output(*command, os.path.join(turns.HERE, "fma_peak.c"), "-o", tool)
        return float(turns.output(tool, env=dict(ENV, OMP_NUM_THREADS=str(threads))))


def first_line(*command):
    result = subprocess.run(command, capture_output=True, text=True, cwd=turns.HERE)
    return (result.stdout.splitlines() or ["unknown"])[0]


def describe(args, variants):
    with open("/proc/cpuinfo") as f:
        info = f.read()
    flags = re.search(r"flags\s*:\s*(.*)", info)[1].split()
    notable = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16")
    return {
        "cpu": re.search(r"model name\s*:\s*(.*)", info)[1],
        "flags": [flag for flag in notable if flag in flags],
        "cpus": os.cpu_count(),
        "threads": args.threads,
        "limited_to": args.isa,
        "precision": args.precision,
        "fma_peak_gflops": measure_fma_peak(flags, args.isa, args.threads),
        "compiler": first_line("gcc", "--version"),
        "commit": first_line("git", "describe", "--always", "--dirty", "--abbrev=12"),
        "torch": {label: versions for label, (_, _, versions) in variants.items()},
        "command": " ".join(os.path.basename(arg) for arg in sys.argv),
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "cases": {},
    }


# --- Rounds ---


def measure(case, args, variants):
    """One (label -> result, what others used) per round, and label -> why it failed."""
    rounds, failed = [], {}
    threads = str(max(1, args.threads // CASES[case][4]))
    for number in range(args.rounds):
        before = wait_for_quiet(args.wait)
        if before >= QUIET:
            print(f"round {number + 1}: others use {before:.0%} of the CPUs", flush=True)
        others, results = Others(), {"dtrain": run_dtrain(args.program, case, args.precision, threads)}
        if args.precision != "fp32":
            results[OWN_FP32] = run_dtrain(args.program, case, "fp32", threads)
        for label in [label for label in variants if label not in failed]:
            try:
                results[label] = run_torch(case, variants[label], args.precision, threads, 29511 + number)
            except RuntimeError as e:
                failed[label] = str(e)
        rounds.append((results, {"before": before, "during": others.share()}))
    return rounds, failed


def sum_up(case, rounds, failed, peak_gflops):
    images = CASES[case][3] * CASES[case][4]
    rows = {}
    for label in [label for label in rounds[0][0] if label not in failed]:
        runs = [results[label] for results, _ in rounds]
        ratios = [run["step_s"] / r["dtrain"]["step_s"] for run, (r, _) in zip(runs, rounds)]
        rows[label] = {
            "images_per_s": statistics.median(images / run["step_s"] for run in runs),
            "ratios": ratios,
            "ratio": statistics.median(ratios),
            "rss_mb": max(run["rss_mb"] for run in runs),
        }
    ours, bench = rows.pop("dtrain"), rounds[-1][0]["dtrain"]["bench"]
    own = {label: rows.pop(label) for label in [OWN_FP32] if label in rows}
    flops = bench["flops_per_step"] / images * ours["images_per_s"]
    return {
        "dtrain_images_per_s": ours["images_per_s"],
        "dtrain_rss_mb": ours["rss_mb"],
        "peak_share": flops / 1e9 / peak_gflops,
        "best": max(rows, key=lambda label: rows[label]["images_per_s"], default=None),
        "own": own,
        "torch": rows,
        "failed": failed,
        "others": [share for _, share in rounds],
        "bench": bench,
    }


def print_row(case, row):
    during = max(share["during"] for share in row["others"])
    print(
        f"{case}: dtrain {row['dtrain_images_per_s']:.2f} images/s, {row['peak_share']:.0%} of the "
        f"FMA peak, {row['dtrain_rss_mb']:.0f} MB; others used up to {during:.0%} of the CPUs"
    )
    for label, v in {**row["own"], **row["torch"]}.items():
        print(
            f"  {'*' if label == row['best'] else ' '} {label:30} {v['images_per_s']:8.2f} images/s"
            f"  {turns.spread(v['ratios'], 2)}"
            f"  {v['rss_mb']:6.0f} MB"
        )
    for label, reason in row["failed"].items():
        print(f"    {label:30} skipped: {reason}")
    sys.stdout.flush()


def main():
    parser = turns.parser(rounds=5, threads=len(os.sched_getaffinity(0)), wait=600.0, json=None)
    parser.add_argument("--python", action="append")
    parser.add_argument("--only", action="append", choices=CASES)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--isa", choices=["AVX2"])
    args = parser.parse_args()
    if args.isa:
        ENV.update(ONEDNN_MAX_CPU_ISA="AVX2", ATEN_CPU_CAPABILITY="avx2")
        ENV.update(TORCHINDUCTOR_CPP_MARCH="haswell", MKL_ENABLE_INSTRUCTIONS="AVX2")
    variants = find_variants(args.python or [sys.executable])
    wait_for_quiet(args.wait)
    result = describe(args, variants)
    print(f"{result['cpu']}: FMA peak {result['fma_peak_gflops']:.0f} GFLOP/s", flush=True)
    for case in args.only or CASES:
        row = sum_up(case, *measure(case, args, variants), result["fma_peak_gflops"])
        result["cases"][case] = row
        print_row(case, row)
        results_file.save(args.json, result)


if sys.argv[1:2] == ["--worker"]:
    torch_worker(*sys.argv[2:])
else:
    main()
