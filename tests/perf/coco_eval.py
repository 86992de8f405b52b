"""COCO's evaluation by dtrain coco-eval and by pycocotools: as many images as val2017, 100 detections each.

    python3 coco_eval.py BUILD/dtrain [--images 5000 --boxes 36000 --detections 500000] [--rounds 5]

Both read the same two files, once each round; with pycocotools (once, by this interpreter or $DTRAIN_PYTHON) the
import is not counted. Printed: seconds by the clock (dtrain: median), peak memory of dtrain, and a line of JSON."""

import contextlib
import io
import json
import os
import random
import statistics
import subprocess
import tempfile
import time

import turns
from coco_random import make
from python_with import prefer

MISSING = prefer("pycocotools")


def by_dtrain(program):
    """Seconds, peak memory in bytes, the numbers."""
    begin = time.perf_counter()
    child = subprocess.Popen(
        [program, "coco-eval", "truth.json", "found.json", "--json", "result.json"], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    with open("result.json", encoding="utf-8") as file:
        return seconds, usage.ru_maxrss * 1024, list(json.load(file).values())[:12]


def by_pycocotools():
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    begin = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO("truth.json")
        judged = COCOeval(truth, truth.loadRes("found.json"), "bbox")
        read = time.perf_counter()
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return time.perf_counter() - begin, time.perf_counter() - read, list(judged.stats)


def main():
    args = turns.parser(images=5000, boxes=36000, detections=500000, rounds=5).parse_args()
    program = os.path.abspath(args.program)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        truth, found = make(random.Random(1), args.images, args.boxes, args.detections, 80)
        for path, what in (("truth.json", truth), ("found.json", found)):
            with open(path, "w", encoding="utf-8") as file:
                json.dump(what, file)
        del truth, found
        rounds = [by_dtrain(program) for _ in range(args.rounds)]
        result = {
            "images": args.images,
            "boxes": args.boxes,
            "detections": args.detections,
            "dtrain_s": statistics.median(seconds for seconds, _, _ in rounds),
            "dtrain_peak_bytes": max(peak for _, peak, _ in rounds),
        }
        print(f"dtrain:      {result['dtrain_s']:.2f} s, {result['dtrain_peak_bytes'] / 1e6:.0f} MB")
        if not MISSING:
            seconds, evaluation_s, stats = by_pycocotools()
            result |= {"pycocotools_s": seconds, "pycocotools_evaluation_s": evaluation_s}
            result["largest_difference"] = max(abs(a - b) for a, b in zip(stats, rounds[0][2]))
            print(f"pycocotools: {seconds:.1f} s, without reading {evaluation_s:.1f} s")
        os.chdir("/")
    print(json.dumps(result))


main()
