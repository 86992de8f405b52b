"""What freezing saves: images/s of ResNet-18 with conv1, bn1 and layer1 .. layer3 frozen against
images/s of all of it, in dtrain and in PyTorch, alternating in one run.

    python3 tests/perf/freeze_vs_torch.py BUILD/dtrain [--rounds 5] [--size 224] [--batch 16]
                                     [--threads 2] [--json FILE]

A round runs the four in turn, each in a fresh process, so that a busy machine slows all of them.
Frozen in PyTorch: requires_grad=False, batch norm in evaluation mode. Printed: medians of the
images/s, the median over the rounds of each program's ratio frozen / whole, and the ratio of the
fastest rounds, which says more if others use the machine."""

import os
import statistics
import sys
import time

import results_file
import turns

FROZEN = ["conv1", "bn1", "layer1", "layer2", "layer3"]
STEPS, WARMUP = 6, 2


def torch_worker(frozen, size, batch, threads):
    import torch
    import torchvision

    torch.set_num_threads(threads)
    model = torchvision.models.resnet18(weights=None).to(memory_format=torch.channels_last).train()
    for name in FROZEN if frozen else []:
        getattr(model, name).requires_grad_(False).eval()
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=0.01, momentum=0.9, weight_decay=1e-4)
    loss = turns.images_loss(model, batch, size, 1000)
    print(turns.torch_step_s(optimizer, loss, WARMUP, STEPS))


def run_torch(args, frozen):
    command = [sys.executable, __file__, args.program, "--worker", int(frozen)]
    for key in ("size", "batch", "threads"):
        command += [f"--{key}", getattr(args, key)]
    return float(turns.output(*command, env={**os.environ, **turns.HEAP}))


def run_dtrain(args, frozen):
    config = {
        "model": {"name": "resnet18", "num_classes": 1000, "image_size": args.size},
        "data": {"source": "synthetic", "workers": 1},
        "train": {"global_batch_size": args.batch},
        "optim": {"freeze": FROZEN if frozen else []},
        "device": {"kind": "cpu", "threads": args.threads},
        "bench": {"warmup_steps": WARMUP, "rounds": 1, "steps_per_round": STEPS},
    }
    return turns.bench(args.program, config)["step_median_s"]


def main():
    parser = turns.parser(rounds=5, size=224, batch=16, threads=2, json=None)
    parser.add_argument("--worker", type=int)
    args = parser.parse_args()
    if args.worker is not None:
        torch_worker(args.worker, args.size, args.batch, args.threads)
        return
    runs = {"dtrain": run_dtrain, "torch": run_torch}
    rates = {(name, frozen): [] for name in runs for frozen in (False, True)}
    for _ in range(args.rounds):
        for name, frozen in rates:
            rates[name, frozen].append(args.batch / runs[name](args, frozen))
    results = {key: getattr(args, key) for key in ("size", "batch", "threads")}
    results["date"] = time.strftime("%Y-%m-%d")
    for name in runs:
        whole, frozen = rates[name, False], rates[name, True]
        ratios = [b / a for a, b in zip(whole, frozen)]
        results[name] = {
            "images_per_s": statistics.median(whole),
            "images_per_s_frozen": statistics.median(frozen),
            "ratios": ratios,
            "ratio": statistics.median(ratios),
            "ratio_of_fastest": max(frozen) / max(whole),
        }
        row = results[name]
        print(
            f"{name:7} {row['images_per_s']:8.1f} images/s, frozen {row['images_per_s_frozen']:8.1f}: "
            f"{row['ratio']:.2f} times, fastest {row['ratio_of_fastest']:.2f}  "
            f"({' '.join(f'{r:.2f}' for r in ratios)})",
            flush=True,
        )
    results_file.save(args.json, results)


main()
