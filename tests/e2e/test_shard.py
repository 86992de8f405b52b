"""`dtrain shard` from every kind of source; `dtrain verify` on its output and on planted faults."""

import fcntl
import glob
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile

from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from made_files import members_of, png, tar_of  # noqa: E402
from scratch import TESTS, content, np, write  # noqa: E402
from scratch import said as run  # noqa: E402

MASK = 2**64 - 1


def tree(folder):
    return {name: content(folder, name) for name in sorted(os.listdir(folder))}


def same(a, b):
    x, y = tree(a), tree(b)
    assert x.keys() == y.keys(), (a, sorted(x), b, sorted(y))
    for name in x:
        assert x[name] == y[name], f"{name} differs between {a} and {b}"


# --- References: XXH64, CRC-32C, TFRecord, wds2idx v1.2 ---


def xxh64(data):
    """XXH64 as specified, with seed 0."""
    p1, p2, p3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    p4, p5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
    rotate = lambda x, r: (x << r | x >> (64 - r)) & MASK
    mix = lambda acc, lane: rotate((acc + lane * p2) & MASK, 31) * p1 & MASK
    at = 0
    if len(data) >= 32:
        acc = [(p1 + p2) & MASK, p2, 0, -p1 & MASK]
        while at + 32 <= len(data):
            lanes = struct.unpack_from("<4Q", data, at)
            acc = [mix(a, lane) for a, lane in zip(acc, lanes)]
            at += 32
        sum_ = sum(rotate(a, r) for a, r in zip(acc, (1, 7, 12, 18))) & MASK
        for a in acc:
            sum_ = ((sum_ ^ mix(0, a)) * p1 + p4) & MASK
    else:
        sum_ = p5
    sum_ = (sum_ + len(data)) & MASK
    while at + 8 <= len(data):
        lane = struct.unpack_from("<Q", data, at)[0]
        sum_ = (rotate(sum_ ^ mix(0, lane), 27) * p1 + p4) & MASK
        at += 8
    if at + 4 <= len(data):
        lane = struct.unpack_from("<I", data, at)[0]
        sum_ = (rotate(sum_ ^ lane * p1 & MASK, 23) * p2 + p3) & MASK
        at += 4
    for byte in data[at:]:
        sum_ = rotate(sum_ ^ byte * p5 & MASK, 11) * p1 & MASK
    sum_ = (sum_ ^ sum_ >> 33) * p2 & MASK
    sum_ = (sum_ ^ sum_ >> 29) * p3 & MASK
    return sum_ ^ sum_ >> 32


