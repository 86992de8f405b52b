"""configs/retinanet_bccd.json in PyTorch: torchvision's RetinaNet, trained from random weights on blood
cells (BCCD in COCO's format: annotations/instances_{train,val}.json, train/*.jpg, val/*.jpg).

    python3 tests/perf/bccd_twin.py FOLDER [--seed 1] [--out DETECTIONS.json]

It prints COCO's AP and AP50 of the validation images, and the seconds, now and then; `dtrain coco-eval
FOLDER/annotations/instances_val.json DETECTIONS.json` judges the same detections. Needs torchvision
and pycocotools."""

import argparse
import contextlib
import io
import json
import os
import sys
import time

import numpy as np
import torch
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import retinanet_torch as retinanet  # noqa: E402
import torch_rig  # noqa: E402


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--epochs", type=int, default=12)
    p.add_argument("--stop", type=int, default=0, help="stop after so many epochs, on the schedule of --epochs")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--size", default="256x192", help="of the canvas, width x height")
    p.add_argument("--optim", default="adamw", choices=("adamw", "sgd"))
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--decay", type=float, default=0.05)
    p.add_argument("--clip", type=float, default=1.0, help="largest norm of all gradients together")
    p.add_argument("--warmup", type=float, default=1.0, help="epochs")
    p.add_argument("--v2", action="store_true", help="group norm in the heads, GIoU, P6 from C5")
    p.add_argument("--every", type=int, default=4, help="epochs between evaluations")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--out", help="COCO's file of detections, of the last evaluation")
    return p.parse_args()


class Images:
    """Pixels u8 N,H,W,3 on the canvas; boxes in its pixels, as corners; labels from 0."""

    def __init__(self, folder, part, size):
        with contextlib.redirect_stdout(io.StringIO()):
            self.coco = COCO(os.path.join(folder, "annotations", f"instances_{part}.json"))
        self.ids, categories = sorted(self.coco.imgs), sorted(self.coco.cats)
        pixels, self.scales, self.boxes, self.labels = [], [], [], []
        for i in self.ids:
            image = Image.open(os.path.join(folder, part, self.coco.imgs[i]["file_name"])).convert("RGB")
            scale = np.array([size[0] / image.width, size[1] / image.height], np.float32)
            pixels.append(np.asarray(image.resize(size, Image.BILINEAR)))
            truth = [a for a in self.coco.imgToAnns[i] if not a["iscrowd"] and min(a["bbox"][2:]) > 0]
            box = np.array([a["bbox"] for a in truth], np.float32).reshape(-1, 2, 2)
            box[:, 1] += box[:, 0]
            self.boxes.append((box * scale).reshape(-1, 4))
            self.labels.append(np.array([categories.index(a["category_id"]) for a in truth]))
            self.scales.append(scale)
        self.pixels, self.categories = np.stack(pixels), categories

    def batch(self, index, rng):
        """Half of them mirrored."""
        pixels, boxes = self.pixels[index].copy(), []
        for row, i in enumerate(index):
            box = self.boxes[i]
            if rng.integers(0, 2):
                pixels[row] = pixels[row, :, ::-1]
                box = np.stack([pixels.shape[2] - box[:, 2], box[:, 1], pixels.shape[2] - box[:, 0], box[:, 3]], 1)
            boxes.append(box)
        return pixels, self.sizes(len(index)), boxes, [self.labels[i] for i in index]

    def sizes(self, n):
        return [self.pixels.shape[1:3]] * n


def make_optimizer(args, model):
    groups = torch_rig.groups([p for p in model.parameters() if p.requires_grad], args.decay)
    if args.optim == "sgd":
        return torch.optim.SGD(groups, lr=args.lr, momentum=0.9)
    return torch.optim.AdamW(groups, lr=args.lr)


def detect(model, images):
    found = []
    for first in range(0, len(images.ids), 8):
        pixels = images.pixels[first : first + 8]
        for i, result in enumerate(retinanet.detections(model, pixels, images.sizes(len(pixels))), first):
            boxes = result["boxes"].numpy().reshape(-1, 2, 2) / images.scales[i]
            boxes[:, 1] -= boxes[:, 0]
            for box, score, label in zip(boxes.reshape(-1, 4), result["scores"], result["labels"]):
                found.append({
                    "image_id": images.ids[i],
                    "category_id": images.categories[label],
                    "bbox": [float(x) for x in box],
                    "score": float(score),
                })
    return found


def evaluate(model, images, out):
    """COCO's twelve numbers."""
    model.eval()
    found = detect(model, images)
    model.train()
    if out:
        with open(out, "w", encoding="utf-8") as f:
            json.dump(found, f)
    if not found:
        return np.zeros(12)
    with contextlib.redirect_stdout(io.StringIO()):
        judge = COCOeval(images.coco, images.coco.loadRes(found), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return judge.stats


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    size = tuple(int(x) for x in args.size.split("x"))
    train, val = (Images(args.folder, part, size) for part in ("train", "val"))
    model = retinanet.make_model(18, len(train.categories), 64, 16, frozen_norm=False, v2=args.v2, trainable=5)
    model.train()
    optimizer = make_optimizer(args, model)
    per_epoch, step, start = len(train.ids) // args.batch, 0, time.time()
    warm = round(args.warmup * per_epoch)
    for epoch in range(1, (args.stop or args.epochs) + 1):
        order, sums = rng.permutation(len(train.ids)), np.zeros(2)
        for i in range(per_epoch):
            for group in optimizer.param_groups:
                group["lr"] = torch_rig.warm_cosine(args.lr, step, warm, args.epochs * per_epoch)
            parts = retinanet.losses(model, *train.batch(order[i * args.batch : (i + 1) * args.batch], rng))
            optimizer.zero_grad()
            sum(parts.values()).backward()
            if args.clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            sums += [float(parts["classification"]), float(parts["bbox_regression"])]
            step += 1
        line = f"epoch {epoch}: class_loss {sums[0] / per_epoch:.4f} box_loss {sums[1] / per_epoch:.4f}"
        if epoch % args.every == 0 or epoch == args.epochs:
            stats = evaluate(model, val, args.out)
            line += f" ap {stats[0]:.4f} ap50 {stats[1]:.4f} ap75 {stats[2]:.4f}"
        print(f"{line} {time.time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
