"""Images of a detector get torchvision's sizes, to the pixel, and their boxes its boxes, to rounding:
GeneralizedRCNNTransform over images of random sizes, at the sizes of its recipes.

    python3 test_placement.py BUILD/dtrain"""

import os
import random
import subprocess
import sys

try:
    import torch
    from torchvision.models.detection.transform import GeneralizedRCNNTransform
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOOL = os.path.join(os.path.dirname(sys.argv[1]), "tests", "placement_tool")
IMAGES = 120
SIDES = ((800, 1333), (480, 1333), (640, 1333), (224, 320))


def draw_cases(rng):
    usual = [(640, 480), (480, 640), (640, 427), (500, 375), (333, 500), (640, 640), (1, 1), (7, 2000)]
    for width, height in usual + [(rng.randint(1, 1500), rng.randint(1, 1500)) for _ in range(IMAGES - len(usual))]:
        x, y = rng.uniform(0, 0.9 * width), rng.uniform(0, 0.9 * height)
        yield width, height, x, y, rng.uniform(0.1, 0.99) * (width - x), rng.uniform(0.1, 0.99) * (height - y)


def theirs(case, transform):
    width, height, x, y, w, h = case
    target = {"boxes": torch.tensor([[x, y, x + w, y + h]])}
    image, target = transform.resize(torch.zeros(1, height, width), target)
    return image.shape[2], image.shape[1], target["boxes"][0].tolist()


def main():
    torch.set_num_threads(1)
    failed = 0
    for sides in SIDES:
        cases = list(draw_cases(random.Random(sides[0])))
        transform = GeneralizedRCNNTransform(*sides, [0.0], [1.0])
        text = "".join(" ".join(map(repr, case)) + "\n" for case in cases)
        command = [TOOL, *map(str, sides)]
        lines = subprocess.run(command, input=text, text=True, check=True, stdout=subprocess.PIPE).stdout.splitlines()
        assert len(lines) == len(cases), f"{len(lines)} lines for {len(cases)} images"
        worst = 0.0
        for case, line in zip(cases, lines):
            numbers = [float(word) for word in line.split()]
            width, height, box = theirs(case, transform)
            error = max(abs(a - b) / max(1, abs(b)) for a, b in zip(numbers[2:], box))
            worst = max(worst, error)
            if numbers[:2] != [width, height] or error > 2e-6:
                failed += 1
                print(f"{sides} {case}: {line}, torchvision {width} {height} {box}")
        print(f"{sides}: {len(cases)} images, boxes differ by {worst:.1e} at most")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
