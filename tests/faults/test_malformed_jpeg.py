"""Malformed JPEG files against an independent oracle, libjpeg-turbo's own djpeg.

A file that djpeg rejects must be bad, one that it decodes silently must be good, and the table
REMARKS decides for files with warnings. dtrain also rejects more than 100 M pixels, two components
and arithmetic coding. djpeg reads from memory, like dtrain: libjpeg-turbo reports an impossible
Huffman code only near the end of its input buffer; elsewhere it treats such a code as 0.
usage: test_malformed_jpeg.py DTRAIN [--long] (500 files, or 10,000)
"""

import collections
import glob
import io
import itertools
import multiprocessing
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SHARED = os.environ.get("DTRAIN_SHARED_DIR", os.path.join(HERE, "..", "..", "..", "shared"))
PIXELS_MAX = 100_000_000
CPU_MS_MAX = 10_000  # the goal is 2 s; sanitizers and slow machines need more
RSS_KIB_MAX = 1 << 20

# Warnings of libjpeg: the start of the text, and whether the file is good nevertheless. Damage to
# the image data is bad; odd headers and junk between segments are not.
REMARKS = (
    (r"Unknown Adobe color transform code", True),
    (r"Corrupt JPEG data: \d+ extraneous bytes before marker", True),
    (r"Warning: unknown JFIF revision number", True),
    (r"Invalid SOS parameters for sequential JPEG", True),
    (r"Corrupt JPEG data: bad ICC marker", True),
    (r"Corrupt JPEG data: bad arithmetic code", False),
    (r"Corrupt JPEG data: premature end of data segment", False),
    (r"Corrupt JPEG data: bad Huffman code", False),
    (r"Corrupt JPEG data: found marker 0x\w+ instead of RST", False),
    (r"Inconsistent progression sequence", False),
    (r"Premature end of JPEG file", False),
    (r"Application transferred too", False),
)


# --- Good files to start from ---


def photos():
    """A few members of the sample shards."""
    found = []
    for name in sorted(glob.glob(os.path.join(SHARED, "data", "imagenet-sample", "*.tar"))):
        with tarfile.open(name) as archive:
            members = [m for m in archive.getmembers() if m.name.endswith((".jpg", ".JPEG"))]
            found += [archive.extractfile(m).read() for m in members[:8]]
    return found


def bases(rng):
    from PIL import Image

    made, found = [], photos()
    kinds = itertools.product(("RGB", "L", "CMYK"), (30, 75, 95), (0, 1, 2), (False, True))
    for number, (mode, quality, sampling, progressive) in enumerate(kinds):
        size = (rng.randint(1, 120), rng.randint(1, 120))
        if found and number % 2:
            image = Image.open(io.BytesIO(rng.choice(found))).convert("RGB")
        else:
            image = Image.frombytes("RGB", (9, 7), rng.randbytes(9 * 7 * 3))
        image = image.resize(size, Image.BICUBIC).convert(mode)
        out = io.BytesIO()
        image.save(out, "JPEG", quality=quality, subsampling=sampling, progressive=progressive)
        made.append(out.getvalue())
    return made, len(found)


# --- Damage ---


def segments(data):
    """(marker, offset of its 0xff) up to the first scan; like libjpeg, skips other bytes."""
    at = 2
    while at + 4 <= len(data):
        at = data.find(b"\xff", at)
        while at >= 0 and at + 1 < len(data) and data[at + 1] == 0xFF:
            at += 1
        if at < 0 or at + 4 > len(data):
            return
        marker = data[at + 1]
        if marker in (0x00, 0x01) or 0xD0 <= marker <= 0xD8:
            at += 2
            continue
        yield marker, at
        if marker in (0xD9, 0xDA):
            return
        at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]


def mutate(rng, files):
    data = bytearray(rng.choice(files))
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(2, len(data))
        data[at] = rng.choice((rng.randrange(256), data[at] ^ 1 << rng.randrange(8), 0xFF, 0))
    return bytes(data)


def truncate(rng, files):
    data = rng.choice(files)
    cut = data[: rng.randrange(len(data))]
    return cut + b"\xff\xd9" if rng.random() < 0.3 else cut


def edit_header(rng, files):
    data = bytearray(rng.choice(files))
    marker, at = rng.choice(list(segments(data)))
    word = rng.choice((0, 1, 2, 255, 256, 4096, 20000, 65500, 65535, rng.randrange(65536)))
    kind = rng.randrange(4)
    if kind == 0:
        data[at + 1] = rng.choice(b"\xc0\xc1\xc2\xc3\xc4\xc9\xca\xda\xdb\xdd\xe0\xee")
    elif kind == 1:
        struct.pack_into(">H", data, at + 2, word)
    elif marker in (0xC0, 0xC2) and kind == 2:
        struct.pack_into(">H", data, at + rng.choice((5, 7)), word)
    else:
        end = min(len(data), at + 20)
        data[rng.randrange(at + 4, end)] = rng.randrange(256)
    return bytes(data)


