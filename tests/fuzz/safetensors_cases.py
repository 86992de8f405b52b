"""safetensors and manifests: malformed files one by one, cut files, random damage."""

import json
import random
import struct

import cases


def t(name, dtype="F32", shape="2", offsets="0,8"):
    return f'"{name}":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{offsets}]}}'


A = t("a")
GOOD = "{" + A + "}"  # and 8 bytes of data

LENGTHS = (  # as stated at the beginning of GOOD, and a part of the message
    ("header longer than the file", 1000, "a header of 1000 bytes"),
    ("header of 2^63 bytes", (1 << 63) - 1, "begin with the length"),
    ("header above the limit", (16 << 20) + 1, "begin with the length"),
    ("header ends in the middle", 20, "text ends here"),
    ("header reaches into the data", len(GOOD) + 4, "end of the text"),
)
TENSORS = (  # of one tensor, and the bytes of data that would fit; message
    ("gap at the beginning", "F32", "2", "4,12", 12, "begins at byte 4 of the data, not at 0"),
    ("size larger than the shape", "F32", "2", "0,12", 12, "occupies 12 bytes"),
    ("size smaller than the shape", "F32", "2", "0,4", 4, "occupies 4 bytes"),
    ("size of another type", "I64", "2", "0,8", 8, "but its shape needs 16"),
    ("offsets reversed", "F32", "2", "8,0", 8, "no valid data_offsets"),
    ("product overflows to 0", "F32", "4294967296,4294967296", "0,0", 0, "dimensions*overflow"),
    ("bytes overflow to 0", "F32", "4294967296,1073741824", "0,0", 0, "size*overflows"),
    ("dimension above 2^53", "F32", "0,18014398509481984", "0,0", 0, "dimension 1*not a size"),
    ("dimension of 1e400", "F32", "1e400", "0,8", 8, "too large"),
    ("negative dimension", "F32", "-2", "0,8", 8, "not a size"),
    ("two negative dimensions", "F32", "-1,-2", "0,8", 8, "not a size"),
    ("fractional dimension", "F32", "2.5", "0,10", 10, "not a size"),
    ("dimension is a string", "F32", '"2"', "0,8", 8, "not a size"),
    ("nine dimensions", "F32", "1,1,1,1,1,1,1,1,2", "0,8", 8, "9 dimensions; at most 8"),
    ("unknown dtype", "F31", "2", "0,8", 8, "dtype F31; F32"),
    ("dtype in small letters", "f32", "2", "0,8", 8, "dtype f32; F32"),
    ("dtype not supported", "U8", "8", "0,8", 8, "dtype U8; F32"),
    ("fractional offsets", "F32", "2", "0,8.5", 8, "no valid data_offsets"),
    ("negative offsets", "F32", "2", "-8,0", 8, "no valid data_offsets"),
    ("one offset", "F32", "2", "8", 8, "no valid data_offsets"),
    ("three offsets", "F32", "2", "0,8,8", 8, "no valid data_offsets"),
    ("offset null", "F32", "2", "null,8", 8, "no valid data_offsets"),
)
HEADERS = (  # and bytes of data; message
    ("trailing bytes", GOOD, 9, "has 9 bytes of data"),
    ("data cut", GOOD, 7, "has 7 bytes of data"),
    ("no data", GOOD, 0, "has 0 bytes of data"),
    ("overlap", "{" + A + "," + t("b", offsets="4,12") + "}", 12, "begins at byte 4"),
    ("same place twice", "{" + A + "," + t("b") + "}", 8, "begins at byte 0"),
    ("gap", "{" + A + "," + t("b", offsets="12,20") + "}", 20, "begins at byte 12"),
    ("gap and end past the file", "{" + A + "," + t("b", offsets="12,20") + "}", 16, "byte 12"),
    ("duplicate names", "{" + A + "," + t("a", offsets="8,16") + "}", 16, "a: key appears twice"),
    ("duplicate dtype", GOOD.replace('"dtype":', '"dtype":"F32","dtype":'), 8, "key appears twice"),
    ("dtype is a number", GOOD.replace('"F32"', "32"), 8, "has no dtype"),
    ("dtype missing", GOOD.replace('"dtype":"F32",', ""), 8, "must have dtype"),
    ("shape missing", GOOD.replace('"shape":[2],', ""), 8, "must have dtype"),
    ("offsets missing", GOOD.replace(',"data_offsets":[0,8]', ""), 8, "must have dtype"),
    ("key in place of another", GOOD.replace("shape", "Shape"), 8, "has no shape"),
    ("one key more", GOOD.replace("[0,8]", '[0,8],"x":1'), 8, "no more"),
    ("tensor is an array", '{"a":[2,0,8]}', 8, "must have dtype"),
    ("tensor is null", '{"a":null}', 0, "must have dtype"),
    ("header is an array", "[]", 0, "begin with {"),
    ("header is a string", '"{}"', 0, "begin with {"),
    ("header begins with a space", " {}", 0, "begin with {"),
    ("header is empty", "", 0, "begin with {"),
    ("bracket missing", GOOD[:-1], 8, "'{' without its '}'"),
    ("text after the object", "{}x", 0, "end of the text"),
    ("comma at the end", GOOD[:-1] + ",}", 8, "comma before"),
    ("bad UTF-8 in a name", GOOD.replace("a", "a\xff", 1), 8, "not UTF-8"),
    ("NUL in a name", GOOD.replace("a", "a\\u0000", 1), 8, "u0000 in a string"),
    ("name of 256 bytes", "{" + t("n" * 256) + "}", 8, "more than 255 bytes"),
    ("metadata is a string", '{"__metadata__":"pt"}', 0, "is not an object"),
    ("metadata with a number", '{"__metadata__":{"format":1}}', 0, "is not a string"),
    ("metadata with an object", '{"__metadata__":{"format":{}}}', 0, "is not a string"),
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
    for what, length, message in LENGTHS:
        yield what, safetensors(GOOD, 8, length), f"bad @*{message}"
    for what, dtype, shape, offsets, n, message in TENSORS:
        header = "{" + t("a", dtype, shape, offsets) + "}"
        yield what, safetensors(header, n), f"bad @*{message}"
    for what, header, n, message in HEADERS:
        yield what, safetensors(header, n), f"bad @*{message}"
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
