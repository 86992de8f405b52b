"""Decoding, cropping and resizing against Pillow and torchvision: mean difference <= 0.5 of 255 and
no pixel off by more than 2. Decoding of the crop only against decoding of the whole image: equal to
the bit. EXIF orientations against ImageOps.exif_transpose, crops of them decoded at 1/2 to 1/8, too.
Scaled decoding against both: the bounds that dtrain/data.h states, over photos. All kinds
of PNG file: equal to Pillow, to the upper 8 bits of 16-bit grey, and to composition on black.

Colour jitter, erasing, mixup and CutMix: pixels against Pillow for the same factors, and what is drawn
against torchvision's RandomErasing and timm's rectangles (written out here).

Photos: the ImageNet sample beside the checkout, where it is there; and generated files of the rarer
kinds (grey, CMYK, progressive, subsampled, rotated by EXIF, one pixel wide)."""

import glob
import io
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from torch_rig import np, tool_path, torch  # noqa: E402
from made_files import members_of, png  # noqa: E402
import torchvision.transforms as transforms  # noqa: E402
import torchvision.transforms.functional as functional  # noqa: E402
from PIL import Image, ImageOps  # noqa: E402

SHARED = os.environ.get("DTRAIN_SHARED_DIR", "")
SIZE, RESIZE = 224, 256
SMALL = 40  # so small that most crops of photos are decoded at 1/2, 1/4 or 1/8
# Mean and maximum of an image.
LIMITS = {"partial": (0, 0), "png": (0, 0), "scaled": (10, 90), "scaled upright": (1, 40)}
OTHER_LIMITS = (0.5, 2)
SCALED_MEAN = 2  # of all photos
BILINEAR = functional.InterpolationMode.BILINEAR


