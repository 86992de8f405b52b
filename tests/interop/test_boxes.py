"""Boxes as torchvision has them.

    python3 test_boxes.py BUILD/dtrain

The op match gives torchvision's integers: Matcher(0.5, 0.4) of torchvision.ops.box_iou in fp32, with and
without low-quality matches, over the anchors of its AnchorGenerator, on 500 random sets of images with
ties, duplicates, no boxes, full tables, boxes far outside, tiny and huge ones.

Images of a detector get torchvision's sizes, to the pixel, and their boxes its boxes, to rounding:
GeneralizedRCNNTransform over images of random sizes, at the sizes of its recipes. torchvision 0.14
divided in fp32, which makes every second size a pixel smaller: its own sizes must then be those of that rule."""

import math
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from torch_rig import np, tool, tool_path, torch  # noqa: E402
import retinanet_torch as net  # noqa: E402
from torchvision.models.detection._utils import Matcher  # noqa: E402
from torchvision.models.detection.image_list import ImageList  # noqa: E402
from torchvision.models.detection.transform import GeneralizedRCNNTransform  # noqa: E402
from torchvision.ops import box_iou  # noqa: E402

IMAGES = 60
SIDES = ((800, 1333), (480, 1333), (640, 1333), (224, 320))
SETS = 500


def make_anchors(height, width, base, grids):
    images = ImageList(torch.zeros(1, 3, height, width), [(height, width)])
    return net.anchor_generator(base, len(grids))(images, [torch.zeros(1, 1, *grid) for grid in grids])[0]


def draw_boxes(rng, n, height, width, anchors):
    """x1 y1 x2 y2, x1 < x2 and y1 < y2, of one of several kinds each."""
    side = np.array([width, height])
    boxes = np.zeros((n, 4), np.float32)
    for i in range(n):
        kind = rng.integers(9)
        low = rng.random(2) * side
        size = 0.5 + rng.random(2) ** 3 * side
        if kind == 0 and i > 0:  # twice
            boxes[i] = boxes[rng.integers(i)]
            continue
        if kind == 1:  # an anchor, or one moved a little: many exact ties
            boxes[i] = anchors[rng.integers(len(anchors))] + rng.integers(-1, 2) * rng.integers(5)
            continue
        if kind == 2:  # outside every anchor
            low = side * 4 + 2000 * rng.random(2) + 5000
        if kind == 3:
            size = 1e-3 + rng.random(2) * 1e-2
        if kind == 4:
            low, size = -3 * side * rng.random(2), 20 * side * (0.5 + rng.random(2))
        if kind in (5, 6):  # whole pixels, symmetric to places
            low, size = np.floor(low / 8) * 8, 8 * np.ceil(size / 8)
        boxes[i] = np.concatenate([low, low + size])
    return boxes


