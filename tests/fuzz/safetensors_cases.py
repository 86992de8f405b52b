"""safetensors and manifests: malformed files one by one, cut files, random damage."""

import json
import random
import struct

import cases


def t(name, dtype="F32", shape="2", offsets="0,8"):
    return f'"{name}":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{offsets}]}}'


A = t("a")
GOOD = "{" + A + "}"  # and 8 bytes of data

LENGTHS = (  # as stated at the beginning of GOOD
    ("header longer than the file", 1000),
    ("header of 2^63 bytes", (1 << 63) - 1),
    ("header above the limit", (16 << 20) + 1),
    ("header ends in the middle", 20),
    ("header reaches into the data", len(GOOD) + 4),
)
TENSORS = (  # of one tensor, and the bytes of data that would fit
    ("gap at the beginning", "F32", "2", "4,12", 12),
    ("size larger than the shape", "F32", "2", "0,12", 12),
    ("size smaller than the shape", "F32", "2", "0,4", 4),
    ("size of another type", "I64", "2", "0,8", 8),
    ("offsets reversed", "F32", "2", "8,0", 8),
    ("product overflows to 0", "F32", "4294967296,4294967296", "0,0", 0),
    ("bytes overflow to 0", "F32", "4294967296,1073741824", "0,0", 0),
    ("dimension above 2^53", "F32", "0,18014398509481984", "0,0", 0),
    ("dimension of 1e400", "F32", "1e400", "0,8", 8),
    ("negative dimension", "F32", "-2", "0,8", 8),
    ("two negative dimensions", "F32", "-1,-2", "0,8", 8),
    ("fractional dimension", "F32", "2.5", "0,10", 10),
    ("dimension is a string", "F32", '"2"', "0,8", 8),
    ("nine dimensions", "F32", "1,1,1,1,1,1,1,1,2", "0,8", 8),
    ("unknown dtype", "F31", "2", "0,8", 8),
    ("dtype in small letters", "f32", "2", "0,8", 8),
    ("dtype not supported", "U8", "8", "0,8", 8),
    ("fractional offsets", "F32", "2", "0,8.5", 8),
    ("negative offsets", "F32", "2", "-8,0", 8),
    ("one offset", "F32", "2", "8", 8),
    ("three offsets", "F32", "2", "0,8,8", 8),
    ("offset null", "F32", "2", "null,8", 8),
)
HEADERS = (  # and bytes of data
    ("trailing bytes", GOOD, 9),
    ("data cut", GOOD, 7),
    ("no data", GOOD, 0),
    ("overlap", "{" + A + "," + t("b", offsets="4,12") + "}", 12),
    ("same place twice", "{" + A + "," + t("b") + "}", 8),
    ("gap", "{" + A + "," + t("b", offsets="12,20") + "}", 20),
    ("duplicate names", "{" + A + "," + t("a", offsets="8,16") + "}", 16),
    ("duplicate dtype", GOOD.replace('"dtype":', '"dtype":"F32","dtype":'), 8),
    ("dtype is a number", GOOD.replace('"F32"', "32"), 8),
    ("dtype missing", GOOD.replace('"dtype":"F32",', ""), 8),
    ("shape missing", GOOD.replace('"shape":[2],', ""), 8),
    ("offsets missing", GOOD.replace(',"data_offsets":[0,8]', ""), 8),
    ("key in place of another", GOOD.replace("shape", "Shape"), 8),
    ("one key more", GOOD.replace("[0,8]", '[0,8],"x":1'), 8),
    ("tensor is an array", '{"a":[2,0,8]}', 8),
    ("tensor is null", '{"a":null}', 0),
    ("header is an array", "[]", 0),
    ("header is a string", '"{}"', 0),
    ("header begins with a space", " {}", 0),
    ("header is empty", "", 0),
    ("bracket missing", GOOD[:-1], 8),
    ("text after the object", "{}x", 0),
    ("comma at the end", GOOD[:-1] + ",}", 8),
    ("bad UTF-8 in a name", GOOD.replace("a", "a\xff", 1), 8),
    ("NUL in a name", GOOD.replace("a", "a\\u0000", 1), 8),
    ("name of 256 bytes", "{" + t("n" * 256) + "}", 8),
    ("metadata is a string", '{"__metadata__":"pt"}', 0),
    ("metadata with a number", '{"__metadata__":{"format":1}}', 0),
    ("metadata with an object", '{"__metadata__":{"format":{}}}', 0),
)

