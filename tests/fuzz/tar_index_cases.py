"""Invalid and unusual tar shards: each must be indexed with the right number of samples, or
refused with one line that names the shard and says what is wrong.
"""

import io
import json
import tarfile

import cases

BLOCK = 512
END = bytes(2 * BLOCK)
SIZE_FIELD, SUM_FIELD, TYPE_FIELD, MAGIC_FIELD = slice(124, 136), slice(148, 156), 156, slice(257, 265)
GNU = b"ustar  \0"


# --- Making archives block by block ---


def octal(value, digits=11):
    return b"%0*o\0" % (digits, value)


def base256(value, negative=False):
    data = value.to_bytes(12, "big", signed=True) if negative else value.to_bytes(12, "big")
    return bytes([data[0] | 0x80]) + data[1:]


def with_sum(header, signed=False):
    """Some old programs added up signed bytes."""
    header = bytearray(header)
    header[SUM_FIELD] = b" " * 8
    header[SUM_FIELD] = b"%06o\0 " % sum(b - 256 * (signed and b > 127) for b in header)
    return bytes(header)


def padded(data):
    return data + bytes(-len(data) % BLOCK)


def member(name, data=b"", kind=b"0", size=None, magic=b"ustar\x0000"):
    header = bytearray(BLOCK)
    name = name.encode() if isinstance(name, str) else name
    header[: len(name)] = name
    header[100:124] = octal(0o644, 7) + octal(0, 7) + octal(0, 7)
    header[SIZE_FIELD] = octal(len(data)) if size is None else size
    header[136:148] = octal(0)
    header[TYPE_FIELD : TYPE_FIELD + 1] = kind
    header[157:162] = b"a.jpg" if kind in (b"1", b"2") else bytes(5)
    header[MAGIC_FIELD] = magic
    return with_sum(header) + padded(data)


def record(key, value):
    value = value if isinstance(value, bytes) else value.encode()
    rest = len(key) + len(value) + 3
    length = rest + 1
    while len(str(length)) + rest != length:
        length += 1
    return b"%d %s=%s\n" % (length, key.encode(), value)


def pax(*pairs):
    return member("PaxHeaders/x", b"".join(record(k, v) for k, v in pairs), b"x")


def pax_named(name, data=b"x"):
    return pax(("path", name)) + member("q", data)


def gnu_named(name, data=b"x"):
    link = member("././@LongLink", name.encode() + b"\0", b"L", magic=GNU)
    return link + member("q", data, magic=GNU)


def pair(key, label=b"1", image=b"image", named=member):
    return named(key + ".jpg", image) + named(key + ".cls", label)


def from_tarfile(form, names, **more):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, **more) as archive:
        for name in names:
            for suffix, data in ((".jpg", b"image"), (".cls", b"1")):
                info = tarfile.TarInfo(name + suffix)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


GOOD = pair("a") + pair("b")
IMAGE, LABEL = member("c.jpg", b"x"), member("c.cls", b"1")


WRONG_SIZES = (
    octal(BLOCK * 2 + 1),  # one byte past the end
    b"77777777777\0",
    b"777777777777",
    base256((1 << 33) + 1),
    base256(1 << 62),
    base256((1 << 63) - 1),
    base256(1 << 63),
    base256(1 << 64),
    base256(1 << 94),
    b"\xff" * 12,  # -1
    base256(-512, True),
    base256(-(1 << 63), True),
    b"\x80" + b"\xff" * 11,
)


# --- Whole archives: name, bytes; number of samples, part of the message, or None for either ---


def sums():
    for at in (0, 50, 99, 100, 124, 130, 135, 136, 148, 153, 156, 157, 257, 262, 329, 345, 500):
        for where, offset in (("first", 0), ("last", len(GOOD))):
            data = bytearray(GOOD + pair("c") + END)
            data[offset + at] ^= 1
            yield f"header byte {at} changed, {where}", bytes(data), "shard"
    header = with_sum(member("\u00e9.jpg", b"image")[:BLOCK], signed=True)
    data = header + padded(b"image") + member("\u00e9.cls", b"1")
    yield "sum of signed bytes", GOOD + data + END, 3


