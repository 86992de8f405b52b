"""RetinaNet in torchvision and in dtrain: the same weights and batches.

    python3 test_retinanet.py BUILD/dtrain [cpu|cuda [full]]     full: also what takes minutes

Against torchvision's network, in one case in fp64 but with its matching in fp32 as in its own training:
both losses of the first and the last step, every gradient of the first step in norm, those of the
shared heads included, and that frozen tensors keep their bits; and its detections. The weights are
such that few inputs of ReLU are near its kink at 0, and batches are tried until none is so near that
rounding decides, as in test_torch_parity.py.

A detection is compared if torchvision finds it in fp32 and in the reference: the others, near-ties of
scores or overlaps, are left out and counted. Label: numeric."""

import copy
import os
import sys
import tempfile
import typing

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from torch_rig import check_batches, excess, np, save_model, sections, sgd, tool, torch, worst  # noqa: E402
import retinanet_torch as net  # noqa: E402
import torchvision  # noqa: E402

DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cpu"
MAX_BOXES, MAX_BATCHES, MAX_CLEAN = 6, 40, 4
CLEAN = {"gradient": 3e-5}
BOUND = {"first loss": 1e-5, "last loss": 1e-5, "gradient": 1e-4}
BOX, SCORE, MAX_TIES = 1e-2, 1e-5, 0.1


class Case(typing.NamedTuple):
    depth: int
    height: int
    width: int
    batch: int
    steps: int
    channels: int = 256
    classes: int = 80
    base: int = 32
    v2: bool = False
    frozen_norm: bool = True
    trainable: int = 3
    normalizer: str = "image"
    offset: float = 3.0  # of the inputs of ReLU from 0, in standard deviations
    exact: torch.dtype = torch.float32  # of the reference: good to 5e-6; fp64 takes ten times as long


# 160 x 288 is, as 800 x 1088, where strides are not powers of two: the last levels have 3 x 5 and 2 x 3
# places, and the first two have more than 1000 anchors, of which only the best 1000 count.
CASES = [
    Case(18, 96, 64, 3, 3, 32, classes=20, base=16, normalizer="global", exact=torch.float64),
    Case(18, 160, 288, 1, 1, channels=16, classes=8, offset=4.0),
    Case(18, 128, 160, 2, 2, channels=64, classes=5, base=16, v2=True, frozen_norm=False, trainable=5),
]
FULL = [
    Case(18, 256, 192, 2, 10, exact=torch.float64),
    Case(50, 256, 192, 1, 10, exact=torch.float64),
    Case(18, 800, 1088, 1, 10, offset=4.0),
    Case(50, 800, 1088, 1, 10, offset=4.0),
    Case(50, 256, 192, 2, 10, classes=91, v2=True, frozen_norm=False, trainable=5),
]
if "ONEDNN_MAX_CPU_ISA" in os.environ:
    CASES = CASES[:1]
LR = 3e-6


class Batch(typing.NamedTuple):
    pixels: np.ndarray
    sizes: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray

    def valid(self, values):
        return [v[l >= 0] for v, l in zip(values, self.labels)]


