"""dtrain coco-eval: the lines of pycocotools, the table of categories, the JSON file; what pycocotools said of the
detections in ../shared/golden/coco-eval, where that is; one sentence and an exit code for wrong input.

    python3 test_coco_eval.py BUILD/dtrain"""

import glob
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import scratch  # noqa: E402
from scratch import TESTS, content, load, write  # noqa: E402

SHARED = os.environ.get("DTRAIN_SHARED_DIR", os.path.join(TESTS, "../../shared"))
NAMES = "ap ap50 ap75 ap_small ap_medium ap_large ar1 ar10 ar100 ar_small ar_medium ar_large".split()
LINES = [
    " Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = ",
    " Average Precision  (AP) @[ IoU=0.50      | area=   all | maxDets=100 ] = ",
    " Average Precision  (AP) @[ IoU=0.75      | area=   all | maxDets=100 ] = ",
    " Average Precision  (AP) @[ IoU=0.50:0.95 | area= small | maxDets=100 ] = ",
    " Average Precision  (AP) @[ IoU=0.50:0.95 | area=medium | maxDets=100 ] = ",
    " Average Precision  (AP) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = ",
    " Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets=  1 ] = ",
    " Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets= 10 ] = ",
    " Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = ",
    " Average Recall     (AR) @[ IoU=0.50:0.95 | area= small | maxDets=100 ] = ",
    " Average Recall     (AR) @[ IoU=0.50:0.95 | area=medium | maxDets=100 ] = ",
    " Average Recall     (AR) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = ",
]
TRUTH = {
    "images": [{"id": i, "file_name": f"{i}.jpg", "width": 200, "height": 100} for i in (7, 3)],
    "categories": [{"id": 9, "name": "dog"}, {"id": 4, "name": "hot dog"}, {"id": 90, "name": "none"}],
    "annotations": [
        {"id": 1, "image_id": 7, "category_id": 9, "bbox": [10, 10, 40, 20], "area": 800, "iscrowd": 0},
        {"id": 2, "image_id": 3, "category_id": 9, "bbox": [0, 0, 90, 60], "area": 5400, "iscrowd": 0},
        {"id": 3, "image_id": 3, "category_id": 4, "bbox": [100, 0, 90, 60], "area": 5400, "iscrowd": 0},
        {"id": 5, "image_id": 3, "category_id": 4, "bbox": [0, 0, 190, 90], "area": 9999, "iscrowd": 1},
    ],
}
FOUND = [
    {"image_id": 3, "category_id": 9, "bbox": [0, 0, 90, 60], "score": 0.9},
    {"image_id": 7, "category_id": 9, "bbox": [100, 50, 40, 20], "score": 0.8},
    {"image_id": 7, "category_id": 9, "bbox": [10, 10, 40, 20], "score": 0.7},
    {"image_id": 3, "category_id": 4, "bbox": [20, 20, 20, 20], "score": 0.9},  # in the crowd
    {"image_id": 3, "category_id": 4, "bbox": [100, 0, 90, 45], "score": 0.4},  # IoU 0.75
]


def run(*arguments, code=0):
    done = scratch.run("coco-eval", *arguments, code=code)
    if code:
        assert done.stdout == "" and done.stderr.count("error") == 1, (arguments, done.said)
    return done.stderr if code else done.stdout


def check_lines(text, values):
    lines = text.splitlines()[: len(LINES)]
    assert lines == [line + f"{value:0.3f}" for line, value in zip(LINES, values)], (lines, values)


def check_golden(path):
    expected = load(path)
    truth = os.path.join(SHARED, "data", expected["annotations"])
    text = run(truth, os.path.join(os.path.dirname(path), expected["detections"]), "--json", "golden.json")
    result = load("golden.json")
    got = [result[name] for name in NAMES] + [category["ap"] for category in result["categories"]]
    wanted = expected["stats"] + expected["ap_per_category"]
    assert len(got) == len(wanted) and max(abs(a - b) for a, b in zip(got, wanted)) < 1e-12, (path, got)
    assert [category["id"] for category in result["categories"]] == expected["category_ids"]
    check_lines(text, expected["stats"])