def cuts():
    whole = GOOD + pair("c") + END
    for at in (1, 100, 511, 512, 513, 700, 1023, 1024, 1025, 1536, 2048, 2560, 3072, 4608):
        yield f"cut to {at}", whole[:at], "shard"
    for at in (5120, 5121, 5632, 5633, 6143, 6144, len(whole) - BLOCK):
        yield f"cut to {at} of {len(whole)}", whole[:at], "shard" if at < 5632 else None
    yield "cut in a header", whole[:4196], "damaged or truncated near byte 4096"
    yield "no end blocks", GOOD, "it ends at byte 4096 without an end-of-archive marker"
    yield "empty file", b"", "is not a tar archive: it has only 0 bytes"
    yield "only end blocks", END, "holds no samples"
    yield "only zeros, 10 KiB", bytes(10240), "holds no samples"
    yield "end padded to 10 KiB", GOOD + bytes(10240), 2
    yield "end padded with half a block", GOOD + END + bytes(100), 2
    joined = "data after its end-of-archive marker, at byte 5120*concatenated"
    yield "joined", GOOD + END + pair("c") + END, joined
    yield "joined after 10 KiB", GOOD + bytes(10240) + pair("c") + END, "concatenated"
    yield "text after the end", GOOD + END + b"hello", joined
    yield "joined without end", GOOD + pair("c") + END, 3


def whole_files():
    for what, data, how in (
        ("gzip", b"\x1f\x8b\x08\0", "gunzip it first"),
        ("bzip2", b"BZh9", ""),
        ("xz", b"\xfd7zXZ\0", ""),
        ("zstd", b"\x28\xb5\x2f\xfd", "unzstd it first"),
        ("lz4", b"\x04\x22\x4d\x18", ""),
    ):
        yield f"compressed with {what}", padded(data), "is compressed*" + how
    for what, data in (
        ("zip", b"PK\3\4"),
        ("HTML", b"<html>"),
        ("cpio", b"070701"),
        ("ar", b"!<arch>\n"),
        ("0xff", b"\xff" * 999),
        ("noise", bytes((i * 31 + 7) % 256 for i in range(10240))),
    ):
        yield f"{what} instead of a tar", data + bytes(10240 - len(data)), "is not a tar archive"
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        for many in (1, 2, 50):
            data = from_tarfile(form, [f"s{i:04}" for i in range(many)])
            yield f"tarfile's format {form} with {many} samples", data, many
        if form != tarfile.USTAR_FORMAT:
            data = from_tarfile(form, ["d" * 90 + "/" + "n" * 120, "\u00e9\u4e2d"])
            yield f"tarfile's format {form}, long and odd names", data, 2
    data = from_tarfile(tarfile.PAX_FORMAT, ["a"], pax_headers={"comment": "x" * 900})
    yield "pax with global header", data, 1
    yield "global header", member("g", record("comment", "x"), b"g") + GOOD + END, 2
    yield "volume label", member("label", kind=b"V", magic=GNU) + GOOD + END, 2
    for field in WRONG_SIZES + (octal(1 << 32),):
        data = member("c.jpg", b"x", size=field) + LABEL + END
        yield f"size {field}, first", data, "truncated" if field == octal(1 << 32) else "shard"
    yield "no samples", member("README", b"nothing here") + END, "holds no samples"
    data = b"".join(member(name, b"1") for name in ("a.jpg", "b.jpg", "a.cls", "b.cls"))
    yield "interleaved", data + END, "adjacent"
    for what, box in (("good", [1, 2, 3, 4]), ("bad", [1, 2, 3, 1e300])):
        truth = {"id": 1, "category_id": 2, "bbox": box, "area": 6, "iscrowd": 0}
        image = {"id": 7, "width": 9, "height": 9, "annotations": [truth]}
        data = IMAGE + LABEL + member("c.json", json.dumps(image).encode())
        yield f"{what} boxes", data + END, 1  # which a classifier ignores


# --- Continuations of two good samples ---


