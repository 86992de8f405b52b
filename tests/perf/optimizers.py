"""What an optimizer costs on the CPU: GB/s of its update against a plain loop over the same arrays, and
images/s of training against SGD's, alternating in one run.

    python3 tests/perf/optimizers.py BUILD/dtrain [--rounds 5] [--threads 2] [--json FILE]

Bytes per parameter are the least that the optimizer can do with (optim_tool.c). A round trains with
every optimizer in turn, each in a fresh process; printed are medians, and of images/s the median over
the rounds of the ratio to SGD."""

import os
import statistics
import time

import results_file
import turns

OPTIMIZERS = ["sgd", "lars", "lamb", "adamw", "adam", "rmsprop"]
MODEL = {"name": "resnet18", "num_classes": 1000, "image_size": 64}
BATCH = 8


def updates(args):
    tool = os.path.join(os.path.dirname(os.path.abspath(args.program)), "tests", "optim_tool")
    lines = turns.output(tool, 16, args.threads, 31).splitlines()
    return {name: (int(size), float(rate)) for name, size, rate in map(str.split, lines)}


def images_per_s(args, optimizer):
    config = {
        "model": MODEL,
        "data": {"source": "synthetic", "workers": 1},
        "train": {"global_batch_size": BATCH},
        "optim": {"name": optimizer},
        "device": {"kind": "cpu", "threads": args.threads},
        "bench": {"warmup_steps": 1, "rounds": 1, "steps_per_round": 4},
    }
    return BATCH / turns.bench(args.program, config)["step_median_s"]


def main():
    args = turns.parser(rounds=5, threads=2, json=None).parse_args()
    speeds = updates(args)
    rates = {name: [] for name in OPTIMIZERS}
    for _ in range(args.rounds):
        for name in OPTIMIZERS:
            rates[name].append(images_per_s(args, name))
    results = {"date": time.strftime("%Y-%m-%d"), "threads": args.threads, "rounds": args.rounds}
    for name in OPTIMIZERS:
        size, rate = speeds[name]
        loop = speeds["loop1" if name in ("sgd", "lars") else "loop2"][1]
        ratio = statistics.median(a / b for a, b in zip(rates[name], rates["sgd"]))
        results[name] = {
            "bytes_per_parameter": size,
            "gb_per_s": rate,
            "loop_gb_per_s": loop,
            "images_per_s": statistics.median(rates[name]),
            "ratio_to_sgd": ratio,
        }
        print(
            f"{name:8} {size} B per parameter at {rate:.1f} GB/s, {rate / loop:.0%} of a plain loop; "
            f"{results[name]['images_per_s']:.1f} images/s, {ratio:.3f} of sgd",
            flush=True,
        )
    results_file.save(args.json, results)


main()