def splice(rng, files):
    first, second = rng.choice(files), rng.choice(files)
    head = first[: rng.randrange(2, len(first))]
    if rng.random() < 0.3:  # duplicates a piece
        begin = rng.randrange(len(first))
        return head + first[begin : begin + rng.randint(1, 200)] + first[len(head) :]
    return head + second[rng.randrange(len(second)) :]


def from_corpus(rng, files):
    corpus = sorted(glob.glob(os.path.join(HERE, "..", "fuzz", "corpus", "jpeg", "*")))
    data = open(rng.choice(corpus), "rb").read() if corpus else b""
    if len(data) < 4 or rng.random() < 0.1:
        return b"\xff\xd8" + rng.randbytes(rng.randint(0, 500))
    return mutate(rng, [data]) if rng.random() < 0.7 else data


KINDS = (  # twentieths of all files
    ("bytes", mutate, 10),
    ("cut", truncate, 4),
    ("header", edit_header, 2),
    ("splice", splice, 2),
    ("fuzz", from_corpus, 2),
)


def make_files(folder, n, rng):
    files, n_photos = bases(rng)
    names = []
    for kind, damage, twentieths in KINDS:
        for number in range(n * twentieths // 20):
            name = os.path.join(folder, f"{kind}-{number}.jpg")
            with open(name, "wb") as out:
                out.write(damage(rng, files))
            names.append(name)
    print(f"{len(names)} files made from {len(files)} pictures; {n_photos} photos available")
    return names


# --- The oracle ---


def frame(data):
    """Width, height, components and marker of the first frame header, None if it has none."""
    for marker, at in segments(data):
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC) and at + 10 <= len(data):
            height, width, components = struct.unpack(">HHB", data[at + 5 : at + 10])
            return width, height, components, marker
    return None


def oracle(name):
    """(good, why)"""
    data = open(name, "rb").read()
    if data[:2] == b"\xff\xd8":
        found = frame(data)
        if found and found[0] * found[1] > PIXELS_MAX:
            return False, "pixels"
        if found and (found[2] == 2 or found[3] >= 0xC9):
            return False, "components or arithmetic coding"
    limits = ["-maxscans", "100", "-maxmemory", "512000"]
    command = ["djpeg", "-memsrc", *limits, *["-verbose"] * 3, "-outfile", "/dev/null", name]
    run = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    lines = run.stderr.decode("latin-1").splitlines()
    remarks = [(line, good) for line in lines for text, good in REMARKS if re.match(text, line)]
    if run.returncode not in (0, 1, 2):
        return False, f"djpeg ended with {run.returncode}"
    if run.returncode == 1:
        return False, "refused: " + (lines[-1] if lines else "")
    if run.returncode == 2 and not remarks:
        return False, "a remark that is not in the table: " + " | ".join(lines[-3:])
    for line, good in remarks:
        if not good:
            return False, line
    return True, " | ".join(line for line, _ in remarks) or "clean"


# --- Comparison ---


def decode_all(tool, names):
    """The tool's lines for all names, the number of crashes, and the peak resident size."""
    verdicts, n_crashes, rss = [], 0, 0
    while len(verdicts) < len(names):
        rest = "".join(name + "\n" for name in names[len(verdicts) :])
        run = subprocess.run([tool], input=rest.encode(), capture_output=True, check=False)
        lines = run.stdout.decode("utf-8", "replace").splitlines()
        if run.returncode == 0:
            rss = max(rss, int(lines.pop()))
        verdicts += [line.split("\t") for line in lines]
        if run.returncode != 0:
            n_crashes += 1
            sys.stderr.write(f"crash on {names[len(verdicts)]}\n{run.stderr.decode()[-3000:]}\n")
            verdicts.append(["crash", "0", ""])
    return verdicts, n_crashes, rss


def main():
    if not shutil.which("djpeg"):
        print("skipped: no djpeg (package libjpeg-turbo-progs)")
        return 77
    tool = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "tests", "decode_list_tool")
    rng = random.Random(20250401)
    with tempfile.TemporaryDirectory() as folder:
        names = make_files(folder, 10000 if "--long" in sys.argv else 500, rng)
        verdicts, n_crashes, rss = decode_all(tool, names)
        with multiprocessing.Pool(2) as pool:
            expected = pool.map(oracle, names, chunksize=20)
        n_wrong, count = 0, collections.Counter()
        for name, (verdict, _, reason), (good, why) in zip(names, verdicts, expected):
            count[os.path.basename(name).split("-")[0], verdict] += 1
            if verdict != ("ok" if good else "bad"):
                n_wrong += 1
                kept = shutil.copy(name, tempfile.gettempdir())
                sys.stderr.write(f"{kept}: {verdict} ({reason}), djpeg: {good} ({why})\n")
    slowest = max(float(ms) for _, ms, _ in verdicts)
    for kind, _, _ in KINDS:
        print(f"{kind:8}{count[kind, 'ok']:6} good {count[kind, 'bad']:6} bad")
    print(f"{len(names)} files: {n_crashes} crashes, {n_wrong} disagreements with djpeg")
    print(f"at most {slowest:.0f} ms of CPU time per file, {rss // 1024} MiB resident")
    return 1 if n_crashes or n_wrong or slowest > CPU_MS_MAX or rss > RSS_KIB_MAX else 0


sys.exit(main())
