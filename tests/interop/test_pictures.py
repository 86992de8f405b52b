"""Image files and data sets of other formats: WebP, TIFF, GIF and BMP have Pillow's pixels; damaged ones are refused with a
sentence; class folders and `dtrain shard` take them. The archives of CIFAR and MNIST, in their official layout, become
shards with their very pixels, labels and names, and can be trained on.

    python3 test_pictures.py BUILD/dtrain"""

import glob
import gzip
import io
import os
import random
import struct
import subprocess
import sys
import tarfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import DTRAIN, np, rig, said, train, write, write_config  # noqa: E402
from made_files import members_of  # noqa: E402
from PIL import Image  # noqa: E402

TOOL = os.path.join(os.path.dirname(DTRAIN), "tests", "decode_tool")
RNG = np.random.default_rng(4)
Y, X = np.mgrid[0:37, 0:53]
RGB = np.stack([X * 255 // 53, Y * 255 // 37, (X * Y) % 256], axis=2).astype(np.uint8)
PICTURE = Image.fromarray(RGB)
ALPHA = Image.fromarray(np.dstack([RGB, (X * 4 % 256).astype(np.uint8)]), "RGBA")
GREY16 = ((X * 1231 + Y * 77) % 65536).astype(np.uint16)


def pixels(path, size=PICTURE.size):
    done = subprocess.run([TOOL], input=f"full {path}\n".encode(), capture_output=True, check=False)
    if b"this build cannot read" in done.stderr:
        print("skipped:", done.stderr.decode())
        sys.exit(77)
    assert done.returncode == 0, (path, done.stderr)
    assert len(done.stdout) == 3 * size[0] * size[1], (path, len(done.stdout))
    return np.frombuffer(done.stdout, np.uint8).reshape(size[1], size[0], 3)


def on_black(rgba):
    values = np.asarray(rgba).astype(int)
    return (values[:, :, :3] * values[:, :, 3:] + 127) // 255


def tiff16(samples):
    """Grey or RGB of 16 bits, which Pillow cannot write as RGB: one strip, without compression."""
    height, width = samples.shape[:2]
    n = samples.shape[2] if samples.ndim == 3 else 1
    data = samples.astype("<u2").tobytes()
    tags = {256: width, 257: height, 258: 16, 259: 1, 262: 2 if n == 3 else 1, 273: 8, 277: n, 278: height, 279: len(data)}
    entries, extra, at = b"", b"", 8 + len(data) + 2 + 12 * len(tags) + 4
    for tag, value in sorted(tags.items()):
        if tag == 258 and n == 3:
            entries += struct.pack("<HHII", tag, 3, 3, at)
            extra += struct.pack("<3H", 16, 16, 16)
        else:
            entries += struct.pack("<HHII", tag, 4, 1, value)
    ifd = struct.pack("<H", len(tags)) + entries + struct.pack("<I", 0) + extra
    return struct.pack("<2sHI", b"II", 42, 8 + len(data)) + data + ifd


def bmp(bits, top_down=False, core=False):
    """What Pillow does not write: 4 bits, rows from the top, OS/2's header."""
    levels = RNG.integers(0, 2**bits, (5, 7))
    palette = RNG.integers(0, 256, (2**bits, 3)).astype(np.uint8)
    expected = palette[levels]
    stored = levels if top_down else levels[::-1]
    rows = b""
    for line in stored:
        bit = "".join(f"{value:0{bits}b}" for value in line)
        rows += int(bit.ljust(32 * ((len(bit) + 31) // 32), "0"), 2).to_bytes((len(bit) + 31) // 32 * 4, "big")
    entries = b"".join(bytes(c[::-1]) + (b"" if core else b"\0") for c in palette)
    if core:
        info = struct.pack("<IHHHH", 12, 7, 5, 1, bits)
    else:
        info = struct.pack("<IiiHHIIiiII", 40, 7, -5 if top_down else 5, 1, bits, 0, 0, 0, 0, 0, 0)
    begin = 14 + len(info) + len(entries)
    return struct.pack("<2sIHHI", b"BM", begin + len(rows), 0, 0, begin) + info + entries + rows, expected


def files():
    """Name, bytes or how Pillow saves it, and the pixels; None: Pillow's own."""
    grey, palette = PICTURE.convert("L"), PICTURE.quantize(17)
    for name, image, options in (
        ("lossy.webp", PICTURE, {"quality": 60}),
        ("lossless.webp", PICTURE, {"lossless": True}),
        ("plain.bmp", PICTURE, {}),
        ("grey.bmp", grey, {}),
        ("palette.bmp", palette, {}),
        ("bits.bmp", PICTURE.convert("1"), {}),
        ("rgba.bmp", ALPHA, {}),
        ("palette.gif", palette, {}),
        ("interlaced.gif", palette, {"interlace": 1}),
        ("plain.gif", palette, {"interlace": 0}),
        ("raw.tif", PICTURE, {}),
        ("lzw.tiff", PICTURE, {"compression": "tiff_lzw"}),
        ("deflate.tif", PICTURE, {"compression": "tiff_adobe_deflate"}),
        ("packbits.tif", grey, {"compression": "packbits"}),
        ("palette.tif", palette, {}),
        ("bits.tif", PICTURE.convert("1"), {"compression": "group4"}),
    ):
        image.save(name, **options)
        with Image.open(name) as theirs:
            yield name, np.asarray(theirs.convert("RGB"))
    ALPHA.save("alpha.webp", lossless=True, exact=True)
    yield "alpha.webp", on_black(ALPHA)
    frames = [palette, PICTURE.rotate(90).resize(PICTURE.size).quantize(5)]
    frames[0].save("frames.gif", save_all=True, append_images=frames[1:])
    yield "frames.gif", np.asarray(palette.convert("RGB"))
    yield write("grey16.tif", tiff16(GREY16)), np.repeat((GREY16 >> 8)[:, :, None], 3, axis=2)
    deep = RNG.integers(0, 65536, (37, 53, 3)).astype(np.uint16)
    yield write("rgb16.tif", tiff16(deep)), deep >> 8


def check_pictures():
    names = []
    for name, expected in files():
        ours = pixels(name, expected.shape[1::-1]).astype(int)
        assert np.array_equal(ours, expected), (name, np.abs(ours - expected).max())
        names.append(name)
    for i, (bits, top_down, core) in enumerate([(1, True, False), (4, False, False), (4, True, False), (8, False, True)]):
        data, expected = bmp(bits, top_down, core)
        assert np.array_equal(pixels(write(f"{i}.bmp", data), (7, 5)), expected), (bits, top_down, core)
    print(len(names), "files have the expected pixels")
    return names


def check_damage(names):
    """Cut and changed anywhere: the tool ends with a reason and no signal, or has other pixels."""
    draw, n_refused = random.Random(3), 0
    for name in names:
        with open(name, "rb") as file:
            whole = file.read()
        for i in range(12):
            data = bytearray(whole[: draw.randrange(len(whole))] if i % 2 else whole)
            for _ in range(draw.randrange(1, 6) if data else 0):
                data[draw.randrange(len(data))] = draw.randrange(256)
            write("damaged", bytes(data))
            done = subprocess.run([TOOL], input=b"full damaged\n", capture_output=True, check=False)
            assert done.returncode >= 0 and (done.returncode == 0) == (done.stderr == b""), (name, i, done.returncode, done.stderr)
            n_refused += done.returncode != 0
            assert b"Sanitizer" not in done.stderr, done.stderr
    print(n_refused, "of", 12 * len(names), "damaged files are refused")
    assert n_refused > 5 * len(names)


def check_messages():
    frames = [PICTURE, PICTURE.rotate(180)]
    frames[0].save("moving.webp", save_all=True, append_images=frames[1:])
    with open("plain.bmp", "rb") as file:
        data = bytearray(file.read())
    data[30] = 1  # run lengths
    write("rle.bmp", bytes(data))
    write("photo.heic", b"\0\0\0\x18ftypheic" + 100 * b"\0")
    for name, reason in (("moving.webp", b"an animated WebP file"), ("rle.bmp", b"compression 1"), ("photo.heic", b"a HEIC file")):
        done = subprocess.run([TOOL], input=f"full {name}\n".encode(), capture_output=True, check=False)
        assert reason in done.stderr, (name, done.stderr)


def check_folder():
    """One class per format; packed, they are JPEG files."""
    for kind in ("webp", "tif", "gif", "bmp"):
        for i in range(8):
            image = Image.fromarray(RNG.integers(0, 256, (32, 32, 3)).astype(np.uint8))
            os.makedirs(f"photos/{kind}", exist_ok=True)
            (image.quantize(64) if kind == "gif" else image).save(f"photos/{kind}/{i}.{kind}")
    assert "32 of 32 images decoded" in said("verify", "photos")
    done = train("of photos", {"data.source": "folder", "data.train": "photos", "data.val_fraction": 0.25})
    assert "4 classes" in done.said and "skipped under" not in done.said, done.said
    said("shard", "photos", "packed")
    images = [data for name, data in members_of("packed/train-0000.tar") if name.endswith(".jpg")]
    assert len(images) == 32 and all(data[:2] == b"\xff\xd8" for data in images)


def samples_of(folder, prefix="train"):
    """Label and pixels, sorted by both."""
    found, labels, images = [], {}, {}
    for path in sorted(glob.glob(f"{folder}/{prefix}-*.tar")):
        for name, data in members_of(path):
            key, kind = name.split(".")
            (labels if kind == "cls" else images)[key] = data
            assert kind in ("cls", "png"), name
    for key, data in images.items():
        found.append((int(labels[key]), Image.open(io.BytesIO(data)).convert("RGB").tobytes()))
    return sorted(found)


def cifar_archive(name, batches, names, coarse):
    """Writes one in the official layout. Returns the samples of each batch."""
    samples = {}
    with tarfile.open(name, "w:gz") as archive:
        for file, n in batches.items():
            planes = RNG.integers(0, 256, (n, 3, 32, 32)).astype(np.uint8)
            fine = RNG.integers(0, len(names[1]), n).astype(np.uint8)
            head = [(fine // 5).astype(np.uint8)[:, None], fine[:, None]] if coarse else [fine[:, None]]
            data = np.concatenate([*head, planes.reshape(n, -1)], axis=1).tobytes()
            samples[file] = [(int(label), image.transpose(1, 2, 0).tobytes()) for label, image in zip(fine, planes)]
            add(archive, f"cifar/{file}", data)
        add(archive, f"cifar/{names[0]}", "\n".join(names[1]).encode() + b"\n\n")
        add(archive, "cifar/readme.html", b"<html>")
    return samples


def add(archive, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def check_cifar():
    Image.fromarray(RGB).save("plain.png")
    pixels("plain.png")  # skips the test in a build without libpng
    ten = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    batches = {f"data_batch_{i}.bin": 20 + i for i in (3, 1, 2, 5, 4)}
    samples = cifar_archive("cifar-10-binary.tar.gz", {**batches, "test_batch.bin": 30}, ("batches.meta.txt", ten), False)
    said("shard", "cifar-10-binary.tar.gz", "ten", "--per-shard", "50")
    said("shard", "cifar-10-binary.tar.gz", "ten", "--test", "--prefix", "val")
    assert samples_of("ten") == sorted(sum((samples[file] for file in batches), []))
    assert samples_of("ten", "val") == sorted(samples["test_batch.bin"])
    with open("ten/classes.txt", encoding="utf-8") as file:
        assert file.read().split() == ten
    said("verify", "ten")
    done = train("of ten", {"data.source": "shards", "data.train": "ten/train-{0000..0002}.tar", "data.val": "ten/val-0000.tar"})
    assert "10 classes (airplane" in done.said, done.said
    hundred = [f"class {i}" for i in range(100)]
    samples = cifar_archive("cifar-100-binary.tar.gz", {"train.bin": 40, "test.bin": 11}, ("fine_label_names.txt", hundred), True)
    said("shard", "cifar-100-binary.tar.gz", "hundred")
    assert samples_of("hundred") == sorted(samples["train.bin"])
    with tarfile.open("cifar-10-python.tar.gz", "w:gz") as archive:
        add(archive, "cifar-10-batches-py/data_batch_1", b"\x80\x02}")
    refused = rig.run(DTRAIN, "shard", "cifar-10-python.tar.gz", "none", code=65)
    assert "the Python version is not read" in refused.said, refused.said


def check_mnist():
    for part, n in (("train", 48), ("t10k", 16)):
        images, labels = RNG.integers(0, 256, (n, 28, 28)).astype(np.uint8), RNG.integers(0, 10, n).astype(np.uint8)
        write(f"mnist/{part}-images-idx3-ubyte.gz", gzip.compress(struct.pack(">4I", 0x803, n, 28, 28) + images.tobytes()))
        write(f"mnist/{part}-labels-idx1-ubyte", struct.pack(">2I", 0x801, n) + labels.tobytes())
        prefix = "val" if part == "t10k" else "train"
        said("shard", "mnist", "digits", "--prefix", prefix, *(["--test"] if part == "t10k" else []))
        expected = [(int(label), np.repeat(image[:, :, None], 3, axis=2).tobytes()) for label, image in zip(labels, images)]
        assert samples_of("digits", prefix) == sorted(expected)
    done = train("of digits", {"data.source": "shards", "data.train": "digits/train-0000.tar", "data.val": "digits/val-0000.tar"})
    assert "48 training and 16 validation images" in done.said, done.said
    write("mnist/train-labels-idx1-ubyte", struct.pack(">2I", 0x801, 47) + bytes(47))
    refused = rig.run(DTRAIN, "shard", "mnist", "none", code=65)
    assert "is no IDX file of the labels of 48 images" in refused.said, refused.said
    refused = rig.run(DTRAIN, "shard", "photos", "none", "--test", code=64)
    assert "--test goes with CIFAR and MNIST only" in refused.said, refused.said


write_config(
    {
        "model": {"name": "tiny", "image_size": 32},
        "data": {"workers": 1},
        "train": {"max_steps": 2, "global_batch_size": 8},
        "schedule": {"warmup_epochs": 0},
        "device": {"kind": "cpu", "threads": 1},
        "output": {"sinks": ["jsonl"]},
    }
)
made = check_pictures()
check_damage(made)
check_messages()
check_folder()
check_cifar()
check_mnist()