# What people give instead: the message names it, and of PyTorch and Python how to convert it.
CONVERT = "*scripts/to_safetensors.py @ "
FOREIGN = (
    (b"PK\3\4\n\n\n\narchive/data.pkl", "a file of PyTorch" + CONVERT),
    (b"\x80\2\x8a\nl\xfc\x9c\x46", "a pickle of Python" + CONVERT),
    (b"PK\3\4\n\n\n\nweights.npy", "NumPy's .npz archive"),
    (b"PK\3\4\n\n\n\nmetadata.json", "a model of Keras"),
    (b"PK\3\4\n\n\n\nreadme.txt", "a zip archive"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\b\7\x12\7pytorch", "a model in ONNX"),
    (b"\x1f\x8b\b\b", "compressed with gzip"),
    (b"n" * 257 + b"ustar", "a tar archive"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "*git lfs pull"),
    (b"<!DOCTYPE html>\n<html>", "a web page"),
    (b"something else", "does not begin with the length of a header"),
)

# Also the file that is damaged below.
MIXED = (
    '{"__metadata__":{"format":"pt"},'
    + ",".join(
        (
            t("conv.weight", "F32", "2,3", "0,24"),
            t("conv.half", "F16", "5", "24,34"),
            t("conv.count", "I64", "", "34,42"),
            t("module.b", "BF16", "0,3", "42,42"),
        )
    )
    + "}"
)

MANIFEST = {
    "format": 2,
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
            "hash": "01234567" * 4,
            "tensors": {"a": "0123456789abcdef", "b.weight": "fedcba9876543210"},
        },
        "state.json": {"bytes": 2, "hash": "0" * 32},
    },
    "checksum": "0" * 32,  # the target corrects that of a text after "c"
}


def safetensors(header, data_bytes, length=None):
    text = header.encode("latin-1")
    data = bytes(i * 37 % 256 for i in range(data_bytes))
    return b"s" + struct.pack("<Q", len(text) if length is None else length) + text + data


def many(n):
    entries = ",".join(t(str(i), "F32", "0", "0,0") for i in range(n))
    return safetensors("{" + entries + "}", 0)


def hand_made():
    yield "good", safetensors(GOOD, 8), "ok 1"
    yield "empty", safetensors("{}", 0), "ok 0"
    yield "mixed", safetensors(MIXED, 42), "ok 4"
    yield "name of 255 bytes", safetensors("{" + t("n" * 255) + "}", 8), "ok 1"
    yield "10,000 tensors", many(10000), "ok 10000"
    yield "10,001 tensors", many(10001), "bad @*at most 10000"
    for what, length in LENGTHS:
        yield what, safetensors(GOOD, 8, length), "bad @"
    for what, dtype, shape, offsets, n in TENSORS:
        yield what, safetensors("{" + t("a", dtype, shape, offsets) + "}", n), "bad @"
    for what, header, n in HEADERS:
        yield what, safetensors(header, n), "bad @"
    for head, what in FOREIGN:
        yield what, b"s" + head.ljust(600, b"n"), f"bad @*{what}"
    text = json.dumps(MANIFEST, indent=2).encode()
    yield "manifest", b"c" + text + b"\n", "ok"
    yield "manifest with a wrong checksum", b"m" + text + b"\n", "bad @*checksum"
    yield "manifest without its end", b"c" + text, "bad @*checksum"
    yield "manifest cut", b"c" + text[:300], "bad @"


def generated(is_long):
    """Cut at every byte; several damages at once, cut and grown."""
    whole = safetensors(MIXED, 42)
    for n in range(len(whole)):
        yield f"cut to {n}", whole[:n], "bad @" if n else "any"
    rng = random.Random(8)
    for number in range(30000 if is_long else 1500):
        data = bytearray(whole)
        for _ in range(rng.randrange(6)):
            data[rng.randrange(1, len(data))] = rng.choice(b'0123456789,:{}[]"\\ -eE.FIB')
        if rng.randrange(4) == 0:
            data = (data + b"x" * 512)[: rng.randrange(1, len(data) + 512)]
        yield f"damage {number}", bytes(data), "any"


cases.main("safetensors", list(hand_made()), generated)
