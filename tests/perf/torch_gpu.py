"""PyTorch on the GPU, as a server of measurements: one request a line on stdin, one JSON answer a
line on stdout. gpu_check.py starts it once, so that dtrain and PyTorch can be measured in turns.

    images NETWORK MODE PRECISION BATCH SECONDS
                 training of one of torchvision's networks, images per second of synthetic data that
                 lie in GPU memory, channels_last; detectors: 800 x 1088, eight boxes each;
                 MODE: eager, compile (torch.compile) or graph (a CUDA graph);
                 PRECISION: fp16 (AMP, GradScaler), bf16 (AMP), tf32 or fp32
    copy         bytes per second of a device-to-device copy, read + written
    matmul TYPE  floating-point operations per second of an 8192^3 product
"""

import json
import sys
import time

import torch
import torchvision

MODES = ("eager", "compile", "graph")
AUTOCAST = {"fp16": torch.half, "bf16": torch.bfloat16, "tf32": None, "fp32": None}


class Trainer:
    """One model and its optimizer; a step is forward, backward and update."""

    def __init__(self, network, mode, precision, batch):
        torch.manual_seed(1)
        torch.backends.cudnn.benchmark = True
        self.tf32 = precision == "tf32"
        self.dtype = AUTOCAST[precision]
        self.set_tf32()
        self.is_detector = network.startswith("retinanet")
        options = {"weights_backbone": None, "num_classes": 80} if self.is_detector else {}
        model = torchvision.models.get_model(network, weights=None, **options).cuda().train()
        self.model = model.to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True
        )
        self.scaler = torch.amp.GradScaler("cuda", enabled=self.dtype == torch.half)
        self.draw(batch)
        self.batch = batch
        self.forward = torch.compile(self.loss) if mode == "compile" else self.loss
        self.graph = None
        for _ in range(3):
            self.step()
        if mode == "graph":
            self.capture()
        torch.cuda.synchronize()

    def set_tf32(self):
        torch.backends.cuda.matmul.allow_tf32 = self.tf32
        torch.backends.cudnn.allow_tf32 = self.tf32

    def draw(self, batch):
        """The images in x; in y labels, or the boxes and labels of each image."""
        size = (800, 1088) if self.is_detector else (224, 224)
        self.x = torch.rand(batch, 3, *size, device="cuda")
        self.x = self.x.contiguous(memory_format=torch.channels_last)
        if self.is_detector:
            corner = torch.rand(batch, 8, 2, device="cuda") * 700
            boxes = torch.cat([corner, corner + 20 + torch.rand_like(corner) * 80], 2)
            labels = torch.randint(0, 80, (batch, 8), device="cuda")
            self.y = [{"boxes": b, "labels": l} for b, l in zip(boxes, labels)]
        else:
            self.y = torch.randint(0, 1000, (batch,), device="cuda")

    def loss(self):
        with torch.autocast("cuda", dtype=self.dtype or torch.half, enabled=self.dtype is not None):
            if self.is_detector:
                return sum(self.model(list(self.x), self.y).values())
            return torch.nn.functional.cross_entropy(self.model(self.x), self.y)

    def step(self):
        if self.graph:
            self.graph.replay()
        else:
            self.optimizer.zero_grad(set_to_none=True)
            self.scaler.scale(self.forward()).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def capture(self):
        """Forward and backward as one graph; the update and its GradScaler stay outside."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.optimizer.zero_grad(set_to_none=True)
            self.scaler.scale(self.loss()).backward()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self.scaler.scale(self.loss()).backward()
        self.graph = graph

    def images_per_s(self, seconds):
        self.set_tf32()
        self.step()
        return self.batch / mean_s(self.step, seconds)


def mean_s(work, least_s):
    torch.cuda.synchronize()
    start, n = time.perf_counter(), 0
    while time.perf_counter() - start < least_s:
        for _ in range(5):
            work()
        torch.cuda.synchronize()
        n += 5
    return (time.perf_counter() - start) / n


def seconds_of(work):
    """Mean over half a second, after a third of a second in which the clocks rise."""
    mean_s(work, 0.3)
    return mean_s(work, 0.5)


def copy():
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda").zero_()
    target = torch.empty_like(source)
    return {"bytes_per_s": 2 * (1 << 30) / seconds_of(lambda: target.copy_(source))}


def matmul(kind):
    dtype = {"fp16": torch.half, "bf16": torch.bfloat16, "tf32": torch.float, "fp32": torch.float}
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    n = 8192 if kind != "fp32" else 4096
    a = torch.randn(n, n, device="cuda", dtype=dtype[kind])
    b = torch.randn(n, n, device="cuda", dtype=dtype[kind])
    return {"flops_per_s": 2 * n**3 / seconds_of(lambda: a @ b)}


def answer(request, trainers):
    words = request.split()
    if words[0] == "copy":
        return copy()
    if words[0] == "matmul":
        return matmul(words[1])
    what, seconds = (*words[1:4], int(words[4])), float(words[5])
    if what[1] not in MODES:
        raise ValueError(f"no such mode: {what[1]}")
    if isinstance(trainers.get(what), str):
        raise RuntimeError(trainers[what])
    if what not in trainers:
        torch.cuda.empty_cache()
        trainers[what] = "it failed before"  # not tried again
        trainers[what] = Trainer(*what)
    images_per_s = trainers[what].images_per_s(seconds)
    torch.cuda.empty_cache()  # dtrain needs the memory next
    return {"images_per_s": images_per_s}


def main():
    trainers = {}
    ready = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    print(json.dumps({**ready, "device": torch.cuda.get_device_name()}), flush=True)
    for request in sys.stdin:
        try:
            print(json.dumps(answer(request, trainers)), flush=True)
        except Exception as error:  # told to the other side, which goes on without this number
            torch.cuda.empty_cache()
            print(json.dumps({"error": f"{type(error).__name__}: {error}"[:500]}), flush=True)


main()