def check_small():
    """By hand: dogs 1, then 2/3 from a recall of 51 %; the hot dog's IoU passes six thresholds."""
    dog, hot = (51 + 50 * 2 / 3) / 101, 0.6
    text = run(write("truth.json", TRUTH), write("found.json", FOUND), "--per-class", "--json", "a.json")
    result = load("a.json")
    assert abs(result["ap"] - (dog + hot) / 2) < 1e-12 and abs(result["ap50"] - (dog + 1) / 2) < 1e-12, result
    assert (result["images"], result["detections"], result["ap_large"]) == (2, 5, -1), result
    check_lines(text, [result[name] for name in NAMES])
    rows = [line.split() for line in text.splitlines()[len(LINES) + 2 :]]
    assert rows == [["4", "1", "0.600", "1.000", "hot", "dog"], ["9", "2", f"{dog:.3f}", f"{dog:.3f}", "dog"],
                    ["90", "0", "-1.000", "-1.000", "none"]], rows  # fmt: skip
    done = scratch.run("coco-eval", "truth.json", "found.json", "--json", "-")
    assert json.loads(done.stdout) == result and done.stderr.splitlines()[0] in text, done.said
    assert not os.path.exists("-")
    text = run("truth.json", "found.json", "--max-detections", 1)
    assert "area=   all | maxDets=  1 ] = 0.252" in text, text  # one dog of two
    text = run("truth.json", write("empty.json", []))
    assert text.splitlines()[0] == LINES[0] + "0.000", text


def check_other_tools():
    """The same results with what other tools write and pycocotools ignores; it is counted."""
    name = {7: "a", 3: "b"}
    truth = {**TRUTH, "images": [{"id": name[i]} for i in (7, 3)]}
    odd = {**TRUTH["annotations"][0], "id": 6, "category_id": 77}, {**TRUTH["annotations"][0], "id": 7, "image_id": 99}
    for key in ("annotations", "found"):
        rows = [*TRUTH["annotations"], *odd] if key == "annotations" else [*FOUND, {**FOUND[0], "category_id": 1}]
        truth[key] = [{**row, "image_id": name.get(row["image_id"], "none")} for row in rows]
    found = truth.pop("found")
    done = scratch.run("coco-eval", write("texts.json", truth), write("texts_found.json", found), "--json", "b.json")
    assert load("b.json") == load("a.json"), (load("a.json"), load("b.json"))
    for words in ("texts.json: 2 of 6 annotations", "texts_found.json: 1 of 6 detections"):
        assert words in done.stderr, done.stderr
    write("bad.json", [{**found[0], "image_id": "c"}])
    assert 'no image with the id "c"' in run("texts.json", "bad.json", code=65)
    assert "3 is a number" in run("texts.json", "found.json", code=65)
    assert "NaN" in run("truth.json", write("bad.json", [{**FOUND[0], "score": float("nan")}]), code=65)


def check_refusals():
    assert "nowhere.json" in run("nowhere.json", "found.json", code=66)
    assert "nowhere.json" in run("truth.json", "nowhere.json", code=66)
    for change in ({"image_id": 4}, {"image_id": "4"}, {"category_id": "9"}, {"score": "high"}, {"bbox": [1, 2, 3]}):
        assert "bad.json:1:" in run("truth.json", write("bad.json", [FOUND[0], {**FOUND[1], **change}]), code=65)
    crowds = {**TRUTH, "annotations": TRUTH["annotations"][3:]}
    assert "none.json has no boxes" in run(write("none.json", crowds), "found.json", code=65)
    write("cut.json", content("truth.json")[:-9])
    assert "cut.json:1:" in run("cut.json", "found.json", code=65)
    run("truth.json", "found.json", "--json", "none/a.json", code=73)
    run("truth.json", code=64)
    run("truth.json", "found.json", "--max-detections", 0, code=64)


check_small()
check_other_tools()
check_refusals()
golden = sorted(glob.glob(os.path.join(SHARED, "golden/coco-eval/*_expected.json")))
for golden_path in golden:
    check_golden(golden_path)
print(f"coco-eval agrees with results by hand and with pycocotools on {len(golden)} files")