def sizes():
    yield "size base-256 10", member("c.jpg", b"0123456789", size=base256(10)) + LABEL, 3
    for field in WRONG_SIZES:
        yield f"size {field}", member("c.jpg", b"x", size=field) + LABEL, "shard"
    needs = "truncated: member c.jpg needs 4294967296 bytes at byte 4608"
    yield "size 4 GiB", member("c.jpg", b"x", size=octal(1 << 32)) + LABEL, needs
    for value, expected in (
        (b"0", "damaged"),
        (b"-1", ""),
        (b"x", ""),
        (b"", ""),
        (b"1" + b"0" * 30, "shard"),
        (b"99999", "shard"),
    ):
        yield f"pax size {value}", pax(("size", value)) + IMAGE + LABEL, expected
    data = pax(("size", b"3")) + member("c.jpg", b"xyz", size=octal(0)) + LABEL
    yield "pax size right", data, 3


def names():
    for name in ("../c", "a/../../c", "..", "./../c", "x/..", "/c", "/", "//c", "/etc/passwd"):
        outside = name.startswith(("/", "../", "a/..", "./.."))
        for named in (member, pax_named, gnu_named):
            data = pair(name, named=named)
            yield f"{named.__name__} {name}", data, "leads out of the archive" if outside else None
    for name in ("c..", "a/..b/c", "...", "..c"):
        yield f"name {name}", pair(name), None
    for name in ("x.y/c", "C", "\u00e9", "sp ace", "./c"):
        yield f"name {name}", pair(name), 3
    for n in (100, 200, 1019):
        yield f"pax name of {n}", pair("n" * n, named=pax_named), 3
    for n in (100, 200):
        yield f"GNU name of {n}", pair("n" * n, named=gnu_named), 3
    for n in (1025, 4096, 60000):
        for named in (gnu_named, pax_named):
            yield f"{named.__name__} of {n}", named("n" * n), "has no name of 1 to 1024 bytes"
    for control in ("\n", "\t", "\x1b[31m", "\x7f", "\x01"):
        expected = "at byte 4608 has a control character in its name"
        yield f"name with {control!r}", pair("c" + control), expected
    yield "name empty", member("", b"x"), "no name"
    yield "name not UTF-8", member(b"\xff\xfe.jpg", b"x") + member(b"\xff\xfe.cls", b"1"), 3
    yield "pax name not UTF-8", pax_named(b"\xff.jpg") + pax_named(b"\xff.cls", b"1"), 3
    yield "header of 100 KB", pax(*[("comment", "c" * 90)] * 1000) + pair("c"), (
        "the headers of member c.jpg of shard @ take"
    )
    yield "pax records of 2 MB", pax(("comment", "c" * 2000000)) + pair("c"), "shard"


def kinds():
    for what, kind in (
        ("hard link", b"1"),
        ("symbolic link", b"2"),
        ("character device", b"3"),
        ("block device", b"4"),
        ("folder", b"5"),
        ("FIFO", b"6"),
    ):
        yield f"{what} between samples", member("z.jpg", kind=kind), 2
        yield f"{what} as image", member("c.jpg", kind=kind) + LABEL, "no .jpg"
        yield f"{what} as label", IMAGE + member("c.cls", kind=kind), "no .cls"
        yield f"{what} with a size", member("z.jpg", kind=kind, size=octal(1 << 30)), None
    for what, kind in (("old regular", b"\0"), ("contiguous", b"7")):
        yield f"type {what}", member("c.jpg", b"x", kind) + member("c.cls", b"1", kind), 3
    for kind in b"8", b"Z", b"A", b"\xff":
        yield f"type {kind!r}", member("c.jpg", b"x", kind) + LABEL, None
    header = bytearray(member("z.jpg", b"x", b"S", magic=GNU)[:BLOCK])
    header[386:410] = octal(512) + octal(1)
    header[483:495] = octal(1024)
    yield "sparse, GNU", with_sum(header) + padded(b"x"), "z.jpg of shard @ * is sparse*--sparse"
    for what, holes, data, expected in (
        ("pax 0.1", "512,1", member("z.jpg", b"x"), "is sparse"),
        ("pax 0.1 as image", "512,1", IMAGE + LABEL, "is sparse"),
        ("map wrong", "5,x,,", member("z.jpg", b"x"), "damaged"),
    ):
        sparse = pax(("GNU.sparse.size", "1024"), ("GNU.sparse.map", holes))
        yield f"sparse, {what}", sparse + data, expected
    data = pax(("GNU.sparse.major", "9"), ("GNU.sparse.minor", "0"))
    yield "sparse, unknown version", data + pair("c"), "damaged"
    data = member("PaxHeaders/x", b"99 path=x\n", b"x")
    yield "pax records cut", data + pair("c"), "damaged*malformed pax"
    data = member("PaxHeaders/x", b"\x80\xff" * 20, b"x")
    yield "pax records not text", data + pair("c"), "damaged"
    yield "pax at the end", pax(("path", "c")), "damaged"
    data = member("PaxHeaders/x", b"", b"x", size=b"\xff" * 12)
    yield "pax size negative header", data, "shard"
    yield "40 headers in a row", member("g", b"", b"g") * 40 + pair("c"), "damaged"