def crc32c_masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def part(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def record(image, label, synset, packed):
    features = {
        "image/width": part(3, part(1, varint(500))),
        "image/object/bbox/xmin": part(2, part(1, struct.pack("<f", 0.5))),
        "image/encoded": part(1, part(1, image)),
        "image/class/label": part(3, part(1, varint(label)) if packed else b"\x08" + varint(label)),
        "image/class/synset": part(1, part(1, synset.encode())),
        "image/format": part(1, part(1, b"JPEG")),
    }
    entries = [part(1, part(1, key.encode()) + part(2, value)) for key, value in features.items()]
    data = part(1, b"".join(entries))
    return framed(data, struct.pack("<I", crc32c_masked(data)))


def framed(data, checksum=b"\0\0\0\0"):
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", crc32c_masked(head)) + data + checksum


def wds2idx(tar):
    samples = []
    with tarfile.open(tar) as archive:
        for member in archive:
            key, kind = member.name.split(".", 1)
            if not samples or samples[-1][0] != key:
                samples.append((key, []))
            samples[-1][1].append(f"{kind} {member.offset_data} {member.size} {member.name}")
    lines = [f"v1.2 {len(samples)}"] + [" ".join(members) for _, members in samples]
    return ("\n".join(lines) + "\n").encode()


def samples_of(folder, prefix="train"):
    """(label, image) in shard order."""
    out, label = [], None
    for shard in sorted(glob.glob(f"{folder}/{prefix}*.tar")):
        for name, data in members_of(shard):
            if name.endswith(".cls"):
                label = int(data)
            else:
                out.append((label, data))
    return out


# --- Sources ---


def make_classes():
    """Class folders named like WordNet IDs; classes and files are ordered differently."""
    run("demo-data", "shapes", "--images-per-class", 4, "--size", 40)
    for i, name in enumerate(sorted(os.listdir("shapes"))):
        wnid = f"n{(i * 7919) % 10 * 11111 + 10000:08d}"
        for file in os.listdir(f"shapes/{name}"):
            write(f"src/{wnid}/{wnid}_{file[:-4]}.JPEG", content("shapes", name, file))


def list_images(folder):
    for wnid in sorted(os.listdir(folder)):
        for file in sorted(os.listdir(f"{folder}/{wnid}")):
            yield wnid, file, content(folder, wnid, file)


def test_folder():
    run("shard", "src", "folder", "--per-shard", 7, "--threads", 1)
    assert sorted(tree("folder")) == sorted(
        ["_info.json", "checksums.xxh64", "classes.txt"]
        + [f"train-{i:04d}.{end}" for i in range(6) for end in ("tar", "idx")]
    )
    run("shard", "src", "threads", "--per-shard", 7, "--threads", 3)
    same("folder", "threads")
    images = {(sorted(os.listdir("src")).index(w), data) for w, _, data in list_images("src")}
    assert set(samples_of("folder")) == images and len(images) == 40
    lines = content("folder/checksums.xxh64").decode().splitlines()
    assert lines == [
        f"{xxh64(content('folder', f'train-{i:04d}.tar')):016x}  train-{i:04d}.tar" for i in range(6)
    ]
    assert content("folder/train-0003.idx") == wds2idx("folder/train-0003.tar")
    if shutil.which("xxhsum"):
        subprocess.run(["xxhsum", "-c", "checksums.xxh64"], cwd="folder", check=True)
    assert "40 samples" in run("verify", "folder")


def test_splits():
    shutil.copytree("folder", "splits")
    run("shard", "src", "splits", "--prefix", "train-b", "--per-shard", 30)
    run("shard", "src", "splits", "--prefix", "val", "--per-shard", 30)
    splits = json.loads(content("splits/_info.json"))["splits"]
    assert list(splits) == ["train", "train-b", "val"]
    assert len(content("splits/checksums.xxh64").splitlines()) == 6 + 2 + 2
    assert "10 shards, 120 samples" in run("verify", "splits")
    assert "1 shards, 10 samples" in run("verify", "splits/val-0001.tar")
    run("shard", "src", "splits", "--prefix", "val", code=73)
    os.chdir("splits")
    assert "1 shards, 30 samples" in run("verify", "val-0000.tar")
    os.chdir("..")


def test_shards():
    """Shards as a source: the same images, labels and classes in another order and shard size."""
    run("shard", "folder", "again", "--per-shard", 15, "--seed", 5)
    run("shard", "folder/train-{0000..0005}.tar", "pattern", "--per-shard", 15, "--seed", 5)
    same("again", "pattern")
    assert sorted(samples_of("again")) == sorted(samples_of("folder"))
    assert samples_of("again") != samples_of("folder")
    assert content("again", "classes.txt") == content("folder", "classes.txt")
    run("verify", "again")


def test_train_tar():
    members = []
    for wnid in sorted(os.listdir("src"), reverse=True):
        files = [(f, d) for w, f, d in list_images("src") if w == wnid]
        tar_of("class.tar", files[::-1])
        members.append((f"{wnid}.tar", content("class.tar")))
    tar_of("ILSVRC2012_img_train.tar", members)
    for name in "train_tar", "train_tar2":
        run("shard", "ILSVRC2012_img_train.tar", name, "--per-shard", 7, "--threads", 2)
        same("folder", name)
    # Without the end mark of an inner tar, the next class would be mistaken for images of it.
    data = members[3][1]
    tar_of(
        "cut.tar", members[:3] + [(members[3][0], data[: len(data) // 1024 * 512])] + members[4:]
    )
    assert members[3][0] in run("shard", "cut.tar", "cut", code=65)
    tar_of("twice.tar", members[:1] * 2)
    assert "two members" in run("shard", "twice.tar", "none", code=65)


def test_val_tar():
    images = [(wnid, data) for wnid, _, data in list_images("src")]
    files = [(f"ILSVRC2012_val_{i + 1:08d}.JPEG", data) for i, (_, data) in enumerate(images)]
    lines = [f"{wnid}\n" for wnid, _ in images]
    tar_of("ILSVRC2012_img_val.tar", files[::-1])
    write("val.txt", "".join(lines))
    run("shard", "ILSVRC2012_img_val.tar", "val", "--labels", "val.txt", "--per-shard", 7)
    assert samples_of("val") == samples_of("folder")
    same("folder", "val")
    assert "--labels" in run("shard", "ILSVRC2012_img_val.tar", "none", code=65)
    assert "goes with" in run("shard", "src", "none", "--labels", "val.txt", code=64)
    assert "absent.tar" in run("shard", "absent.tar", "none", "--labels", "val.txt", code=66)

    def refused(text, data, code=65):
        if data is not None:
            write("bad.txt", data)
        path = "src" if data is None else "bad.txt"
        out = run("shard", "ILSVRC2012_img_val.tar", "none", "--labels", path, code=code)
        assert text in out and path in out, (text, out)
        assert "labels for" in text or "scripts/ilsvrc_labels.py makes" in out, out

    refused("labels for 39", "".join(lines[1:]))
    refused("labels for 0", "")
    refused("line 40", "".join(lines[1:]) + "490\n")
    refused("line 2", lines[0] + "n0144076\n")
    refused("line 1", b"MATLAB 5.0 MAT-file" + bytes(128))
    refused("line 1", b"\x1f\x8b\x08" + bytes(128))
    refused("not a regular file", None, 66)


def test_val_labels():
    """scripts/ilsvrc_labels.py: the list from a development kit."""
    try:
        import scipy.io
    except ImportError:
        print("no scipy: the development kit is not tested")
        return
    wnids = sorted(os.listdir("src"))
    numbers = {wnid: (i * 3) % 10 + 1 for i, wnid in enumerate(wnids)}
    rows = [(numbers[w], w, 0) for w in wnids[::-1]] + [(11, "n00000001", 10)]
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("num_children", "O")]
    synsets = np.zeros((len(rows), 1), dtype=kinds)
    for i, (number, wnid, children) in enumerate(rows):
        synsets[i, 0] = (float(number), wnid, f"word {i}", np.uint8(children))
    mat = io.BytesIO()
    scipy.io.savemat(mat, {"other": np.arange(9.0), "synsets": synsets}, do_compression=True)
    truth = "".join(f"{numbers[wnid]}\n" for wnid, _, _ in list_images("src"))

    def script(meta, truth):
        names = ["meta.mat", "ILSVRC2012_validation_ground_truth.txt"]
        members = zip([f"ILSVRC2012_devkit_t12/data/{name}" for name in names], [meta, truth.encode()])
        tar_of("devkit.tar.gz", [m for m in members if m[1]], "w:gz", tarfile.PAX_FORMAT)
        words = [os.path.join(TESTS, "..", "scripts", "ilsvrc_labels.py"), "devkit.tar.gz", "made.txt"]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
        return done.returncode, done.stderr

    assert script(mat.getvalue(), truth) == (0, "")
    assert content("made.txt") == content("val.txt")
    for reason, *kit in (
        ("KeyError(11)", mat.getvalue(), truth + "11\n"),
        ("no meta.mat", b"", truth),
        ("Error", mat.getvalue()[:-40], truth),
        ("Error", b"x" * 300, truth),
    ):
        code, said = script(*kit)
        assert code == 1 and said.startswith("ilsvrc_labels.py: cannot read devkit.tar.gz"), said
        assert reason in said and said.count("\n") == 1, said


def test_tfrecord():
    wnids = sorted(os.listdir("src"))
    records = [
        record(data, wnids.index(wnid) + 1, wnid, i % 2)
        for i, (wnid, _, data) in enumerate(list_images("src"))
    ]
    for i in range(4):
        write(f"tf/train-{i:05d}-of-00004", b"".join(records[i * 10 : i * 10 + 10]))
    pattern = "tf/train-{00000..00003}-of-00004"
    run("shard", pattern, "tfrecord", "--per-shard", 7, "--threads", 2)
    same("folder", "tfrecord")
    run("shard", "tf/train-00001-of-00004", "one")
    assert len(samples_of("one")) == 10
    assert "label-offset 2" in run("shard", pattern, "none", "--label-offset", 2, code=65)
    assert "cannot open" in run("shard", "tf/{0..1}", "none", code=66)
    whole = content("tf/train-00002-of-00004")
    start = len(records[20])

    def refused(text, data):
        write("tf/bad", data)
        out = run("shard", "tf/{train-00001-of-00004,bad}", "none", code=65)
        assert text in out and "tf/bad" in out, (text, out)

    def flipped(at):
        return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]

    refused("its checksum", flipped(start + 1))
    refused("the file is truncated", whole[:-1])
    refused("truncated", whole[: start + 5])
    refused("checksum differs", flipped(len(records[20]) // 2))
    refused("no tf.Example", framed(b"\x0a\xff\x01"))
    refused("no image/encoded", framed(part(1, b"")))


def example(**features):
    entries = [part(1, part(1, key.replace("__", "/").encode()) + part(2, value)) for key, value in features.items()]
    data = part(1, b"".join(entries))
    return framed(data, struct.pack("<I", crc32c_masked(data)))


def test_tfrecord_values():
    """One image and one label in a record, under any key."""
    image = jpeg("RGB", (9, 9), format="JPEG")[1]
    one, two = part(1, part(1, image)), part(1, part(1, image) * 2)
    label, packed, plain = part(3, b"\x08\x01"), part(3, part(1, b"\0\1\0")), part(3, b"\x08\x01\x08\x02")
    good = example(image__encoded=one, image__class__label=label)
    text, real = part(1, part(1, b"cat")), part(2, part(1, bytes(4)))
    tfds = {"image": one, "label": label, "file_name": text}
    for words, record in (
        ("3 values of image/class/label", example(image__encoded=one, image__class__label=packed)),
        ("2 values of image/class/label", example(image__encoded=one, image__class__label=plain)),
        ("2 values of image/encoded", example(image__encoded=two, image__class__label=label)),
        ("no image/class/label with an integer", example(image__encoded=one, image__class__label=text)),
        ("no image/class/label with an integer", example(image__encoded=one, image__class__label=real)),
        ("no image/class/label with an integer", example(image__encoded=one, image__class__label=part(3, b""))),
        ("no image/encoded with an image; its keys are: image, label, file_name; name", example(**tfds)),
    ):
        write("tf/one", good + record)
        assert "record 1 of tf/one has " + words in run("shard", "tf/one", "none", code=65), words
    write("tf/one", example(**tfds))
    keys = "--image-key", "image", "--label-key", "label"
    run("shard", "tf/one", "tfds", *keys)
    assert samples_of("tfds") == [(0, image)]
    assert "record 0 of tf/one has no x with" in run("shard", "tf/one", "none", *keys[:3], "x", code=65)
    assert "--image-key goes with TFRecord files only" in run("shard", "src", "none", *keys, code=64)


# --- Conversion ---


def jpeg(mode, size, **options):
    rng = np.random.default_rng(3)
    small = rng.integers(0, 256, (4, 5, len(Image.new(mode, (1, 1)).getbands())), dtype=np.uint8)
    image = Image.fromarray(small.squeeze(), mode).resize(size, Image.BICUBIC)
    out = io.BytesIO()
    image.save(out, **options)
    return image, out.getvalue()


def test_convert():
    cmyk, data = jpeg("CMYK", (61, 40), format="JPEG", quality=95)
    write("odd/a/cmyk.jpg", data)
    grey, data = jpeg("L", (50, 50), format="JPEG")
    write("odd/a/grey.jpg", data)
    rgba, data = jpeg("RGBA", (33, 40), format="PNG")
    write("odd/b/named.jpg", data)
    write("odd/b/other.png", data)
    out = run("shard", "odd", "odd1", "--seed", 4)
    images = {len(data): Image.open(io.BytesIO(data)) for _, data in samples_of("odd1")}
    if "libpng" in out:
        raise AssertionError("the build has no libpng")
    assert "4 images of 2 classes" in out and "1 unchanged, 3 converted" in out, out
    assert sorted((i.mode, i.size) for i in images.values()) == [
        ("L", (50, 50)),
        ("RGB", (33, 40)),
        ("RGB", (61, 40)),
    ]
    on_black = Image.new("RGB", rgba.size)
    on_black.paste(rgba, mask=rgba.getchannel("A"))
    for image in images.values():
        want = {(33, 40): on_black, (61, 40): cmyk, (50, 50): grey}[image.size].convert("RGB")
        error = np.abs(np.float32(image.convert("RGB")) - np.float32(want)).mean()
        assert error < 6, (image, error)
    assert "0 faults" in run("verify", "odd1")
    write("lines/a\nb/grey.jpg", data)
    assert "line break" in run("shard", "lines", "none", code=65)
    for name, size, text in ("wide", (65501, 1), "do not fit"), ("cut", (60, 60), "damaged PNG"):
        data = jpeg("RGB", size, format="PNG")[1]
        write(f"png/a/{name}.png", data[: -len(data) // 3] if name == "cut" else data)
        out = run("shard", "png", "none", code=65)
        assert text in out and f"{name}.png" in out and os.listdir("none") == [], out
        os.unlink(f"png/a/{name}.png")


def png_of(rows, depth, *chunks):
    """RGB of 8 or 16 bits, with more chunks before the pixels."""
    pack = ">%dB" if depth == 8 else ">%dH"
    scale = 1 if depth == 8 else 257
    lines = [b"\0" + struct.pack(pack % row.size, *(row.ravel() * scale)) for row in rows]
    return png(rows.shape[1], rows.shape[0], b"".join(lines), depth, chunks=chunks)


def test_table():
    """A table of the files of a folder gives the same shards as the folder."""
    paths = sorted(glob.glob("src/*/*"))
    rows = "".join(f'{path},"{path.split("/")[1]}"\n' for path in paths)
    write("table.csv", ("path,label\n" + rows).encode())
    run("shard", "src", "of_folder")
    run("shard", "table.csv", "of_table")
    assert samples_of("of_folder") == samples_of("of_table") and samples_of("of_table")


def test_png_colours():
    """As in Pillow, neither 16 bits nor a gamma changes the values."""
    ramp = np.repeat(np.arange(0, 256, 5), 8)[None, :, None].repeat(16, 0).repeat(3, 2)
    write("ramp/a/plain.png", png_of(ramp, 8))
    write("ramp/a/gamma.png", png_of(ramp, 8, (b"gAMA", struct.pack(">I", 100000))))
    write("ramp/a/deep.png", png_of(ramp, 16))
    run("shard", "ramp", "ramp1")
    samples = samples_of("ramp1")
    assert len(samples) == 3 and len({data for _, data in samples}) == 1
    got = np.asarray(Image.open(io.BytesIO(samples[0][1])), dtype=int)
    assert np.abs(got - ramp).max() <= 6, got[0, :, 0]


def test_one_at_a_time():
    """Two runs must not write to the same folder; files left by a killed run are removed."""
    write("shared/train-0042.tar.tmp", b"left over")
    write("shared/train-0042.idx.tmp", b"left over")
    write("shared/val-0001.tar.tmp", b"of another split")
    folder = os.open("shared", os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    assert "another dtrain shard" in run("shard", "src", "shared", "--prefix", "val", code=84)
    os.close(folder)
    run("shard", "src", "shared", "--per-shard", 20)
    assert sorted(n for n in os.listdir("shared") if n.endswith(".tmp")) == ["val-0001.tar.tmp"]


def test_resize():
    for i, size in enumerate([(120, 80), (81, 300), (64, 64), (50, 300), (65, 64)]):
        write(f"large/a/{i}.jpg", jpeg("RGB", size, format="JPEG", quality=90)[1])
    out = run("shard", "large", "small", "--resize-short", 64, "--quality", 90, "--threads", 2)
    assert "3 unchanged, 0 converted, 2 resized" in out, out
    images = [Image.open(io.BytesIO(data)) for _, data in samples_of("small")]
    assert sorted(i.size for i in images) == [(50, 300), (64, 64), (64, 237), (65, 64), (96, 64)]
    for image in images:
        if image.size in ((96, 64), (64, 237)):
            source = Image.open("large/a/0.jpg" if image.size[0] == 96 else "large/a/1.jpg")
            want = np.float32(source.resize(image.size, Image.BILINEAR))
            assert np.abs(np.float32(image) - want).mean() < 2
    better = run("shard", "large", "small2", "--resize-short", 64, "--threads", 1)
    assert len(samples_of("small2")) == 5 and "2 resized" in better
    assert sum(len(d) for _, d in samples_of("small2")) > sum(
        len(d) for _, d in samples_of("small")
    )
    run("shard", "large", "none", "--resize-short", 31, code=64)
    run("shard", "large", "none", "--quality", 101, code=64)


def test_all_bad():
    write("useless/a/1.jpg", b"no image")
    out = run("shard", "useless", "none", "--skip-bad", code=65)
    assert "none of the 1 images" in out and os.listdir("none") == [], out


def test_bad():
    shutil.copytree("src", "bad")
    wnid = sorted(os.listdir("bad"))[4]
    path = f"bad/{wnid}/{wnid}_00002.JPEG"
    write(path, content(path)[:-200])
    out = run("shard", "bad", "kept", "--per-shard", 7, code=65)
    assert path in out and "--skip-bad" in out and os.listdir("kept") == [], out
    for threads in 1, 3:
        options = ["--per-shard", 7, "--threads", threads, "--skip-bad"]
        out = run("shard", "bad", f"skip{threads}", *options)
        assert f"{path} is skipped" in out and "1 bad ones skipped" in out, out
    same("skip1", "skip3")
    info = json.loads(content("skip1/_info.json"))["splits"]["train"]
    assert info["num_samples"] == 39 and sum(info["shard_lengths"]) == 39
    assert "39 samples" in run("verify", "skip1")


# --- Faults ---


def seal(folder, shard):
    """Renews index and checksum of a shard, so that it has only the intended fault."""
    write(f"{folder}/{shard}.idx", wds2idx(f"{folder}/{shard}.tar"))
    seal_sum(folder, shard)


def seal_sum(folder, shard):
    lines = content(folder, "checksums.xxh64").decode().splitlines()
    sums = dict(line.split("  ")[::-1] for line in lines)
    sums[f"{shard}.tar"] = f"{xxh64(content(folder, f'{shard}.tar')):016x}"
    text = "".join(f"{sum_}  {name}\n" for name, sum_ in sums.items())
    write(f"{folder}/checksums.xxh64", text.encode())


def edit(change):
    """Plants a fault in the members of train-0002."""

    def plant(folder):
        members = members_of(f"{folder}/train-0002.tar")
        change(members)
        tar_of(f"{folder}/train-0002.tar", members)
        seal(folder, "train-0002")

    return plant


def at(name, data):
    def change(members):
        for member in members:
            if member[0] == name:
                member[1] = data(member[1]) if callable(data) else data

    return edit(change)


def drop(name):
    return edit(lambda members: members.remove(next(m for m in members if m[0] == name)))


def repeat_key(members):
    members += [["000014.cls", b"1"], ["000014.jpg", members[1][1]]]


def patch(file, change, sealed=False):
    def plant(folder):
        write(f"{folder}/{file}", change(bytearray(content(folder, file))))
        if sealed:
            seal_sum(folder, file[:-4])

    return plant


def flip(at_, mask=1):
    def change(data):
        data[at_] ^= mask
        return data

    return change


def json_edit(change):
    def edit_(data):
        info = json.loads(data)
        change(info["splits"]["train"])
        return json.dumps(info).encode()

    return patch("_info.json", edit_)


def wrong_length(split):
    split["shard_lengths"][2] -= 1
    split["num_samples"] -= 1


def two_keys(folder):
    """Gives a sample of train-0001 the key of one in train-0002."""
    members = members_of(f"{folder}/train-0001.tar")
    members[0][0], members[1][0] = "000014.cls", "000014.jpg"
    tar_of(f"{folder}/train-0001.tar", members)
    seal(folder, "train-0001")


def remove_lines(name):
    return lambda data: b"".join(x for x in bytes(data).splitlines(True) if name not in x)


def extra(folder):
    members = [["900000.cls", b"1"], ["900000.jpg", members_of(f"{folder}/train-0000.tar")[1][1]]]
    tar_of(f"{folder}/train-0009.tar", members)
    seal(folder, "train-0009")


def damage_scan(data):
    """Replaces entropy-coded data by ones, which are not a Huffman code."""
    return data[: len(data) // 2] + b"\xff\0" * 20 + data[len(data) // 2 + 40 :]


PNG = b"\x89PNG\r\n\x1a\n"
SHARD = "train-0002.tar"
# edit, words that the line of the fault must contain, number of lines
FAULTS = {
    "bit flip": (patch(SHARD, flip(2500)), [SHARD, "checksum"], None),
    "cut tar": (patch(SHARD, lambda d: d[:9000], True), [SHARD, "truncated"], 1),
    "no end mark": (patch(SHARD, lambda d: d[: d.rstrip(b"\0").__len__() // 512 * 512 + 512], True),
                    [SHARD, "without an end-of-archive marker"], 1),
    "missing shard": (lambda f: os.unlink(f"{f}/{SHARD}"), [SHARD, "missing"], 1),
    "extra shard": (extra, ["train-0009.tar", "does not list"], 1),
    "wrong length": (json_edit(wrong_length), [SHARD, "7 samples", "says 6"], 1),
    "wrong total": (json_edit(lambda s: s.update(num_samples=41)), ["num_samples", "41"], 1),
    "label": (at("000015.cls", b"10"), [SHARD, "label 10", "000015.cls", "0 to 9"], 1),
    "no label": (at("000015.cls", b"cat"), [SHARD, "000015.cls", "not an integer"], 1),
    "no .cls": (drop("000016.cls"), [SHARD, "sample 000016 has no .cls"], 2),
    "no .jpg": (drop("000016.jpg"), [SHARD, "sample 000016 has no .jpg"], 2),
    "second image": (edit(lambda m: m.insert(2, ["000014.jpeg", m[1][1]])),
                     [SHARD, "000014.jpeg", "second image"], 1),
    "same key": (edit(repeat_key), [SHARD, "key 000014", "twice"], 2),
    "key elsewhere": (two_keys, [SHARD, "key 000014", "train-0001.tar"], 1),
    "cut image": (at("000017.jpg", lambda d: d[:-150]), [SHARD, "000017.jpg", "Premature"], 1),
    "scrambled": (at("000017.jpg", damage_scan), [SHARD, "000017.jpg", "Corrupt JPEG"], 1),
    "PNG": (at("000018.jpg", lambda d: PNG + d), [SHARD, "000018.jpg", "a PNG file"], 1),
    "empty": (at("000018.jpg", b""), [SHARD, "000018.jpg", "empty"], 1),
    "CMYK": (at("000018.jpg", lambda _: jpeg("CMYK", (40, 40), format="JPEG")[1]),
             [SHARD, "000018.jpg", "CMYK"], 1),
    "tar header": (patch(SHARD, flip(1024), True), [SHARD, "damaged"], 1),
    "wrong sum": (patch("checksums.xxh64", lambda d: d.replace(d[:2], b"00", 1)),
                  ["train-0000.tar", "checksum"], 1),
    "no sum": (patch("checksums.xxh64", remove_lines(b"0002.tar")), [SHARD, "has no line"], 1),
    "bad line": (patch("checksums.xxh64", lambda d: d + b"what\n"), ["checksums.xxh64: line", "is not a checksum"], 1),
    "index": (patch("train-0002.idx", flip(30)), [SHARD, "line 2 of its .idx"], 1),
    "other index": (lambda f: shutil.copy(f"{f}/train-0001.idx", f"{f}/train-0002.idx"),
                    [SHARD, "line 2 of its .idx"], 1),
    "no index": (lambda f: os.unlink(f"{f}/train-0002.idx"), [SHARD, "its .idx is missing"], 1),
    "bad info": (patch("_info.json", lambda d: d[:-9]), ["_info.json"], 1),
    "classes": (patch("classes.txt", remove_lines(b"n00010000")), ["label 9", "0 to 8"], 4),
}  # fmt: skip


def faults_in(*args):
    out = run("verify", *args, code=65)
    lines = [line for line in out.splitlines() if line.startswith("!!  ")]
    assert lines[-1].split()[1] == args[0] and f"{len(lines) - 1} faults" in lines[-1], out
    return lines[:-1], out


def test_faults():
    for name, (plant, words, n) in FAULTS.items():
        shutil.rmtree("broken", ignore_errors=True)
        shutil.copytree("folder", "broken")
        plant("broken")
        lines, out = faults_in("broken", "--threads", 2)
        assert any(all(word in line for word in words) for line in lines), (name, words, out)
        assert n is None or len(lines) == n, (name, out)
    print(f"{len(FAULTS)} faults: each found and named")


def test_many_faults():
    """One fault does not hide the others, and the lines do not depend on threads."""
    names = ["cut tar", "extra shard", "wrong total", "bad line"]
    shutil.rmtree("broken")
    shutil.copytree("folder", "broken")
    for name in names:
        FAULTS[name][0]("broken")
    os.unlink("broken/train-0004.tar")
    patch("train-0005.tar", flip(2048, 255))("broken")
    lines, out = faults_in("broken", "--threads", 1)
    for words in [FAULTS[n][1] for n in names] + [["train-0004.tar"], ["train-0005.tar"]]:
        assert any(all(word in line for word in words) for line in lines), (words, out)
    assert lines == faults_in("broken", "--threads", 3)[0]


def test_repeated_keys():
    """In one shard, between shards of a split, not between splits: verify and training agree."""
    jpeg = io.BytesIO()
    Image.new("RGB", (8, 8)).save(jpeg, "JPEG")
    os.mkdir("repeated")
    for shard, keys in (("train-0", "abca"), ("train-1", "deb"), ("val-0", "af"), ("x", "a")):
        members = [m for key in keys for m in ((f"{key}.jpg", jpeg.getvalue()), (f"{key}.cls", b"1"))]
        tar_of(f"repeated/{shard}.tar", members)
    out = run("verify", "repeated", code=65)
    assert out.count("occurs twice") == 2, out
    assert "train-0.tar: key a occurs twice, not in adjacent members" in out, out
    assert "train-1.tar: key b occurs twice, also in train-0.tar" in out, out
    paths = "::".join(f"repeated/{name}.tar" for name in ("train-{0..1}", "val-0", "x"))
    write("repeated.json", {"data": {"train": paths}, "train": {"global_batch_size": 2}, "model": {"name": "tiny"}})
    out = run("--config", "repeated.json", "--dry-run")
    assert "2 of 10 samples of " in out and "train-0.tar: a.jpg, which is also in" in out, out
    assert "occur" not in run("verify", "repeated/val-0.tar")


def test_other_writers():
    """Labels in .json under any key, PNG images, and compressed tars."""
    image, picture = jpeg("RGB", (9, 9), format="JPEG")[1], png(2, 1, b"\0" + bytes(6))
    ids = [("a.jpg", image, 2), ("b.png", picture, 0), ("c.jpg", image, 1)]
    os.mkdir("others")
    members = []
    for name, data, label in ids:
        members += [(name, data), (name[0] + ".json", b'{"id": %d, "text": "x"}' % label)]
    tar_of("others/a-0.tar", members)
    tar_of("others/a-0.tar.gz", members, "w:gz")  # next to a plain one: ignored
    assert 'no "label" (data.label_key), only id text' in run("shard", "others", "none", code=65)
    run("shard", "others", "packed", "--label-key", "id")
    assert sorted(label for label, _ in samples_of("packed")) == [0, 1, 2]
    assert "3 samples" in run("verify", "others", "--label-key", "id")
    lines, out = faults_in("others")
    assert len(lines) == 3 and all(' no "label" ' in line for line in lines), out
    tar_of("others/a-0.tar", [("a.jpg", image), ("a.cls", b"1"), ("b.1.jpg", image), ("b.1.cls", b"1")])
    assert "!!  a-0.tar: sample b has no image; a key ends at the first dot" in run("verify", "others", code=65)
    assert "holds 1 samples, and 1 without an image; a key ends" in run("shard", "others", "dots")
    os.unlink("others/a-0.tar")
    for command in (["verify", "others"], ["shard", "others", "none"], ["shard", "others/a-0.tar.gz", "none"]):
        out = run(*command, code=65)
        assert "a-0.tar.gz is compressed, and training cannot seek in it: gunzip it first" in out, out


def test_decode():
    shutil.rmtree("broken")
    shutil.copytree("folder", "broken")
    FAULTS["scrambled"][0]("broken")
    assert " 0 images decoded" in run("verify", "broken", "--decode", 0)
    assert " 40 images decoded" in faults_in("broken", "--decode", 100)[1]
    assert " 11 images decoded" in run("verify", "folder", "--decode", 11)
    shutil.copytree("folder", "unsealed")
    os.unlink("unsealed/checksums.xxh64")
    assert "no checksums.xxh64 to compare with" in run("verify", "unsealed")
    tar_of("nothing.tar", [])
    assert "no samples" in run("verify", "nothing.tar", code=65)
    run("verify", "folder", "--decode", "some", code=64)
    os.mkdir("nothing")
    run("verify", "nothing", code=66)
    run("verify", "absent", code=66)


assert xxh64(b"") == 0xEF46DB3751D8E999 and xxh64(b"abc") == 0x44BC2CF5AD770999
make_classes()
for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print(f"{name}: ok", flush=True)
