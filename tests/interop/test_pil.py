"""Decoding, cropping and resizing against Pillow and torchvision: mean difference <= 0.5 of 255 and
no pixel off by more than 2. Decoding of the crop only against decoding of the whole image: equal to
the bit. Scaled decoding against both: the bounds that dtrain/data.h states, over photos. All kinds
of PNG file: equal to Pillow, to the upper 8 bits of 16-bit grey, and to composition on black.

Photos: the ImageNet sample beside the checkout, where it is there; and generated files of the rarer
kinds (grey, CMYK, progressive, subsampled, rotated by EXIF, one pixel wide). Label: numeric."""

import glob
import io
import os
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
import zlib

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
LIMITS = {"partial": (0, 0), "png": (0, 0), "scaled": (10, 90)}  # mean and maximum of an image
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


# --- PNG ---

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # grey, RGB, palette, grey and alpha, RGBA
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2)]
ADAM7 += [(0, 1, 1, 2)]  # first column and row, steps


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed(samples, depth):
    """The rows of one pass, unfiltered."""
    if samples.size == 0:
        return b""
    rows = samples.reshape(len(samples), -1)
    if depth >= 8:
        rows = rows.astype(">u2" if depth == 16 else np.uint8).view(np.uint8)
    else:
        bits = (rows[:, :, None] >> np.arange(depth - 1, -1, -1)) & 1
        rows = np.packbits(bits.reshape(len(rows), -1).astype(np.uint8), axis=1)
    return b"".join(b"\0" + row.tobytes() for row in rows)


def png_file(samples, colour, depth, interlaced, chunks):
    passes = [samples[y::b, x::a] for x, y, a, b in ADAM7] if interlaced else [samples]
    head = struct.pack(">IIBBBBB", *samples.shape[1::-1], depth, colour, 0, 0, interlaced)
    data = zlib.compress(b"".join(packed(part, depth) for part in passes))
    parts = [(b"IHDR", head), *chunks, (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def on_black(samples, colour, depth, palette, key):
    """The pixels of a file with transparency, or of 16-bit grey."""
    alpha = np.full(samples.shape[:2], 255)
    colours = samples >> 8 if depth == 16 else samples * 255 // (2**depth - 1)
    if colour == 3:
        colours = palette[samples[:, :, 0]]
        alpha = np.array([*key, *[255] * 256])[samples[:, :, 0]]
    elif colour >= 4:
        colours, alpha = colours[:, :, :-1], colours[:, :, -1]
    elif key is not None:
        alpha = np.where((samples == key).all(axis=2), 0, 255)
    colours = (colours * alpha[:, :, None] + 127) // 255
    return Image.fromarray(np.broadcast_to(colours, (*colours.shape[:2], 3)).astype(np.uint8))


def png_kinds(rng):
    for colour, depths in DEPTHS.items():
        for depth in depths:
            for interlaced in (0, 1):
                for transparent in (False, True) if colour < 4 else (False,):
                    for size in (61, 85), (1, 1), (3, 2):
                        shape = (*size, CHANNELS[colour])
                        yield colour, depth, interlaced, transparent, rng.integers(
                            0, 2**depth, shape
                        )


def png_images(folder):
    """Paths and pixels of every kind, with chunks about colours, which change nothing."""
    rng = np.random.default_rng(8)
    path = os.path.join(folder, "image.png")
    for colour, depth, interlaced, transparent, samples in png_kinds(rng):
        palette, key, chunks = None, None, [(b"gAMA", struct.pack(">I", 100000))]
        if colour == 3:
            palette, key = rng.integers(0, 256, (2**depth, 3)), ()
            chunks += [(b"PLTE", palette.astype(np.uint8).tobytes())]
        if transparent:
            key = samples[0, 0] if colour < 3 else rng.integers(0, 256, 2**depth - 1)
            chunks += [(b"tRNS", key.astype(">u2" if colour < 3 else np.uint8).tobytes())]
        with open(path, "wb") as f:
            f.write(png_file(samples, colour, depth, interlaced, chunks))
        if transparent or colour >= 4 or (colour, depth) == (0, 16):
            yield path, on_black(samples, colour, depth, palette, key)
        else:
            with Image.open(path) as image:
                yield path, image.convert("RGB")


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


def compare(tools, worst, path, draw, image=None):
    tool = tools["plain"]
    kind = "png" if image else "full"
    if not image:
        with open(path, "rb") as f:
            image = Image.open(io.BytesIO(f.read())).convert("RGB")
    name, (width, height) = os.path.basename(path), image.size
    if width * height < 3000000:
        worst.add(kind, name, tool.ask(f"full {path}", width, height), image)

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
        for path, image in png_images(folder):
            compare(tools, worst, path, draw, image)
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
