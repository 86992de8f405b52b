"""Decoding, cropping and resizing against Pillow and torchvision: mean difference <= 0.5 of 255 and
no pixel off by more than 2. Decoding of the crop only against decoding of the whole image: equal to
the bit. Scaled decoding against both: the bounds that dtrain/data.h states, over photos.

Photos: the ImageNet sample beside the checkout, where it is there; and generated files of the rarer
kinds (grey, CMYK, progressive, subsampled, rotated by EXIF, one pixel wide). Label: numeric."""

import glob
import io
import os
import random
import subprocess
import sys
import tarfile
import tempfile

try:
    import numpy as np
    import torchvision.transforms as transforms
    import torchvision.transforms.functional as functional
    from PIL import Image
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOOL = os.path.join(os.path.dirname(sys.argv[1]), "tests", "decode_tool")
SHARED = os.environ.get("DTRAIN_SHARED_DIR", "")
SIZE, RESIZE = 224, 256
SMALL = 40  # so small that most crops of photos are decoded at 1/2, 1/4 or 1/8
LIMITS = {"partial": (0, 0), "scaled": (10, 90)}  # mean and maximum of an image
OTHER_LIMITS = (0.5, 2)
SCALED_MEAN = 2  # of all photos
BILINEAR = functional.InterpolationMode.BILINEAR


class Tool:
    def __init__(self, *way):
        self.process = subprocess.Popen([TOOL, *way], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, command, width, height):
        self.process.stdin.write((command + "\n").encode())
        self.process.stdin.flush()
        data = self.process.stdout.read(width * height * 3)
        assert len(data) == width * height * 3, f"decode_tool gave up at: {command}"
        return np.frombuffer(data, np.uint8).reshape(height, width, 3)


class Worst:
    def __init__(self):
        self.rows, self.failed = {}, []

    def add(self, kind, name, ours, theirs):
        difference = np.abs(ours.astype(int) - np.asarray(theirs).astype(int))
        mean, largest = float(difference.mean()), int(difference.max())
        n, total, worst_mean, worst_max = self.rows.get(kind, (0, 0.0, 0.0, 0))
        self.rows[kind] = (n + 1, total + mean, max(mean, worst_mean), max(largest, worst_max))
        mean_limit, max_limit = LIMITS.get(kind, OTHER_LIMITS)
        if mean > mean_limit or largest > max_limit:
            self.failed.append(f"{kind} {name}: mean {mean:.3f}, max {largest}")