def samples():
    no_cls = "sample c of shard @ has no .cls member, only .jpg;"
    second_image = "is a second image"
    yield "duplicate image", IMAGE * 2 + LABEL, "member c.jpg of shard @ * " + second_image
    yield "jpg and jpeg", IMAGE + member("c.jpeg", b"x") + LABEL, second_image
    yield "duplicate label", IMAGE + LABEL * 2, "member c.cls of shard @ at byte 6656 is a second"
    yield "image alone", IMAGE, no_cls
    yield "image first of the next", IMAGE + pair("d"), no_cls
    yield "label alone", LABEL, "sample c of shard @ has no .jpg* only .cls;"
    yield "label and PNG", LABEL + member("c.png", b"x"), None  # by libpng
    yield "label in upper case", member("c.JPG", b"x") + member("c.CLS", b"1"), 3
    yield "label in JSON", IMAGE + member("c.json", b'{"label": 1}'), 3
    for text in (b'{"label": "cat"}', b'{"label": 1e300}', b'{"label": [1]}', b'{"label": NaN}', b"[1]", b"1", b"\xff"):
        yield f"label in JSON {text}", IMAGE + member("c.json", text), "c*shard @"
    yield "keys with dots", member("c.1.jpg", b"x") + member("c.1.cls", b"1"), 2
    others = member("c.json", b"{}") + LABEL + member("README", b"x")
    yield "other members", IMAGE + others, 3
    yield "0-byte image", pair("c", image=b""), 3
    yield "0-byte label", pair("c", label=b""), "not an integer"
    for label in (b"cat", b"1.5"):
        word = f"label member c.cls of shard @ at byte 5632 is not an integer: '{label.decode()}'"
        yield f"label {label!r}", pair("c", label=label), word
    for label in (b"1 2", b"0x1", b"--1", b"1\0", b"99999999999", b"1" * 40, b"\xff", b"1,"):
        yield f"label {label!r}", pair("c", label=label), "not an integer"
    yield "long label", pair("c", label=b"1" + b" " * 43), "not an integer"
    for label in (b"10", b"-1", b"2147483647", b"-2147483648"):
        limit = "of c.jpg in shard @ is out of range: * labels must be 0 to 9"
        yield f"label {label!r}", pair("c", label=label), f"label {label.decode()} {limit}"
    for label in (b"0", b"9", b" 3", b"3\n", b"+3", b"007"):
        yield f"label {label!r}", pair("c", label=label), 3


def hand_made():
    for make in (sums, cuts, whole_files, sizes, names, kinds, samples):
        for what, data, expected in make():
            if make in (sizes, names, kinds, samples):
                data = GOOD + data + END
            if expected is None:
                expected = "any"
            else:
                expected = f"ok {expected}" if isinstance(expected, int) else f"bad *{expected}"
            yield what, data, expected


cases.main("tar_index", list(hand_made()))