def draw_batch(case, index):
    """Smooth noise with boxes; the second image has none, and none fills its canvas but the first."""
    rng = np.random.default_rng(index)
    shape = (case.batch, case.height, case.width, 3)
    coarse = rng.integers(0, 256, (case.batch, case.height // 8, case.width // 8, 3))
    pixels = coarse.repeat(8, 1).repeat(8, 2) + rng.integers(-40, 40, shape)
    sizes = np.array([[case.height - 24 * i, case.width - 8 * i] for i in range(case.batch)], np.int32)
    side = sizes[:, None, ::-1].astype(np.float32)
    corner = rng.uniform(0, 0.7, (case.batch, MAX_BOXES, 2)).astype(np.float32)
    far = corner + rng.uniform(0.05, 0.3, corner.shape).astype(np.float32)
    boxes = np.concatenate([corner * side, far * side], axis=2)
    labels = rng.integers(0, case.classes, (case.batch, MAX_BOXES), dtype=np.int32)
    labels[0, 3] = -1
    labels[1:2] = -1
    return Batch(pixels.clip(0, 255).astype(np.uint8), sizes, boxes.astype(np.float32), labels)


def calibrate(model, offset):
    """One forward pass, then: norms with the statistics of that batch, inputs of ReLU with half of the
    channels mostly above and half mostly below 0, and logits of which some are above the threshold."""

    def away_from_zero(n):
        return torch.tensor([offset, -offset]).repeat((n + 1) // 2)[:n]

    def normalised(conv, target):
        def hook(module, inputs, output):
            handle.remove()  # the heads run once per level
            std, mean = torch.std_mean(output, (0, 2, 3))
            conv.weight /= std[:, None, None, None]
            conv.bias.copy_((conv.bias - mean) / std + target)
            return (output - mean[:, None, None]) / std[:, None, None] + target[:, None, None]

        handle = conv.register_forward_hook(hook)

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
        if isinstance(module, (torch.nn.BatchNorm2d, torch.nn.GroupNorm)):
            module.bias.copy_(away_from_zero(len(module.bias)))
        elif isinstance(module, torch.nn.Conv2d) and module.bias is not None:
            if name.endswith("cls_logits"):
                normalised(module, torch.full((module.out_channels,), -4.5))
            elif ".conv." in name or name.endswith("p6"):
                normalised(module, away_from_zero(module.out_channels))


def make_model(case):
    """Random weights in a network that is as alive as a trained one."""
    torch.manual_seed(case.depth)
    kinds = {"v2": case.v2, "trainable": case.trainable}
    model = net.make_model(case.depth, case.classes, case.channels, case.base, case.frozen_norm, **kinds)
    other = net.make_model(case.depth, case.classes, case.channels, case.base, False, **kinds)
    other.load_state_dict(model.state_dict(), strict=False)
    batch = draw_batch(case, 999)
    with torch.no_grad():
        calibrate(other, case.offset)
        net.run_network(other, batch.pixels, batch.sizes)
    state = {k: v for k, v in other.state_dict().items() if "num_batches" not in k or not case.frozen_norm}
    model.load_state_dict(state, strict=True)
    return model


class Result(typing.NamedTuple):
    losses: list  # (class, box) of every step
    gradients: dict  # of step 1


def torch_steps(case, start, batch, dtype):
    model = copy.deepcopy(start).to(dtype)
    model.train()
    params = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    optimizer = sgd([p for _, p in params], LR, 1e-4)
    boxes, labels = batch.valid(batch.boxes), batch.valid(batch.labels)
    result = Result([], {})
    for step in range(case.steps):
        optimizer.zero_grad()
        both = list(net.losses(model, batch.pixels, batch.sizes, boxes, labels).values())
        if case.normalizer == "global":
            both = globally(model, batch, both, boxes, labels)
        sum(both).backward()
        if step == 0:
            result.gradients.update((n, p.grad.numpy().copy()) for n, p in params)
        optimizer.step()
        result.losses.append([loss.item() for loss in both])
        yield result


def globally(model, batch, both, boxes, labels):
    """Sum over the images / foreground anchors of all, from torchvision's losses of single images."""
    outputs, anchors, _ = net.run_network(model, batch.pixels, batch.sizes)
    counts = [int((net.match(model, torch.from_numpy(b), a) >= 0).sum()) for b, a in zip(boxes, anchors)]
    sums = [0, 0]
    for i, count in enumerate(counts):
        one = slice(i, i + 1)
        own = net.losses(model, batch.pixels[one], batch.sizes[one], boxes[one], labels[one])
        sums = [s + loss * max(1, count) for s, loss in zip(sums, own.values())]
    return [s / max(1, sum(counts)) for s in sums]


def settings(case):
    values = {
        "model.name": f"retinanet_resnet{case.depth}_fpn",
        "model.num_classes": case.classes,
        "model.fpn_channels": case.channels,
        "model.anchor_base": case.base,
        "model.trainable_layers": case.trainable,
        "model.frozen_norm": str(case.frozen_norm).lower(),
        "model.p6_from": "c5" if case.v2 else "p5",
        "model.head_norm": "group" if case.v2 else "none",
        "train.box_loss": "giou" if case.v2 else "l1",
        "train.loss_normalizer": case.normalizer,
        "train.global_batch_size": case.batch,
        "schedule.lr": LR,
        "optim.momentum": 0.9,
        "optim.weight_decay": 1e-4,
        "device.kind": DEVICE,
    }
    return [f"{key}={value}" for key, value in values.items()]


def dtrain(case, model, batch, folder, steps):
    files = [os.path.join(folder, name) for name in ("weights", "batches", "out")]
    save_model(files[0], model)
    with open(files[1], "wb") as f:
        f.writelines(part.tobytes() for part in batch)
    text = tool("detect_tool", case.height, case.width, MAX_BOXES, steps, *files, *settings(case))
    return [list(map(float, line.split())) for line in text.splitlines()], files[2]


def dtrain_steps(case, model, batch, folder):
    lines, out = dtrain(case, model, batch, folder, case.steps)
    values = sections(out)
    check_frozen(case, model, values)
    return Result(lines[: case.steps], values["grad"])


def check_frozen(case, model, values):
    """Neither gradients nor a change of a bit; everything else has a gradient."""
    before = {k: v.numpy() for k, v in model.state_dict().items()}
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    if trained != set(values["grad"]):
        sys.exit(f"gradients of {trained ^ set(values['grad'])}")
    for name, value in {**values["param"], **(values["stat"] if case.frozen_norm else {})}.items():
        if name in trained and not values["grad"][name].any():
            sys.exit(f"{name} has no gradient")
        if name not in trained and not np.array_equal(value, before[name]):
            sys.exit(f"{name} is frozen but has changed")


def errors_of(ours, exact):
    apart = [max(abs(a / b - 1) for a, b in zip(*pair)) for pair in zip(ours.losses, exact.losses)]
    return {
        "first loss": (apart[0], f"{exact.losses[0]}"),
        "last loss": (apart[-1], f"{exact.losses[-1]}"),
        "gradient": worst(ours.gradients, exact.gradients),
    }


def clean_batches(case, model):
    """Batches whose first gradients are away from all kinks, and the result in fp64."""
    for i in range(MAX_BATCHES):
        batch = draw_batch(case, i)
        exact, own = (torch_steps(case, model, batch, dtype) for dtype in (case.exact, torch.float32))
        first = next(exact)
        if case.exact == torch.float32 or excess(errors_of(next(own), first), CLEAN) <= 1:
            for first in exact:
                pass
            yield i, batch, first


def check_steps(case, model, folder):
    def errors(batch, exact):
        (first, _), *_, (last, _) = exact.losses + exact.losses
        if case.steps > 1 and abs(last / first - 1) < 20 * BOUND["last loss"]:
            sys.exit(f"the class loss hardly moves, from {first} to {last}")
        return errors_of(dtrain_steps(case, model, batch, folder), exact)

    return check_batches(" ", clean_batches(case, model), errors, BOUND, MAX_CLEAN)


def rows_of(found):
    return [
        np.column_stack([d["boxes"].numpy(), d["scores"].numpy(), d["labels"].numpy()]) for d in found
    ]


def partner(row, rows):
    """Whether rows have the same detection."""
    near = np.abs(rows[:, :4] - row[:4]).max(axis=1, initial=0) <= BOX
    return bool((near & (np.abs(rows[:, 4] - row[4]) <= SCORE) & (rows[:, 5] == row[5])).any())


def check_detections(case, model, folder):
    batch = draw_batch(case, 7)
    model.eval()
    wanted = rows_of(net.detections(model, batch.pixels, batch.sizes))
    exact = wanted
    if case.exact != torch.float32:
        exact = rows_of(net.detections(copy.deepcopy(model).to(case.exact), batch.pixels, batch.sizes))
    lines, _ = dtrain(case, model, batch, folder, 0)
    lines = np.array(lines).reshape(-1, 7)
    n = n_ties = n_missing = n_extra = 0
    for image in range(case.batch):
        ours = lines[lines[:, 0] == image][:, 1:]
        stable = [row for row in wanted[image] if partner(row, exact[image])]
        n += len(stable)
        n_ties += len(wanted[image]) - len(stable)
        n_missing += sum(not partner(row, ours) for row in stable)
        n_extra += sum(not partner(row, wanted[image]) and not partner(row, exact[image]) for row in ours)
    print(f"  detections {n}, missing {n_missing}, extra {n_extra}, near-ties left out {n_ties}", flush=True)
    return n > 20 and n_missing == 0 and n_extra <= n_ties <= MAX_TIES * n


def main():
    cases = FULL if "full" in sys.argv else CASES
    print(f"torchvision {torchvision.__version__}")
    good = True
    for case in cases:
        print(f"resnet{case.depth} {case.height}x{case.width} {'v2' if case.v2 else 'v1'} {case}")
        model = make_model(case)
        with tempfile.TemporaryDirectory() as folder:
            good = check_steps(case, model, folder) and good
            good = check_detections(case, model, folder) and good
    return 0 if good else 1


if __name__ == "__main__":
    torch.set_num_threads(2)
    sys.exit(main())
