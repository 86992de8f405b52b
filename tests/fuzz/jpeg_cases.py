"""JPEG files: the pictures and the damaged files of support/jpeg_make.h, and random damage to them
and to the corpus. The target compares each verdict with that of libjpeg alone.
"""

import os
import random
import struct
import subprocess
import sys
import tempfile

import cases

CORPUS = os.path.join(cases.HERE, "corpus", "jpeg")
SIDE = 131  # of the pictures, at most


def read(folder, name):
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def made():
    """Name, bytes, and for damaged files what the refusal says."""
    tool = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "make_jpeg_seeds")
    with tempfile.TemporaryDirectory() as folder:
        command = [tool, folder, str(SIDE)]
        lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        for line in lines.splitlines():
            name, reason = line.split("\t")
            yield name, read(folder, name), reason


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


def from_corpus(rng, _):
    data = read(CORPUS, rng.choice(sorted(os.listdir(CORPUS))))
    if len(data) < 4 or rng.random() < 0.1:
        return b"\xff\xd8" + rng.randbytes(rng.randint(0, 500))
    return mutate(rng, [data])


KINDS = (  # twentieths of all files
    (mutate, 10),
    (truncate, 4),
    (edit_header, 2),
    (splice, 2),
    (from_corpus, 2),
)


def damaged(pictures, n):
    rng = random.Random(20250401)
    for damage, twentieths in KINDS:
        for number in range(n * twentieths // 20):
            yield f"{damage.__name__} {number}", damage(rng, pictures), "any"


FILES = list(made())
PICTURES = [data for _, data, reason in FILES if not reason]
cases.main(
    "jpeg",
    [(name, data, f"bad *{reason}" if reason else "ok") for name, data, reason in FILES],
    lambda is_long: damaged(PICTURES, 40000 if is_long else 2000),
)
