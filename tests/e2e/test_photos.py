"""What a check of images tells besides unreadable ones, and what follows: EXIF orientations, of photos with boxes too;
images that occur twice, in one set or in both; PNG files of 16 bits with small values; large images. In dtrain verify,
at the start of training, in predict and in dtrain shard.

    python3 test_photos.py BUILD/dtrain"""

import glob
import os
import shutil
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from made_files import members_of, png  # noqa: E402
from scratch import content, rig, run, said, write  # noqa: E402

SIZE = 48


def block(orientation):
    entry = struct.pack("<HHIHH", 0x112, 3, 1, orientation, 0)
    return b"II*\0\x08\0\0\0\1\0" + entry + b"\0\0\0\0"


def turned(jpeg, orientation):
    data = b"Exif\0\0" + block(orientation)
    return b"\xff\xd8\xff\xe1" + struct.pack(">H", len(data) + 2) + data + jpeg[2:]


def picture(width, height, upright=None, orientation=1, depth=8, most=255):
    """A PNG file of a pattern; of a turned one the rows that are stored are those of an `upright` picture."""
    at = upright or (lambda x, y: (5 * x % 256, 5 * y % 256, 255 * (x > y)))
    scale = lambda v: struct.pack(">H", v * most // 255) if depth == 16 else bytes([v])  # noqa: E731
    rows = b"".join(b"\0" + b"".join(scale(v) for x in range(width) for v in at(x, y)) for y in range(height))
    return png(width, height, rows, depth, chunks=[(b"eXIf", block(orientation))] if orientation > 1 else ())


def photos():
    said("demo-data", "all", "--images-per-class", 4, "--size", SIZE)
    for name in sorted(os.listdir("all"))[:2]:
        shutil.copytree(f"all/{name}", f"photos/{name}")
        write(f"val/{name}/x.jpg", content(f"photos/{name}/00000.jpg"))
    first = sorted(os.listdir("photos"))[0]
    for i, orientation in (2, 6), (3, 3):
        path = f"photos/{first}/0000{i}.jpg"
        write(path, turned(content(path), orientation))
    write(f"photos/{first}/copy.jpg", content(f"photos/{first}/00001.jpg"))
    return first


def train(out, *changes, train="photos", code=0, **more):
    keys = {
        "model.name": "tiny",
        "model.image_size": 32,
        "data.train": train,
        "train.epochs": 1,
        "train.global_batch_size": 4,
        "schedule.warmup_epochs": 0,
        "device.threads": 1,
        **more,
    }
    words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    return run(*words, *changes, "--out", out, code=code).said


def holds(text, *parts, without=()):
    for part in parts:
        assert part in text, (part, text)
    for part in without:
        assert part not in text, (part, text)


def check_counts(first):
    exif = f"have an EXIF orientation other than 1, the first is photos/{first}/00002.jpg: "
    twins = "images have the same bytes as another one, the first are "
    twins += f"photos/{first}/00001.jpg and photos/{first}/copy.jpg"
    text = said("verify", "photos")
    holds(text, f"2 of 9 images of photos {exif}their pixels are used as stored", f"1 of 9 {twins}", "ok  photos")
    text = train("stored", **{"data.val": "val", "data.check": "full"})
    holds(text, f"2 of 9 images of data.train {exif}their pixels are used as stored", twins)
    holds(text, "2 of 2 validation images have the same bytes as a training image, the first are photos/", "/x.jpg")
    text = train("upright", **{"data.exif": "apply", "data.check_images": 0})
    holds(text, "of 8 images of data.train have an EXIF", ": their pixels are turned upright", without=("same bytes",))


def check_predict():
    """The key is kept with the run: a turned photo is taken for the same picture stored upright."""
    upright = lambda x, y: (5 * x % 256, 5 * y % 256, 255 * (x > y))  # noqa: E731
    for orientation, stored in (6, lambda x, y: upright(29 - y, x)), (2, lambda x, y: upright(39 - x, y)):
        size = (40, 30) if orientation == 6 else (40, 47)
        write("p/a.png", picture(*size, stored, orientation))
        write("p/b.png", picture(*(size[::-1] if orientation == 6 else size), upright))
        for name, same in ("upright", True), ("stored", False):
            a, b = (line.split("\t")[1:] for line in run("predict", name, "p/a.png", "p/b.png").stdout.splitlines())
            assert (a == b) == same, (orientation, name, a, b)


def sides(jpeg):
    at = jpeg.index(b"\xff\xc0")
    return struct.unpack(">HH", jpeg[at + 5 : at + 9])[::-1]


def check_shards(first):
    write(f"photos/{first}/p.png", picture(40, 30, orientation=8))
    for name, options, size, tags in (
        ("kept", (), (40, 30), 3),
        ("short", ("--resize-short", 32), (40, 30), 3),
        ("turned", ("--exif", "apply"), (30, 40), 0),
    ):
        text = said("shard", "photos", name, "--prefix", "x", *options)
        holds(text, "3 of 10 images have an EXIF orientation other than 1")
        (path,) = glob.glob(f"{name}/*.tar")
        jpegs = [data for member, data in members_of(path) if member.endswith("jpg")]
        assert sum(b"Exif" in data for data in jpegs) == tags, name
        assert size in [sides(data) for data in jpegs], name
    text = said("verify", "kept")
    holds(text, "3 of 10 images of kept have an EXIF", "1 of 10 images have the same bytes as another one", "0 faults")
    holds(said("verify", "turned"), "0 faults", without=("EXIF",))
    holds(said("shard", "photos", "none", "--exif", "aply", code=78), 'data.exif', '"aply"')


def check_boxes():
    """Square and not; annotations of the picture that viewers show."""
    images = [(1, "a.png", 48, 48), (2, "b.png", 32, 48)]
    write("boxes/a.png", picture(48, 48, orientation=3))
    write("boxes/b.png", picture(48, 32, orientation=5))
    coco = {
        "images": [{"id": i, "file_name": name, "width": w, "height": h} for i, name, w, h in images],
        "annotations": [
            {"id": i, "image_id": i, "category_id": 1, "bbox": [2, 3, 20, 21], "area": 420, "iscrowd": 0}
            for i in (1, 2)
        ],
        "categories": [{"id": 1, "name": "x"}],
    }
    write("boxes/all.json", coco)
    question = "2 of 2 images of {} have an EXIF orientation other than 1, the first is boxes/a.png: say with data.exif"
    swaps = "it has 48 x 32 pixels, but its annotations say 32 x 48: its EXIF orientation 5 swaps the sides"
    holds(said("verify", "boxes/all.json", code=78), question.format("boxes/all.json"), f"!!  boxes/b.png: {swaps}")
    holds(said("verify", "boxes/all.json", "--exif", "apply"), "their pixels are turned upright", "ok  ")
    holds(said("verify", "boxes/all.json", "--exif", "ignore", code=65), swaps, without=("!!  boxes/a.png",))
    keys = {**rig.DETECTOR, "model.image_size": 64, "train.global_batch_size": 2}
    holds(train("refused", train="boxes/all.json", code=78, **keys), question.format("data.train"))
    train("detector", train="boxes/all.json", **keys, **{"data.exif": "apply"})
    holds(said("shard", "boxes/all.json", "no", code=65), swaps, "--exif")
    said("shard", "boxes/all.json", "packed", "--exif", "apply")
    holds(said("verify", "packed"), "0 faults", without=("EXIF",))
    coco["images"][1].update(width=48, height=32)
    write("boxes/all.json", coco)
    said("shard", "boxes/all.json", "tagged")
    assert b"Exif" in b"".join(data for _, data in members_of("tagged/train-0000.tar"))
    holds(said("verify", "tagged", code=78), "2 of 2 images of tagged have an EXIF orientation", "say with data.exif")
    holds(said("verify", "tagged", "--exif", "ignore"), "0 faults")
    # Without a look at all images at the start, the loader refuses.
    eval_ = said("eval", "detector", "--set", "data.val=boxes/all.json", "--set", "data.exif=auto", code=65)
    holds(eval_, "its EXIF orientation 3 turns it: say with data.exif")


def check_deep():
    for name, most, factor in ("twelve", 4095, 16), ("ten", 1023, 64), ("full", 65535, 0), ("half", 32768, 0):
        for label in "ab":
            write(f"{name}/{label}/{label}.png", picture(40, 33 + (label == "b"), depth=16, most=most))
        text = said("verify", name)
        if factor:
            what = f"2 of 2 images of {name} are files of 16 bits with values up to {most} of 65535 only"
            holds(text, what, f"by {factor}")
        else:
            holds(text, "ok", without=("16 bits",))
    text = train("deep", train="twelve", **{"train.global_batch_size": 2})
    holds(text, "2 of 2 images of data.train are files of 16 bits with values up to 4095 of 65535 only")


def check_large(first):
    """JPEG files are decoded at a half or less, PNG files cannot be."""
    text = train("large", train="photos", **{"data.max_pixels": SIZE * SIZE // 4, "data.max_bad_fraction": 0.5})
    holds(text, f"photos/{first}/p.png: a PNG file of 1200 pixels; data.max_pixels allows 576", without=("jpg: a ",))


name_of_first = photos()
check_counts(name_of_first)
check_predict()
check_shards(name_of_first)
check_boxes()
check_deep()
check_large(name_of_first)
