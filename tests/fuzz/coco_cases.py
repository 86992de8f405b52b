"""COCO's annotations ("d": detections for two images, "j": any JSON), see fuzz_coco.c."""

import json

import cases

IMAGE = {"id": 3, "file_name": "a/b.jpg", "width": 40, "height": 30, "license": 1}
BOX = {
    "id": 9,
    "image_id": 3,
    "category_id": 5,
    "bbox": [1.5, 2.25, 10, 3e0],
    "area": 30.5,
    "iscrowd": 0,
    "segmentation": [[1, 2.5, -3, 4.25, 5, 6]],
}
CATEGORIES = [{"id": 5, "name": "cat", "supercategory": "\u00e9"}, {"id": 2, "name": "dog"}]
FOUND = [
    {"image_id": 1, "category_id": 3, "bbox": [0, 0.5, 2, 3], "score": 0.25},
    {"image_id": 7, "category_id": 1, "bbox": [1, 2, 0, 0], "score": 1, "segmentation": []},
]
TEXTS = (  # any JSON
    ('[1, -2.5e+3, "\\u00e9\\ud83d\\ude00\\n", true, false, null, {}, {"a": [[]]}]', "ok"),
    ("[1,2.5,-3, 4,0,0.125 ,1e5,-0]", "ok"),
    ("[1,02,3]", "bad @:1:*leading zero"),
    ("[1,2,]", "bad @:1:*comma before ']'"),
    ('{"a": [1.5,2', "bad @:1:*not complete"),
    ("[1,NaN]", "bad @:1:*expected a value, got 'N'"),
    ("[" * 17 + "]" * 17, "bad @:1:*nested"),
)


def hand_made():
    box2 = {**BOX, "id": 10, "iscrowd": 1, "segmentation": {"counts": [1, 2], "size": [4, 4]}}
    whole = {"info": {}, "images": [IMAGE], "annotations": [BOX, box2], "categories": CATEGORIES}
    text = json.dumps(whole)
    twice = {**whole, "annotations": [BOX, BOX]}
    unknown = {**whole, "images": [{**IMAGE, "id": 4}]}
    yield "whole", text, "ok 1"
    yield "utf8", json.dumps(whole, ensure_ascii=False, indent=1), "ok 1"
    yield "cut", text[:300], "bad @:1:*without a closing quote"
    yield "twice", json.dumps(twice), "bad @*another annotation with the id 9"
    yield "unknown", json.dumps(unknown), "many @*no image with the id 3"
    yield "unsafe", text.replace("a/b", "a/../../b"), "ok 0"  # its only image is skipped
    yield "found", "d" + json.dumps(FOUND), "ok 2"
    unknown = [{**FOUND[0], "image_id": 2}]
    yield "found-unknown", "d" + json.dumps(unknown), "bad @*no image with the id 2"
    for text, expected in TEXTS:
        yield text, "j" + text, expected


cases.main("coco", [(name, text.encode(), expected) for name, text, expected in hand_made()])
