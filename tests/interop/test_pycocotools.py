"""dtrain coco-eval against pycocotools on random boxes with ties, crowds, empty images and many detections: the same
text, the same twelve numbers and categories, for 100 detections of an image and for other limits.

    python3 test_pycocotools.py BUILD/dtrain [IMAGES BOXES DETECTIONS CATEGORIES]"""

import contextlib
import io
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from coco_random import make
from python_with import need

need("pycocotools")
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from scratch import load, run, write


def mean(values):
    return values[values > -1].mean() if (values > -1).any() else -1


def judge(most):
    """Lines, numbers and AP of the categories as pycocotools has them."""
    text = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO("truth.json")
        judged = COCOeval(truth, truth.loadRes("found.json"), "bbox")
        judged.params.maxDets = [1, 10, most]
        judged.evaluate()
        judged.accumulate()
        with contextlib.redirect_stdout(text):
            judged.summarize()
    precision = judged.eval["precision"][:, :, :, 0, 2]
    stats = list(judged.stats)
    stats[0] = mean(precision)  # pycocotools looks for 100 detections there, whatever maxDets is
    return text.getvalue().splitlines(), stats + [mean(precision[:, :, k]) for k in range(precision.shape[2])]


def check(name, most):
    lines, wanted = judge(most)
    done = run("coco-eval", "truth.json", "found.json", "--max-detections", most, "--json", "a.json")
    result = load("a.json")
    got = list(result.values())[:12] + [category["ap"] for category in result["categories"]]
    error = max(abs(a - b) for a, b in zip(got, wanted))
    assert len(got) == len(wanted) and error < 1e-12, (name, most, got, wanted)
    skip = most != 100
    assert done.stdout.splitlines()[skip:] == lines[skip:], (done.stdout, lines)
    return error


def of_other_tools(truth, found):
    """Texts as ids of images, no sizes, and a category that is not listed."""
    gone = truth["categories"].pop()["id"]
    truth["images"] = [{"id": f"{7 * row['id'] % 101} x"} | {"was": row["id"]} for row in truth["images"]]
    texts = {row.pop("was"): row["id"] for row in truth["images"]}
    for row in truth["annotations"] + found:
        row["image_id"] = texts[row["image_id"]]
    assert any(row["category_id"] == gone for row in truth["annotations"])
    return truth, found


def main():
    sizes = [tuple(map(int, sys.argv[2:6]))] if len(sys.argv) > 2 else [(40, 300, 1500, 4), (6, 150, 3000, 2)]
    errors = []
    for seed, size in enumerate(sizes * 2):
        truth, found = make(random.Random(seed), *size)
        if seed >= len(sizes):
            truth, found = of_other_tools(truth, found)
        write("truth.json", truth)
        write("found.json", found)
        errors += [check(size, most) for most in (100, 300, 15)]
    print(f"largest difference from pycocotools: {max(errors):.2g}")


main()
