"""Training speed and memory of a RetinaNet in dtrain and in torchvision on this CPU, alternating in one
run.

    python3 tests/perf/detect_vs_torch.py BUILD/dtrain [--python PATH ...] [--rounds 3] [--depth 50]
                                          [--canvas 800 1088] [--batch 1 2] [--threads 2]
                                          [--precision bf16]

BUILD is one with the tests: detect_tool makes the steps. Both train version 1 with 80 classes, frozen
norms and three stages of the backbone, with SGD on the same images and eight boxes each; in
torchvision without the transform that resizes and normalises. With --precision bf16 torchvision's
forward pass runs under autocast, and dtrain trains in fp32 as well. A round runs each variant in a fresh
process. Printed: medians over the rounds of images/s, the median, lowest and highest of the ratios of
each round, and peak memory."""

import os
import resource
import statistics
import subprocess
import sys
import tempfile

import turns

BOXES, STEPS, WARMUP = 8, 3, 1


def draw_batch(batch, height, width):
    import numpy as np

    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (batch, height, width, 3), dtype=np.uint8)
    side = np.array([width, height])
    corner = rng.uniform(0, 0.7, (batch, BOXES, 2))
    far = corner + rng.uniform(0.05, 0.3, corner.shape)
    boxes = np.concatenate([corner * side, far * side], axis=2).astype(np.float32)
    labels = rng.integers(0, 80, (batch, BOXES), dtype=np.int32)
    return pixels, np.tile(np.array([height, width], np.int32), (batch, 1)), boxes, labels


def torch_worker(args, batch):
    import retinanet_torch as net
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = net.make_model(args.depth, 80).to(memory_format=torch.channels_last).train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=1e-8, momentum=0.9, weight_decay=1e-4)
    data = draw_batch(batch, *args.canvas)
    context = torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16")
    loss = context(lambda: sum(net.losses(model, *data).values()))
    print(turns.torch_step_s(optimizer, loss, WARMUP, STEPS))


def run_torch(args, batch, python):
    command = [python, __file__, args.program, "--worker", "--depth", args.depth]
    command += ["--canvas", *args.canvas, "--batch", batch, "--threads", args.threads]
    command += ["--precision", args.precision]
    return float(turns.output(*command, env={**os.environ, **turns.HEAP}))


def run_dtrain(args, batch, precision):
    tool = os.path.join(os.path.dirname(args.program), "tests", "detect_tool")
    settings = {
        "model.name": f"retinanet_resnet{args.depth}_fpn",
        "model.num_classes": 80,
        "model.trainable_layers": 3,
        "model.frozen_norm": "true",
        "train.global_batch_size": batch,
        "train.precision": precision,
        "schedule.lr": 1e-8,
        "device.threads": args.threads,
        "device.kind": "cpu",
    }
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, name) for name in ("batches", "out")]
        with open(files[0], "wb") as f:
            f.writelines(part.tobytes() for part in draw_batch(batch, *args.canvas))
        command = [tool, *map(str, args.canvas), str(BOXES), str(WARMUP + STEPS), "", *files]
        command += [f"{key}={value}" for key, value in settings.items()]
        env = dict(os.environ, DETECT_TOOL_TIMES="1")
        text = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stderr
    return statistics.median(map(float, text.split()[WARMUP : WARMUP + STEPS]))


def with_memory(work, *arguments):
    """Its result and the peak memory of its process in MB: in a child, whose children are its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        seconds = work(*arguments)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
        os.write(writer, f"{seconds} {peak}".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as f:
        text = f.read()
    os.waitpid(child, 0)
    return [float(word) for word in text.split()]


def compare(args, batch):
    variants = {"dtrain": lambda: with_memory(run_dtrain, args, batch, args.precision)}
    if args.precision == "bf16":
        variants["dtrain fp32"] = lambda: with_memory(run_dtrain, args, batch, "fp32")
    for python in args.python or [sys.executable]:
        ask = "import torch, torchvision; print(torch.__version__, torchvision.__version__)"
        versions = turns.output(python, "-c", ask)
        variants[f"torch {versions.strip()}"] = lambda p=python: with_memory(run_torch, args, batch, p)
    rounds = [{name: work() for name, work in variants.items()} for _ in range(args.rounds)]
    for name in variants:
        images_per_s = statistics.median(batch / r[name][0] for r in rounds)
        ratios = [r[name][0] / r["dtrain"][0] for r in rounds]
        print(
            f"batch {batch}: {name:28} {images_per_s:7.3f} images/s  {max(r[name][1] for r in rounds):6.0f} MB"
            f"  {turns.spread(ratios, 2)}",
            flush=True,
        )


def main():
    parser = turns.parser(rounds=3, depth=50, threads=2)
    parser.add_argument("--python", action="append")
    parser.add_argument("--canvas", type=int, nargs=2, default=[800, 1088])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--worker", action="store_true")
    args = parser.parse_args()
    for batch in args.batch:
        (torch_worker if args.worker else compare)(args, batch)


if __name__ == "__main__":
    main()
