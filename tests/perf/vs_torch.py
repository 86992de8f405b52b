"""Training speed and memory of dtrain and PyTorch on this CPU, alternating in one run.

    python3 tests/perf/vs_torch.py BUILD/dtrain [--rounds 3] [--only resnet50] [--json FILE]

Per case and round: dtrain bench, then the same network in PyTorch (channels_last, SGD momentum,
whole step on synthetic data, freed memory kept in the heap), each in a fresh process. Printed:
images/s of both (median over the rounds), the ratio per round and its median, peak memory."""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# case: model, image size, classes, images per rank, ranks, steps, warm-up steps
CASES = {
    "resnet50": ("resnet50", 224, 1000, 16, 1, 5, 2),
    "resnet18": ("resnet18", 224, 1000, 16, 1, 10, 3),
    "resnet20": ("resnet20", 32, 10, 128, 1, 30, 5),
    "resnet50-2ranks": ("resnet50", 224, 1000, 16, 2, 4, 2),
}


def torch_worker(case, rank, port):
    import torch
    import torch.distributed as dist
    import torchvision

    sys.path.insert(0, os.path.join(HERE, "..", "support"))
    from cifar_resnet import CifarResNet

    name, size, classes, batch, ranks, steps, warmup = CASES[case]
    torch.set_num_threads(2 if ranks == 1 else 1)
    torch.manual_seed(1)
    model = CifarResNet() if name == "resnet20" else getattr(torchvision.models, name)(weights=None)
    model = model.to(memory_format=torch.channels_last)
    if ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=ranks)
        model = torch.nn.parallel.DistributedDataParallel(model)
    x = torch.randn(batch, 3, size, size).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, classes, (batch,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    times = []
    for _ in range(warmup + steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    if rank == 0:
        print(
            json.dumps(
                {
                    "step_s": statistics.median(times[warmup:]),
                    "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                }
            )
        )


def run_torch(case, port):
    env = dict(
        os.environ,
        MALLOC_MMAP_MAX_="0",
        MALLOC_TRIM_THRESHOLD_=str(1 << 40),
        OMP_NUM_THREADS="2" if CASES[case][4] == 1 else "1",
    )
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", case, "--rank", str(rank), "--port", str(port)],
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(CASES[case][4])
    ]
    outputs = [worker.communicate()[0] for worker in workers]
    return json.loads(outputs[0])


def run_dtrain(program, case):
    name, size, classes, batch, ranks, steps, warmup = CASES[case]
    sets = {
        "model.name": name,
        "model.num_classes": classes,
        "model.image_size": size,
        "data.source": "synthetic",
        "train.global_batch_size": batch * ranks,
        "device.threads": 2 if ranks == 1 else 1,
        "data.workers": 1,
        "bench.warmup_steps": warmup,
        "bench.rounds": 1,
        "bench.steps_per_round": steps,
    }
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with tempfile.TemporaryDirectory() as folder:
        config, result = os.path.join(folder, "config.json"), os.path.join(folder, "result.json")
        with open(config, "w") as f:
            f.write("{}")
        command = [
            "mpirun",
            "--oversubscribe",
            "--bind-to",
            "none",
            "-np",
            str(ranks),
            program,
            "bench",
            "--config",
            config,
            "--json",
            result,
        ]
        for key, value in sets.items():
            command += ["--set", f"{key}={value}"]
        subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)
        with open(result) as f:
            data = json.load(f)
    return {
        "step_s": data["step_median_s"],
        "rss_mib": data["peak_rss_bytes"] / 2**20,
        "bench": data,
    }


def cpu_name():
    with open("/proc/cpuinfo") as f:
        return re.search(r"model name\s*:\s*(.*)", f.read())[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append")
    parser.add_argument("--json")
    parser.add_argument("--worker")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--port", type=int, default=29511)
    args = parser.parse_args()
    if args.worker:
        return torch_worker(args.worker, args.rank, args.port)
    results = {"cpu": cpu_name(), "date": time.strftime("%Y-%m-%d"), "cases": {}}
    print(
        f"{'case':16} {'dtrain img/s':>13} {'torch img/s':>12} {'ratio':>6}  rounds{'':14} MiB dtrain / torch"
    )
    for case in args.only or CASES:
        images = CASES[case][3] * CASES[case][4]
        ours, theirs = [], []
        for round_ in range(args.rounds):
            ours.append(run_dtrain(args.program, case))
            theirs.append(run_torch(case, args.port + round_))
        ratios = [t["step_s"] / o["step_s"] for o, t in zip(ours, theirs)]
        row = {
            "dtrain_images_per_s": statistics.median(images / o["step_s"] for o in ours),
            "torch_images_per_s": statistics.median(images / t["step_s"] for t in theirs),
            "ratios": ratios,
            "ratio": statistics.median(ratios),
            "dtrain_rss_mib": max(o["rss_mib"] for o in ours),
            "torch_rss_mib": max(t["rss_mib"] for t in theirs),
            "bench": ours[-1]["bench"],
        }
        results["cases"][case] = row
        print(
            f"{case:16} {row['dtrain_images_per_s']:13.2f} {row['torch_images_per_s']:12.2f} "
            f"{row['ratio']:6.2f}  {' '.join(f'{r:.2f}' for r in ratios):20} "
            f"{row['dtrain_rss_mib']:.0f} / {row['torch_rss_mib']:.0f}",
            flush=True,
        )
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=2)
    return None


main()