def generated(folder):
    rng = np.random.default_rng(7)
    y, x = np.mgrid[0:90, 0:130]
    plain = np.stack([x * 255 // 130, y * 255 // 90, (x * y) % 256], axis=2).astype(np.uint8)
    noise = rng.integers(0, 256, (77, 61, 3), dtype=np.uint8)
    rgb, noise = Image.fromarray(plain), Image.fromarray(noise)
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: ignored, as torchvision does
    files = {
        "grey": (rgb.convert("L"), {}),
        "cmyk": (rgb.convert("CMYK"), {}),
        "progressive": (rgb, {"progressive": True}),
        "full_chroma": (rgb, {"subsampling": 0}),
        "half_chroma": (rgb, {"subsampling": 1}),
        "quarter_chroma": (noise, {"subsampling": 2}),
        "thin": (rgb.resize((1, 50)), {}),
        "flat": (rgb.resize((60, 1)), {}),
        "dot": (rgb.resize((1, 1)), {}),
        "poor": (noise, {"quality": 5}),
        "rotated": (rgb, {"exif": exif}),
    }
    for name, (image, options) in files.items():
        path = os.path.join(folder, name + ".jpg")
        image.save(path, "JPEG", **options)
        yield path


def photos(folder):
    for path in sorted(glob.glob(os.path.join(SHARED, "data", "imagenet-sample", "*.tar"))):
        with tarfile.open(path) as tar:
            for member in tar:
                if member.isfile() and member.name.lower().endswith((".jpg", ".jpeg")):
                    out = os.path.join(folder, os.path.basename(member.name))
                    with open(out, "wb") as f:
                        f.write(tar.extractfile(member).read())
                    yield out
                    os.unlink(out)


def compare(tools, worst, path, draw):
    tool = tools["plain"]
    with open(path, "rb") as f:
        image = Image.open(io.BytesIO(f.read())).convert("RGB")
    name, (width, height) = os.path.basename(path), image.size
    if width * height < 3000000:
        worst.add("full", name, tool.ask(f"full {path}", width, height), image)

    random_crop = transforms.RandomResizedCrop(SIZE, interpolation=BILINEAR)
    top, left, h, w = random_crop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3])
    flip = draw.randrange(2)
    theirs = functional.resized_crop(image, top, left, h, w, [SIZE, SIZE], BILINEAR)
    theirs = functional.hflip(theirs) if flip else theirs
    ours = tool.ask(f"crop {path} {SIZE} {left} {top} {w} {h} {flip}", SIZE, SIZE)
    worst.add("train", name, ours, theirs)
    whole = tools["whole"].ask(f"crop {path} {SIZE} {left} {top} {w} {h} {flip}", SIZE, SIZE)
    worst.add("partial", name, ours, whole)

    evaluate = transforms.Compose(
        [transforms.Resize(RESIZE, interpolation=BILINEAR), transforms.CenterCrop(SIZE)]
    )
    if max(width, height) < 20 * min(width, height):  # torchvision makes the whole long side
        ours = tool.ask(f"eval {path} {SIZE} {RESIZE}", SIZE, SIZE)
        worst.add("eval", name, ours, evaluate(image))
        # Smaller than the crop: torchvision pads with black.
        ours = tool.ask(f"eval {path} 40 31", 40, 40)
        small = transforms.Compose(
            [transforms.Resize(31, interpolation=BILINEAR), transforms.CenterCrop(40)]
        )
        worst.add("padded", name, ours, small(image))


def compare_scaled(tools, worst, path):
    with Image.open(path) as image:
        crop = transforms.RandomResizedCrop(SIZE).get_params(image, [0.08, 1.0], [3 / 4, 4 / 3])
    top, left, h, w = crop
    for size in (SIZE, SMALL):
        place = f"{path} {size} {left} {top} {w} {h} 0"
        for command in (f"crop {place}", f"eval {path} {size} {size * 8 // 7}"):
            images = [tools[way].ask(command, size, size) for way in ("plain", "scaled")]
            if np.any(images[0] != images[1]):  # else the crop was too small to be scaled
                worst.add("scaled", f"{os.path.basename(path)} at {size}", *images)


def main():
    if not os.path.exists(TOOL):
        print(f"skipped: no {TOOL}")
        return 77
    import torch

    torch.manual_seed(3)
    tools = {"plain": Tool(), "whole": Tool("whole"), "scaled": Tool("scaled")}
    worst, draw = Worst(), random.Random(5)
    with tempfile.TemporaryDirectory() as folder:
        for path in generated(folder):
            compare(tools, worst, path, draw)
        n = 0
        for path in photos(folder):
            compare(tools, worst, path, draw)
            compare_scaled(tools, worst, path)
            n += 1
    for tool in tools.values():
        tool.process.stdin.close()
        assert tool.process.wait() == 0
    for kind, (count, total, mean, largest) in worst.rows.items():
        print(
            f"{kind:7} {count:4} images: mean {total / count:.4f}, worst mean {mean:.4f}, "
            f"worst pixel {largest}"
        )
        if kind == "scaled" and (total > SCALED_MEAN * count or count < n):
            worst.failed.append(f"scaled: {count} images, mean {total / count:.3f}")
    for line in worst.failed:
        print("FAILED", line)
    if worst.failed:
        return 1
    if n == 0:
        print("skipped: no photos, only generated files were compared")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
