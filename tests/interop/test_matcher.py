"""The op match gives torchvision's integers: Matcher(0.5, 0.4) of torchvision.ops.box_iou in fp32,
with and without low-quality matches, over the anchors of its AnchorGenerator, on 500 random sets of
images with ties, duplicates, no boxes, full tables, boxes far outside, tiny and huge ones.

    python3 test_matcher.py BUILD/dtrain"""

import os
import subprocess
import sys

try:
    import numpy as np
    import torch
    from torchvision.models.detection._utils import Matcher
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.image_list import ImageList
    from torchvision.ops import box_iou
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOOL = os.path.join(os.path.dirname(sys.argv[1]), "tests", "match_tool")
SETS = 500


def make_anchors(height, width, base, grids):
    sizes = tuple((s, int(s * 2 ** (1.0 / 3)), int(s * 2 ** (2.0 / 3)))
                  for s in (base << level for level in range(len(grids))))
    generator = AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * len(grids))
    images = ImageList(torch.zeros(1, 3, height, width), [(height, width)])
    return generator(images, [torch.zeros(1, 1, *grid) for grid in grids])[0]


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


def main():
    rng = np.random.default_rng(18)
    sets = [draw_set(rng) for _ in range(SETS)]
    out = subprocess.run([TOOL], input=b"".join(data for data, _ in sets), stdout=subprocess.PIPE,
                         check=True).stdout
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


main()