class Tool:
    def __init__(self, name, *way):
        self.process = subprocess.Popen([tool_path(name), *way], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def pixels(self, shape, command):
        data = self.process.stdout.read(np.prod(shape))
        assert len(data) == np.prod(shape), f"the tool gave up at: {command}"
        return np.frombuffer(data, np.uint8).reshape(shape)

    def ask(self, command, width, height):
        self.send((command + "\n").encode())
        return self.pixels((height, width, 3), command)

    def change(self, command, rows):
        """What was drawn, and the rows afterwards."""
        self.send(command.encode() + b"\n" + rows.tobytes())
        drawn = [float(x) for x in self.process.stdout.readline().split()]
        return drawn, self.pixels(rows.shape, command)

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


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


# --- EXIF ---


def check_upright(folder, worst):
    """Sides of which 8 is no divisor: of a mirrored one, the pixel that is not whole comes first."""
    tool, (y, x) = Tool("decode_tool", "upright"), np.mgrid[0:333, 0:459]
    picture = Image.fromarray(np.stack([x * 255 // 459, y * 255 // 333, (x + y) % 256], axis=2).astype(np.uint8))
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        for name, options in ("jpg", {"quality": 95}), ("png", {}):
            path = os.path.join(folder, f"upright{orientation}.{name}")
            picture.save(path, exif=exif, **options)
            with Image.open(path) as image:
                theirs = ImageOps.exif_transpose(image).convert("RGB")
            assert (theirs.size[0] < theirs.size[1]) == (orientation >= 5)
            ours = tool.ask(f"full {path}", *theirs.size)
            worst.add("upright", path, ours, theirs)
            for size, place in (SIZE, (31, 43, 290, 277)), (SMALL, (31, 12, 302, 300)), (SMALL, (8, 13, 100, 90)):
                left, top, w, h = place
                crop = functional.resized_crop(theirs, top, left, h, w, [size, size], BILINEAR)
                kind = "upright" if size == SIZE else "scaled upright"
                worst.add(kind, path, tool.ask(f"crop {path} {size} {left} {top} {w} {h} 0", size, size), crop)
    tool.close()


# --- PNG ---

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # grey, RGB, palette, grey and alpha, RGBA
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2)]
ADAM7 += [(0, 1, 1, 2)]  # first column and row, steps


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
    rows = b"".join(packed(part, depth) for part in passes)
    return png(*samples.shape[1::-1], rows, depth, colour, interlaced, chunks)


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
        for name, data in members_of(path):
            if name.lower().endswith((".jpg", ".jpeg")):
                out = os.path.join(folder, os.path.basename(name))
                with open(out, "wb") as f:
                    f.write(data)
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


# --- Augmentation ---

ERASE = (124, 116, 104)
ADJUST = [functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation]


def picture(rng, size):
    """Smooth colours with noise of a random strength."""
    y, x = np.mgrid[0:size, 0:size] / size
    waves = [np.sin(6 * rng.normal() * x + 6 * rng.normal() * y + 6 * rng.random()) for _ in "rgb"]
    noise = rng.normal(size=(size, size, 3)) * 100 * rng.random()
    pixels = 128 + 127 * np.stack(waves, axis=2) + noise
    return np.clip(pixels, 0, 255).astype(np.uint8)


def check_jitter(tool, rng):
    worst, n_off, n = 0, 0, 0
    for i in range(200):
        size = (224, 32, 17)[i % 3]
        row = picture(rng, size)
        drawn, ours = tool.change(f"recolour {size} {(0.4, 1.0)[i % 2]} {i % 4 / 3} {i}", row)
        theirs = Image.fromarray(row)
        for colour, factor in zip(drawn[:3], drawn[3:6]):
            theirs = ADJUST[int(colour)](theirs, factor)
        x, y, w, h = (int(v) for v in drawn[6:])
        theirs = np.array(theirs)
        theirs[y : y + h, x : x + w] = ERASE
        off = np.abs(ours.astype(int) - theirs.astype(int))
        worst, n_off, n = max(worst, int(off.max())), n_off + int((off > 0).sum()), n + off.size
    print(f"jitter and erasing, 200 images: worst byte off by {worst}, {n_off} of {n} bytes differ")
    assert worst <= 1


def compare_means(what, ours, theirs):
    """Means and variances agree within 4.5 standard errors."""
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    for name, a, b in ((what, ours, theirs), (what + ", squared", ours**2, theirs**2)):
        error = np.sqrt(a.var() / len(a) + b.var() / len(b))
        distance = abs(a.mean() - b.mean()) / max(error, 1e-12)
        print(f"{name:28} {a.mean():10.4f} {b.mean():10.4f}   {distance:.1f} standard errors")
        assert distance < 4.5, name


def check_erasing(tool):
    size, n = 32, 5000
    row = np.zeros((size, size, 3), np.uint8)
    ours = [tool.change(f"recolour {size} 0 1 {i}", row)[0][6:] for i in range(n)]
    image, theirs = torch.zeros(3, size, size), []
    for _ in range(n):
        params = transforms.RandomErasing.get_params(image, (0.02, 0.33), (0.3, 3.3), [0.0])
        theirs.append((params[1], params[0], params[3], params[2]))
    for what, a, b in zip("xywh", zip(*ours), zip(*theirs)):
        compare_means("erased " + what, a, b)
    area = [w * h for _, _, w, h in ours], [w * h for _, _, w, h in theirs]
    compare_means("erased area", *area)


def timm_share(rng, alpha, size):
    """What timm's CutMix leaves of an image, or of its partner where that is more."""
    ratio = np.sqrt(1 - rng.beta(alpha, alpha))
    cut = int(size * ratio)
    cy, cx = rng.integers(0, size, 2)
    yl, yh = np.clip([cy - cut // 2, cy + cut // 2], 0, size)
    xl, xh = np.clip([cx - cut // 2, cx + cut // 2], 0, size)
    share = 1 - (yh - yl) * (xh - xl) / size**2
    return max(share, 1 - share)


def check_shares(tool, rng):
    size, n = 32, 5000
    rows = np.zeros((2, size, size, 3), np.uint8)
    for alpha in (0.2, 1.0):
        ours = [tool.change(f"pair {size} {alpha} 0 {i}", rows)[0][0] for i in range(n)]
        draws = rng.beta(alpha, alpha, n)
        compare_means(f"mixup share, alpha {alpha}", ours, np.maximum(draws, 1 - draws))
        ours = [tool.change(f"pair {size} 0 {alpha} {i}", rows)[0][0] for i in range(n)]
        theirs = [timm_share(rng, alpha, size) for _ in range(n)]
        compare_means(f"CutMix share, alpha {alpha}", ours, theirs)


def check_mixup(tool, rng):
    for i in range(20):
        rows = np.stack([picture(rng, 64), picture(rng, 64)])
        (share,), ours = tool.change(f"pair 64 1 0 {i}", rows)
        exact = share * rows.astype(float) + (1 - share) * rows[::-1].astype(float)
        assert np.abs(ours - exact).max() <= 0.5


def check_augmentation():
    tool, rng = Tool("augment_tool"), np.random.default_rng(7)
    check_jitter(tool, rng)
    check_erasing(tool)
    check_shares(tool, rng)
    check_mixup(tool, rng)
    tool.close()


def main():
    torch.manual_seed(3)
    check_augmentation()
    torch.manual_seed(3)
    ways = {"plain": [], "whole": ["whole"], "scaled": ["scaled"]}
    tools = {name: Tool("decode_tool", *way) for name, way in ways.items()}
    worst, draw = Worst(), random.Random(5)
    with tempfile.TemporaryDirectory() as folder:
        check_upright(folder, worst)
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
        tool.close()
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
