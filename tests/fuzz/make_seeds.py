"""Seeds for all fuzz targets except jpeg: make_seeds.py FOLDER writes FOLDER/<target>/<name>."""

import io
import json
import os
import struct
import sys
import tarfile


def save(folder, name, data):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


# --- Configuration ---

CONFIGS = {
    "empty": "{}",
    "comment": '{"$schema": "x", "_comment": "a", "//": [1, 2], "train": {"epochs": 3}}',
    "small": json.dumps(
        {
            "model": {"name": "resnet20", "num_classes": 10, "image_size": 32},
            "data": {"source": "folder", "train": "a", "val": "b", "mean": [0.5, 0.5, 0.5]},
            "train": {"epochs": 3, "global_batch_size": 16, "seed": 9007199254740992},
            "schedule": {"kind": "step", "milestones": [1, 2], "lr": 1e-3},
        }
    ),
    "cosine": '{"schedule":{"kind":"cosine","min_lr":0.001,"warmup_epochs":0},'
    '"optim":{"nesterov":true},"train":{"precision":"bf16"}}',
    "typo": '{"train": {"epoch": 3}, "modell": {}, "data": {"std": [0, 1, 1]}}',
    "types": '{"train": [1], "data": {"train": null}, "optim": {"momentum": "0.9"}}',
    "escapes": '{"output": {"dir": "a\\u00e9\\ud83d\\ude00\\n\\"\\\\/"}}',
    "numbers": '{"train":{"seed":-0,"epochs":1e2,"max_steps":1.5e3},"early_stop":{"target":99.9999999999}}',
    "variables": '{"output":{"dir":"${HOME}/${USER:-a}/$${b}"},"data":{"train":"${X:-${Y:-t-{0..9}}}"}}',
    "damaged": '{"train": {"epochs": 3}',
    "twice": '{"train": {"epochs": 3, "epo\\u0063hs": 4}}',
    "deep": "[" * 17 + "]" * 17,
}
SETS = {
    "set": ["train.epochs=3", "output.dir=2024", "data.mean=[0,0,0]"],
    "set-section": ['train={"epochs": 3, "global_batch_size": 8}', "schedule.kind=poly"],
    "set-wrong": ["train.epochs", "=3", "train.epochs=x", "a.b.c=1", "model.name="],
}


def configs(folder):
    for name, text in CONFIGS.items():
        save(folder, name, b"f" + text.encode())
    for name, sets in SETS.items():
        save(folder, name, b"s" + b"".join(text.encode() + b"\0" for text in sets))


# --- Tar ---


def tar(members, form=tarfile.USTAR_FORMAT, headers=None):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, pax_headers=headers) as archive:
        for name, data, kind in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.size = len(data) if kind == tarfile.REGTYPE else 0
            info.linkname = "a.jpg" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()[:3584]  # members and end mark; tarfile pads to 10 KiB


def pair(key, data=b"x"):
    return [(key + ".jpg", data, tarfile.REGTYPE), (key + ".cls", b"1", tarfile.REGTYPE)]


def boxes(key, **changes):
    box = {"id": 1, "category_id": 2, "bbox": [0.5, 1, 2, 3], "area": 6, "iscrowd": 0}
    image = {"id": 7, "width": 4, "height": 5, "annotations": [box, {**box, **changes}]}
    return [pair(key)[0], (key + ".json", json.dumps(image).encode(), tarfile.REGTYPE)]


def tars(folder):
    long = "n" * 120
    save(folder, "boxes", tar(boxes("a")))
    save(folder, "bad-boxes", tar(boxes("a", bbox=[1, 2, 3, 1e300])))
    save(folder, "pair", tar(pair("a")))
    save(folder, "folders", tar([("d", b"", tarfile.DIRTYPE)] + pair("d/a")))
    save(folder, "link", tar([("l.jpg", b"", tarfile.SYMTYPE)] + pair("a")))
    save(folder, "hard-link", tar([("l.jpg", b"", tarfile.LNKTYPE)] + pair("a")))
    save(folder, "fifo", tar([("f.jpg", b"", tarfile.FIFOTYPE)] + pair("a")))
    save(folder, "no-label", tar(pair("a")[:1]))
    save(folder, "outside", tar(pair("../a")))
    save(folder, "gnu-long", tar(pair(long)[:1], tarfile.GNU_FORMAT))
    save(folder, "pax", tar(pair("\u00e9")[:1], tarfile.PAX_FORMAT))
    save(folder, "pax-global", tar(pair("a")[:1], tarfile.PAX_FORMAT, {"comment": "c"}))
    save(folder, "sparse", tar([("s.jpg", b"", tarfile.GNUTYPE_SPARSE)] + pair("a")))
    save(folder, "cut", tar(pair("a"))[:700])