def draw_set(rng):
    height, width = (int(v) for v in rng.integers(24, 140, 2))
    levels = int(rng.integers(1, 6))
    grids = [(-(-height // (8 << i)), -(-width // (8 << i))) for i in range(levels)]
    base = int(rng.choice([8, 16, 32]))
    anchors = make_anchors(height, width, base, grids)
    images, slots = int(rng.integers(1, 4)), int(rng.choice([1, 3, 8, 20, 60]))
    labels = rng.integers(0, 80, (images, slots)).astype(np.int32)
    labels[rng.random(labels.shape) < rng.choice([0, 0.3, 0.9, 1], p=[0.3, 0.4, 0.2, 0.1])] = -1
    boxes = np.stack([draw_boxes(rng, slots, height, width, anchors.numpy())
                      for _ in range(images)])
    low_quality = int(rng.random() < 0.7)
    head = [levels, height, width, base, low_quality, images, slots]
    data = np.array(head + [v for grid in grids for v in grid], np.int32).tobytes()
    return data + boxes.tobytes() + labels.tobytes(), (anchors, boxes, labels, bool(low_quality))


def torchvision_match(anchors, boxes, labels, low_quality):
    """Slots instead of the boxes' numbers, as dtrain counts."""
    slots = np.flatnonzero(labels >= 0)
    if len(slots) == 0:
        return np.full(len(anchors), -1)
    matcher = Matcher(0.5, 0.4, allow_low_quality_matches=low_quality)
    match = matcher(box_iou(torch.from_numpy(boxes[slots]), anchors)).numpy()
    return np.where(match >= 0, slots[np.maximum(match, 0)], match)


def check_matches():
    rng = np.random.default_rng(18)
    sets = [draw_set(rng) for _ in range(SETS)]
    data = b"".join(data for data, _ in sets)
    out = subprocess.run([tool_path("match_tool")], input=data, stdout=subprocess.PIPE, check=True).stdout
    at, n_anchors, n_found, n_between = 0, 0, 0, 0
    for i, (_, (anchors, boxes, labels, low_quality)) in enumerate(sets):
        n = len(labels) * len(anchors)
        got = np.frombuffer(out, np.int32, n, at).reshape(len(labels), -1)
        count = np.frombuffer(out, np.float32, len(labels), at + 4 * n)
        at += 4 * (n + len(labels))
        for image in range(len(labels)):
            want = torchvision_match(anchors, boxes[image], labels[image], low_quality)
            wrong = np.flatnonzero(got[image] != want)
            assert len(wrong) == 0, (i, image, wrong[:5], got[image][wrong[:5]], want[wrong[:5]])
            assert count[image] == (want >= 0).sum(), (i, image, count[image])
            n_found += int((want >= 0).sum())
            n_between += int((want == -2).sum())
        n_anchors += n
    assert at == len(out) and n_found > 10000 and n_between > 5000, (n_found, n_between)
    print(f"{SETS} sets, {n_anchors} anchors: {n_found} foreground, {n_between} in between: equal")


def draw_cases(rng):
    usual = [(640, 480), (480, 640), (640, 427), (500, 375), (333, 500), (640, 640), (1, 1), (7, 2000)]
    for width, height in usual + [(rng.randint(1, 1500), rng.randint(1, 1500)) for _ in range(IMAGES - len(usual))]:
        x, y = rng.uniform(0, 0.9 * width), rng.uniform(0, 0.9 * height)
        yield width, height, x, y, rng.uniform(0.1, 0.99) * (width - x), rng.uniform(0.1, 0.99) * (height - y)


def theirs(case, transform):
    width, height, x, y, w, h = case
    target = {"boxes": torch.tensor([[x, y, x + w, y + h]])}
    image, target = transform.resize(torch.zeros(1, height, width), target)
    return [image.shape[2], image.shape[1]], target["boxes"][0].tolist()


def todays(sides, width, height):
    ratio = min(sides[0] / min(width, height), sides[1] / max(width, height))
    return [math.floor(width * ratio), math.floor(height * ratio)]


def as_in_0_14(sides, width, height):
    fp32 = np.float32
    ratios = (fp32(side) * (fp32(1) / fp32(f(width, height))) for side, f in zip(sides, (min, max)))
    ratio = float(min(ratios))
    return [math.floor(width * ratio), math.floor(height * ratio)]


def rule():
    """That of the torchvision at hand: the two give 640 x 427 another height."""
    size, _ = theirs((640, 427, 0, 0, 1, 1), GeneralizedRCNNTransform(800, 1333, [0.0], [1.0]))
    return next(rule for rule in (todays, as_in_0_14) if rule((800, 1333), 640, 427) == size)


def check_placements():
    failed = 0
    of_torchvision = rule()
    for sides in SIDES:
        cases = list(draw_cases(random.Random(sides[0])))
        transform = GeneralizedRCNNTransform(*sides, [0.0], [1.0])
        text = "".join(" ".join(map(repr, case)) + "\n" for case in cases)
        lines = tool("placement_tool", *sides, input=text).splitlines()
        assert len(lines) == len(cases), f"{len(lines)} lines for {len(cases)} images"
        worst = 0.0
        for case, line in zip(cases, lines):
            numbers = [float(word) for word in line.split()]
            want = [max(1, side) for side in todays(sides, *case[:2])]
            size, box = theirs(case, transform)
            box = [value * want[i % 2] / size[i % 2] for i, value in enumerate(box)]
            error = max(abs(a - b) / max(1, abs(b)) for a, b in zip(numbers[2:], box))
            worst = max(worst, error)
            if numbers[:2] != want or size != of_torchvision(sides, *case[:2]) or error > 2e-6:
                failed += 1
                print(f"{sides} {case}: {line}, want {want}, torchvision {size} {box}")
        print(f"{sides}, {of_torchvision.__name__}: {len(cases)} images, boxes differ by {worst:.1e} at most")
    assert failed == 0


torch.set_num_threads(1)
check_matches()
check_placements()
