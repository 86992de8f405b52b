"""Speed of a detector's input pipeline per core beside torchvision, alternating in one run.

    python3 tests/perf/detect_input_vs_torchvision.py BUILD/tests/input_tool [--data FOLDER]
        [--rounds 7] [--laps 3] [--json FILE]

In every round, on one core and over the same images (FOLDER with annotations and train2017, by
default ../shared/data/coco-sample, or DTRAIN_SHARED_DIR): torchvision, whose usual detection loader
is PIL's decode, flip and conversion to a tensor, with the resize to 800/1333 that its model does in
fp32 done by PIL on bytes instead, which is faster; the same with its own fp32 resize and
normalisation; our rows; our rows that are also rotated and scaled.

Rates are images per second of CPU time. Printed: medians over the rounds, and medians of the ratios
of each round with their extremes."""

import json
import os
import random
import statistics
import time

import results_file
import turns

RATIOS = {
    "rows / torchvision, PIL resize": ("rows", "torchvision, PIL resize"),
    "rows / torchvision, its model's resize": ("rows", "torchvision, its model's resize"),
    "warped rows / torchvision, PIL resize": ("warped rows", "torchvision, PIL resize"),
}


class Torchvision:
    def __init__(self, annotations, folder):
        import torch
        from torchvision import transforms
        from torchvision.models.detection.transform import GeneralizedRCNNTransform

        torch.set_num_threads(1)
        with open(annotations, encoding="utf-8") as f:
            names = [image["file_name"] for image in json.load(f)["images"]]
        self.paths = [os.path.join(folder, name) for name in names]
        self.to_bytes = transforms.PILToTensor()
        self.to_float = transforms.ToTensor()
        self.resize = GeneralizedRCNNTransform(800, 1333, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])

    def by_pil(self, image):
        from PIL import Image

        r = min(800 / min(image.size), 1333 / max(image.size))
        image = image.resize((int(image.width * r), int(image.height * r)), Image.BILINEAR)
        if random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        return self.to_bytes(image)

    def by_model(self, image):
        from PIL import Image

        if random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        image = self.resize.normalize(self.to_float(image))
        return self.resize.resize(image, None)[0]

    def run(self, way, laps):
        from PIL import Image

        cpu_s = time.process_time()
        for path in self.paths * laps:
            with open(path, "rb") as f:
                way(Image.open(f).convert("RGB"))
        return len(self.paths) * laps / (time.process_time() - cpu_s)


def run_tool(tool, *args):
    result = turns.answer(tool, *args)
    return result["images"] / result["cpu_s"]


def main():
    folder = os.path.join(turns.SHARED, "data", "coco-sample")
    args = turns.parser("tool", data=folder, rounds=7, laps=3, json=None).parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    annotations = os.path.join(args.data, "annotations", "instances_train2017.json")
    torchvision = Torchvision(annotations, os.path.join(args.data, "train2017"))
    cases = {
        "torchvision, PIL resize": lambda r: torchvision.run(torchvision.by_pil, 1),
        "torchvision, its model's resize": lambda r: torchvision.run(torchvision.by_model, 1),
        "rows": lambda r: run_tool(args.tool, "canvas", annotations, r, args.laps),
        "warped rows": lambda r: run_tool(args.tool, "canvas", annotations, r, args.laps, "warp"),
    }
    rounds = [{name: case(r) for name, case in cases.items()} for r in range(args.rounds)]
    result = {"rounds": args.rounds, "images_per_s": {}, "ratios": {}}
    print(f"images/s of CPU time on one core, medians of {args.rounds} rounds")
    for name in cases:
        result["images_per_s"][name] = statistics.median(r[name] for r in rounds)
        print(f"  {name:<40} {result['images_per_s'][name]:8.1f}")
    for name, (a, b) in RATIOS.items():
        values = [r[a] / r[b] for r in rounds]
        result["ratios"][name] = statistics.median(values)
        print(f"  {name:<40}    {turns.spread(values)}")
    results_file.save(args.json, result)


if __name__ == "__main__":
    main()