# --- Safetensors and manifests ---


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return b"s" + struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


MANIFEST = """{
  "format": 1,
  "step": 10,
  "epoch": 1,
  "batch": 2,
  "incarnation": 1,
  "ranks": 2,
  "global_batch_size": 8,
  "run_id": "20250101T000000-0123",
  "build_id": "0123456789abcdef",
  "repro": "cpu",
  "config_hash": "0123456789abcdef",
  "files": {
    "model.safetensors": {
      "bytes": 24,
      "hash": "0123456789abcdef0123456789abcdef",
      "tensors": {
        "a": "0123456789abcdef",
        "b.weight": "fedcba9876543210"
      }
    },
    "state.json": {
      "bytes": 2,
      "hash": "00000000000000000000000000000000"
    }
  },
  "checksum": "00000000000000000000000000000000"
}"""


def checkpoints(folder):
    save(folder, "empty", safetensors({}))
    save(folder, "f32", safetensors({"a": tensor("F32", [2], 0, 8)}, b"\0" * 8))
    mixed = {
        "__metadata__": {"format": "pt"},
        "a": tensor("F16", [2, 1], 0, 4),
        "b": tensor("BF16", [], 4, 6),
        "module.c": tensor("I64", [1], 6, 14),
        "e": tensor("F32", [0, 3], 14, 14),
    }
    save(folder, "mixed", safetensors(mixed, bytes(range(14))))
    save(folder, "gap", safetensors({"a": tensor("F32", [1], 4, 8)}, b"\0" * 8))
    save(folder, "overflow", safetensors({"a": tensor("F32", [1 << 32, 1 << 32], 0, 0)}))
    save(folder, "cut", safetensors(b'{"a":{"dtype":"F32"'))
    for mode in "mc":
        save(folder, "manifest-" + mode, (mode + MANIFEST).encode())
        save(folder, "manifest-end-" + mode, (mode + MANIFEST + "\n").encode())
    save(folder, "manifest-cut", ("c" + MANIFEST[:300]).encode())


# --- COCO ---

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
TEXTS = {
    "values": '[1, -2.5e+3, "\\u00e9\\ud83d\\ude00\\n", true, false, null, {}, {"a": [[]]}]',
    "numbers": "[1,2.5,-3, 4,0,0.125 ,1e5,-0]",
    "leading": "[1,02,3]",
    "comma": "[1,2,]",
    "cut": '{"a": [1.5,2',
    "nan": "[1,NaN]",
    "deep": "[" * 17 + "]" * 17,
}


def coco(folder):
    box2 = {**BOX, "id": 10, "iscrowd": 1, "segmentation": {"counts": [1, 2], "size": [4, 4]}}
    whole = {"info": {}, "images": [IMAGE], "annotations": [BOX, box2], "categories": CATEGORIES}
    text = json.dumps(whole)
    save(folder, "whole", text.encode())
    save(folder, "utf8", json.dumps(whole, ensure_ascii=False, indent=1).encode())
    save(folder, "cut", text[:300].encode())
    save(folder, "twice", json.dumps({**whole, "annotations": [BOX, BOX]}).encode())
    save(folder, "unknown", json.dumps({**whole, "images": [{**IMAGE, "id": 4}]}).encode())
    save(folder, "unsafe", text.replace("a/b", "a/../../b").encode())
    save(folder, "found", b"d" + json.dumps(FOUND).encode())
    save(folder, "found-unknown", b"d" + json.dumps([{**FOUND[0], "image_id": 2}]).encode())
    for name, text in TEXTS.items():
        save(folder, "json-" + name, b"j" + text.encode())


def main():
    kinds = {"config": configs, "tar_index": tars, "safetensors": checkpoints, "coco": coco}
    for name, make in kinds.items():
        make(os.path.join(sys.argv[1], name))


main()
