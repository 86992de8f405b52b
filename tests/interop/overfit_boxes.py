"""Whether a detector learns eight images by heart: AP50 by pycocotools on dtrain's detections.

    python3 overfit_boxes.py BUILD/dtrain IMAGES ANNOTATIONS [KEY=VALUE...]

IMAGES is a folder, ANNOTATIONS a file in COCO's format, such as BCCD's instances_train.json; the first
eight images with boxes are taken, reduced to 160 x 128. Trains RetinaNet on ResNet-18 from random
weights for 200 steps, a few minutes on two cores; settings may be added or replaced. Needs
NumPy, Pillow and pycocotools (pip install pycocotools): without them it is skipped. ctest does not
run it, as the images are no part of the repository."""

import collections
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from PIL import Image
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

WIDTH, HEIGHT, IMAGES, STEPS = 160, 128, 8, 200
AP50 = 0.90
SETTINGS = {
    "model.name": "retinanet_resnet18_fpn",
    "model.fpn_channels": 64,
    "model.anchor_base": 16,
    "model.frozen_norm": "false",
    "model.head_norm": "group",
    "model.trainable_layers": 5,
    "train.global_batch_size": IMAGES,
    "optim.name": "adamw",
    "optim.weight_decay": 0,
    "schedule.lr": 5e-4,
}


def read(folder, annotations):
    """The images in the upper left corner of their canvas, their sizes, and boxes as rows of x1 y1 x2
    y2 label."""
    with open(annotations, encoding="utf-8") as file:
        data = json.load(file)
    labels = {c["id"]: i for i, c in enumerate(sorted(data["categories"], key=lambda c: c["id"]))}
    boxes = collections.defaultdict(list)
    for a in data["annotations"]:
        if not a["iscrowd"]:
            boxes[a["image_id"]].append([*a["bbox"], labels[a["category_id"]]])
    pixels = np.zeros((IMAGES, HEIGHT, WIDTH, 3), np.uint8)
    sizes, rows = [], []
    for canvas, image in zip(pixels, [i for i in data["images"] if boxes[i["id"]]]):
        scale = min(WIDTH / image["width"], HEIGHT / image["height"])
        width, height = round(image["width"] * scale), round(image["height"] * scale)
        with Image.open(os.path.join(folder, image["file_name"])) as file:
            canvas[:height, :width] = np.asarray(file.convert("RGB").resize((width, height), Image.BILINEAR))
        box = np.array(boxes[image["id"]], np.float32)
        box[:, 2:4] += box[:, :2]
        box[:, 0:4:2] *= width / image["width"]
        box[:, 1:4:2] *= height / image["height"]
        sizes.append([height, width])
        rows.append(box)
    if len(rows) < IMAGES:
        sys.exit(f"{annotations} has fewer than {IMAGES} images with boxes")
    return pixels, np.array(sizes, np.int32), rows, len(labels)


def train(tool, pixels, sizes, rows, n_classes, extra):
    """The losses of every step, and rows of image x1 y1 x2 y2 score label."""
    most = max(map(len, rows))
    boxes, labels = np.zeros((IMAGES, most, 4), np.float32), np.full((IMAGES, most), -1, np.int32)
    for i, row in enumerate(rows):
        boxes[i, : len(row)], labels[i, : len(row)] = row[:, :4], row[:, 4]
    settings = [f"{key}={value}" for key, value in {**SETTINGS, "model.num_classes": n_classes}.items()]
    with tempfile.TemporaryDirectory() as folder:
        batches, out = (os.path.join(folder, name) for name in ("batches", "out"))
        with open(batches, "wb") as file:
            file.writelines(part.tobytes() for part in (pixels, sizes, boxes, labels))
        command = [tool, *map(str, (HEIGHT, WIDTH, most, STEPS)), "", batches, out, *settings, *extra]
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    lines = [list(map(float, line.split())) for line in text.splitlines()]
    return lines[:STEPS], np.array(lines[STEPS:]).reshape(-1, 7)


def corner_and_size(box):
    return [float(box[0]), float(box[1]), float(box[2] - box[0]), float(box[3] - box[1])]


def average_precision(rows, found, n_classes):
    """AP50 on the canvas; categories from 1."""
    truth = COCO()
    truth.dataset = {
        "images": [{"id": i, "width": WIDTH, "height": HEIGHT} for i in range(IMAGES)],
        "categories": [{"id": c + 1} for c in range(n_classes)],
        "annotations": [],
    }
    for image, row in enumerate(rows):
        for box in row:
            size = corner_and_size(box)
            truth.dataset["annotations"].append(
                {
                    "id": len(truth.dataset["annotations"]) + 1,
                    "image_id": image,
                    "category_id": int(box[4]) + 1,
                    "bbox": size,
                    "area": size[2] * size[3],
                    "iscrowd": 0,
                }
            )
    truth.createIndex()
    results = [
        {"image_id": int(d[0]), "category_id": int(d[6]) + 1, "bbox": corner_and_size(d[1:]), "score": d[5]}
        for d in found
    ]
    evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return evaluation.stats[1]


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    tool = os.path.join(os.path.dirname(sys.argv[1]), "tests", "detect_tool")
    pixels, sizes, rows, n_classes = read(sys.argv[2], sys.argv[3])
    losses, found = train(tool, pixels, sizes, rows, n_classes, sys.argv[4:])
    for step in sorted({0, *range(49, STEPS, 50)}):
        print(f"step {step + 1}: loss {losses[step][0]:.4f}, box loss {losses[step][1]:.4f}")
    result = average_precision(rows, found, n_classes) if len(found) else 0
    print(f"{sum(map(len, rows))} boxes, {len(found)} detections, AP50 {result:.3f}, needed {AP50:.2f}")
    return 0 if result >= AP50 else 1


if __name__ == "__main__":
    sys.exit(main())
