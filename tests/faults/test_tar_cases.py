"""Invalid and unusual tar shards: each must be indexed with the right number of samples, or
rejected with code 65 and one line that says what is wrong.
usage: test_tar_cases.py DTRAIN
"""

import io
import os
import subprocess
import sys
import tarfile
import tempfile

BLOCK = 512
END = bytes(2 * BLOCK)
SIZE_FIELD, SUM_FIELD, TYPE_FIELD, MAGIC_FIELD = (
    slice(124, 136),
    slice(148, 156),
    156,
    slice(257, 265),
)


# --- Making archives block by block ---


def octal(value, digits):
    return b"%0*o\0" % (digits, value)


def base256(value, negative=False):
    data = value.to_bytes(12, "big", signed=True) if negative else value.to_bytes(12, "big")
    return bytes([data[0] | 0x80]) + data[1:]


def with_sum(header):
    header = bytearray(header)
    header[SUM_FIELD] = b" " * 8
    header[SUM_FIELD] = b"%06o\0 " % sum(header)
    return bytes(header)


def padded(data):
    return data + bytes(-len(data) % BLOCK)


def member(name, data=b"", kind=b"0", size=None, magic=b"ustar\x0000", link=b""):
    header = bytearray(BLOCK)
    name = name.encode() if isinstance(name, str) else name
    header[: len(name)] = name
    header[100:124] = octal(0o644, 7) + octal(0, 7) + octal(0, 7)
    header[SIZE_FIELD] = octal(len(data), 11) if size is None else size
    header[136:148] = octal(0, 11)
    header[TYPE_FIELD : TYPE_FIELD + 1] = kind
    header[157 : 157 + len(link)] = link
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


def gnu_long(name, kind=b"L"):
    return member("././@LongLink", name.encode() + b"\0", kind, magic=b"ustar  \0")


def pair(key, label=b"1", image=b"image"):
    return member(key + ".jpg", image) + member(key + ".cls", label)


def from_tarfile(form, names, **more):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, **more) as archive:
        for name in names:
            for suffix, data in ((".jpg", b"image"), (".cls", b"3")):
                info = tarfile.TarInfo(name + suffix)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


GOOD = pair("a") + pair("b")


# --- Cases: (name, bytes, or bytes, length of a hole and bytes; samples or text of the error) ---


def sizes():
    wrong = {
        "one past the end": octal(BLOCK * 2 + 1, 11),
        "4 GiB": octal(1 << 32, 11),
        "8 GiB - 1": b"77777777777\0",
        "without its NUL": b"777777777777",
        "base-256 10": None,
        "base-256 2^33+1": base256((1 << 33) + 1),
        "base-256 2^62": base256(1 << 62),
        "base-256 2^63-1": base256((1 << 63) - 1),
        "base-256 2^63": base256(1 << 63),
        "base-256 2^64": base256(1 << 64),
        "base-256 2^94": base256(1 << 94),
        "base-256 -1": b"\xff" * 12,
        "base-256 -512": base256(-512, True),
        "base-256 -2^63": base256(-(1 << 63), True),
        "base-256 minimum": b"\x80" + b"\xff" * 11,
    }
    for what, field in wrong.items():
        if field is None:
            yield f"size {what}", GOOD + member("c.jpg", b"0123456789", size=base256(10)) + member(
                "c.cls", b"1"
            ) + END, 3
            continue
        for where, before in (("first", b""), ("last", GOOD)):
            data = before + member("c.jpg", b"x", size=field) + member("c.cls", b"1") + END
            yield f"size {what}, {where}", data, "truncated" if what == "4 GiB" else "shard"
    whole = GOOD + member("c.mp4", size=base256(10 << 30))
    rest = member("c.jpg", b"x") + member("c.cls", b"1") + END
    yield "10 GiB, complete", (whole, 10 << 30, rest), "has 10737418240 bytes; at most"
    yield "10 GiB, incomplete", (whole, (10 << 30) - 64 * BLOCK, rest), "truncated"
    for what, value in (
        ("0", b"0"),
        ("-1", b"-1"),
        ("text", b"x"),
        ("empty", b""),
        ("10^30", b"1" + b"0" * 30),
        ("past the end", b"99999"),
    ):
        data = pax(("size", value)) + member("c.jpg", b"x") + member("c.cls", b"1")
        yield f"pax size {what}", GOOD + data + END, {
            "0": "damaged",
            "-1": "",
            "text": "",
            "empty": "",
        }.get(what, "shard")
    yield "pax size right", GOOD + pax(("size", b"3")) + member(
        "c.jpg", b"xyz", size=octal(0, 11)
    ) + member("c.cls", b"1") + END, 3


def sums():
    for at in (0, 50, 99, 100, 124, 130, 135, 136, 148, 153, 156, 157, 257, 262, 329, 345, 500):
        for where, offset in (("first", 0), ("last", len(GOOD))):
            data = bytearray(GOOD + pair("c") + END)
            data[offset + at] ^= 1
            yield f"header byte {at} changed, {where}", bytes(data), "shard"
    yield "sum of signed bytes", signed_sum(), 3


def signed_sum():
    """A checksum of signed bytes, as some old programs wrote it."""
    header = bytearray(member("\u00e9.jpg", b"image")[:BLOCK])
    header[SUM_FIELD] = b" " * 8
    header[SUM_FIELD] = b"%06o\0 " % sum(b - 256 if b > 127 else b for b in header)
    return GOOD + bytes(header) + padded(b"image") + member("\u00e9.cls", b"1") + END


def cuts():
    whole = GOOD + pair("c") + END
    for at in (1, 100, 511, 512, 513, 700, 1023, 1024, 1025, 1536, 2048, 2560, 3072, 4096, 4608):
        yield f"cut to {at}", whole[:at], "shard"
    for at in (5120, 5121, 5632, 5633, 6143, 6144):
        yield f"cut to {at} of {len(whole)}", whole[:at], "shard" if at < 5632 else None
    yield "cut to one end block", whole[: len(whole) - BLOCK], (
        3 if len(whole) == 13 * BLOCK else None
    )
    yield "no end blocks", GOOD, "end-of-archive marker"
    yield "empty file", b"", "not a tar archive"
    yield "only end blocks", END, "holds no samples"
    yield "only zeros, 10 KiB", bytes(10240), "holds no samples"
    yield "end padded to 10 KiB", GOOD + bytes(10240), 2
    yield "end padded with half a block", GOOD + END + bytes(100), 2
    yield "joined", GOOD + END + pair("c") + END, "concatenated"
    yield "joined after 10 KiB", GOOD + bytes(10240) + pair("c") + END, "concatenated"
    yield "text after the end", GOOD + END + b"hello", "concatenated"
    yield "joined without end", GOOD + pair("c") + END, 3


def names():
    for name in ("../c", "a/../../c", "..", "./../c", "x/..", "/c", "/", "//c", "/etc/passwd"):
        for how, data in (
            ("plain", pair(name)),
            (
                "pax",
                pax(("path", name + ".jpg"))
                + member("q", b"x")
                + pax(("path", name + ".cls"))
                + member("q", b"1"),
            ),
            (
                "gnu",
                gnu_long(name + ".jpg")
                + member("q", b"x", magic=b"ustar  \0")
                + gnu_long(name + ".cls")
                + member("q", b"1", magic=b"ustar  \0"),
            ),
        ):
            expected = "leads out" if name.startswith(("/", "../", "a/..", "./..")) else None
            yield f"{how} name {name}", GOOD + data + END, expected
    for name in ("..c", "c..", "a/..b/c", "x.y/c", "...", "C", "\u00e9", "sp ace", "./c"):
        yield f"good name {name}", GOOD + pair(name) + END, (
            None if name == "..." or name.startswith("..") or ".." in name else 3
        )
    for n in (100, 200, 1019):
        long = "n" * n
        if n <= 255:
            yield f"GNU name of {n}", GOOD + gnu_long(long + ".jpg") + member(
                "q", b"x", magic=b"ustar  \0"
            ) + gnu_long(long + ".cls") + member("q", b"1", magic=b"ustar  \0") + END, 3
        yield f"pax name of {n}", GOOD + pax(("path", long + ".jpg")) + member("q", b"x") + pax(
            ("path", long + ".cls")
        ) + member("q", b"1") + END, 3
    for n in (1025, 4096, 60000):
        yield f"GNU name of {n}", GOOD + gnu_long("n" * n) + member(
            "q", b"x", magic=b"ustar  \0"
        ) + END, "no name of 1 to"
        yield f"pax name of {n}", GOOD + pax(("path", "n" * n)) + member(
            "q", b"x"
        ) + END, "no name of 1 to"
    for control in ("\n", "\t", "\x1b[31m", "\x7f", "\x01"):
        yield f"name with {control!r}", GOOD + pair("c" + control) + END, "control character"
    yield "name empty", GOOD + member("", b"x") + END, "no name"
    yield "name not UTF-8", GOOD + member(b"\xff\xfe.jpg", b"x") + member(
        b"\xff\xfe.cls", b"1"
    ) + END, 3
    yield "pax name not UTF-8", GOOD + pax(("path", b"\xff.jpg")) + member("q", b"x") + pax(
        ("path", b"\xff.cls")
    ) + member("q", b"1") + END, 3
    yield "header of 100 KB", GOOD + pax(*[("comment", "c" * 90)] * 1000) + pair(
        "c"
    ) + END, "headers of member"
    yield "pax records of 2 MB", GOOD + pax(("comment", "c" * 2000000)) + pair("c") + END, "shard"


def kinds():
    for what, kind in (
        ("hard link", b"1"),
        ("symbolic link", b"2"),
        ("character device", b"3"),
        ("block device", b"4"),
        ("folder", b"5"),
        ("FIFO", b"6"),
    ):
        yield f"{what} between samples", GOOD + member(
            "z.jpg", kind=kind, link=b"a.jpg"
        ) + END, 2
        yield f"{what} as image", GOOD + member("c.jpg", kind=kind, link=b"a.jpg") + member(
            "c.cls", b"1"
        ) + END, "no .jpg"
        yield f"{what} as label", GOOD + member("c.jpg", b"x") + member(
            "c.cls", kind=kind, link=b"a.cls"
        ) + END, "no .cls"
        yield f"{what} with a size", GOOD + member(
            "z.jpg", kind=kind, link=b"a.jpg", size=octal(1 << 30, 11)
        ) + END, None
    for what, kind in (("old regular", b"\0"), ("contiguous", b"7")):
        yield f"type {what}", GOOD + member("c.jpg", b"x", kind) + member(
            "c.cls", b"1", kind
        ) + END, 3
    for kind in b"8", b"Z", b"A", b"\xff":
        yield f"type {kind!r}", GOOD + member("c.jpg", b"x", kind) + member(
            "c.cls", b"1"
        ) + END, None
    yield "volume label", member("label", kind=b"V", magic=b"ustar  \0") + GOOD + END, 2
    yield "sparse, GNU", GOOD + sparse_gnu() + END, 2
    yield "sparse, pax 0.1", GOOD + pax(
        ("GNU.sparse.size", "1024"), ("GNU.sparse.map", "512,1")
    ) + member("z.jpg", b"x") + END, 2
    yield "sparse, pax 0.1 as image", GOOD + pax(
        ("GNU.sparse.size", "1024"), ("GNU.sparse.map", "512,1")
    ) + member("c.jpg", b"x") + member("c.cls", b"1") + END, "no .jpg"
    yield "sparse, map wrong", GOOD + pax(
        ("GNU.sparse.size", "1024"), ("GNU.sparse.map", "5,x,,")
    ) + member("z.jpg", b"x") + END, "damaged"
    yield "sparse, unknown version", GOOD + pax(
        ("GNU.sparse.major", "9"), ("GNU.sparse.minor", "0")
    ) + pair("c") + END, "damaged"
    yield "pax records cut", GOOD + member("PaxHeaders/x", b"99 path=x\n", b"x") + pair(
        "c"
    ) + END, "damaged"
    yield "pax records not text", GOOD + member("PaxHeaders/x", b"\x80\xff" * 20, b"x") + pair(
        "c"
    ) + END, "damaged"
    yield "pax at the end", GOOD + pax(("path", "c")) + END, "damaged"
    yield "pax size negative header", GOOD + member(
        "PaxHeaders/x", b"", b"x", size=b"\xff" * 12
    ) + END, "shard"
    yield "40 headers in a row", GOOD + member("g", b"", b"g") * 40 + pair("c") + END, "damaged"
    yield "global header", member("g", record("comment", "x"), b"g") + GOOD + END, 2


def sparse_gnu():
    header = bytearray(member("z.jpg", b"x", b"S", magic=b"ustar  \0")[:BLOCK])
    header[386:410] = octal(512, 11) + octal(1, 11)
    header[483:495] = octal(1024, 11)
    return with_sum(header) + padded(b"x")


def samples():
    yield "duplicate image", GOOD + member("c.jpg", b"x") * 2 + member(
        "c.cls", b"1"
    ) + END, "second image"
    yield "duplicate label", GOOD + member("c.jpg", b"x") + member(
        "c.cls", b"1"
    ) * 2 + END, "second label"
    yield "jpg and jpeg", GOOD + member("c.jpg", b"x") + member("c.jpeg", b"x") + member(
        "c.cls", b"1"
    ) + END, "second image"
    yield "image alone", GOOD + member("c.jpg", b"x") + END, "no .cls"
    yield "label alone", GOOD + member("c.cls", b"1") + END, "no .jpg"
    yield "interleaved", member("a.jpg", b"x") + member("b.jpg", b"x") + member(
        "a.cls", b"1"
    ) + member("b.cls", b"1") + END, "adjacent"
    yield "image first of the next", GOOD + member("c.jpg", b"x") + pair("d") + END, "no .cls"
    yield "label in upper case", GOOD + member("c.JPG", b"x") + member("c.CLS", b"1") + END, 3
    yield "other members", GOOD + member("c.jpg", b"x") + member("c.json", b"{}") + member(
        "c.cls", b"1"
    ) + member("README", b"x") + END, 3
    yield "0-byte image", GOOD + pair("c", image=b"") + END, 3
    yield "0-byte label", GOOD + pair("c", label=b"") + END, "not an integer"
    for label in (
        b"x",
        b"1.5",
        b"1 2",
        b"0x1",
        b"--1",
        b"1\0",
        b"99999999999",
        b"1" * 40,
        b"\xff",
        b"1,",
    ):
        yield f"label {label!r}", GOOD + pair("c", label=label) + END, "not an integer"
    for label in (b"10", b"-1", b"2147483647", b"-2147483648"):
        yield f"label {label!r}", GOOD + pair("c", label=label) + END, "out of range"
    for label in (b"0", b"9", b" 3", b"3\n", b"+3", b"007"):
        yield f"label {label!r}", GOOD + pair("c", label=label) + END, 3


def whole_files():
    for what, data in (
        ("gzip", b"\x1f\x8b\x08\0"),
        ("bzip2", b"BZh9"),
        ("xz", b"\xfd7zXZ\0"),
        ("zstd", b"\x28\xb5\x2f\xfd"),
        ("lz4", b"\x04\x22\x4d\x18"),
    ):
        yield f"compressed with {what}", padded(data), "is compressed"
    for what, data in (
        ("zip", b"PK\3\4"),
        ("HTML", b"<html>"),
        ("cpio", b"070701"),
        ("ar", b"!<arch>\n"),
        ("0xff", b"\xff" * 999),
    ):
        yield f"{what} instead of a tar", data + bytes(10240 - len(data)), "shard"
    for name, form in (
        ("ustar", tarfile.USTAR_FORMAT),
        ("gnu", tarfile.GNU_FORMAT),
        ("pax", tarfile.PAX_FORMAT),
    ):
        for many in (1, 2, 50):
            yield f"{name} with {many} samples", from_tarfile(
                form, [f"s{i:04}" for i in range(many)]
            ), many
    yield "pax with global header", from_tarfile(
        tarfile.PAX_FORMAT, ["a"], pax_headers={"comment": "x" * 900}
    ), 1
    for name, form in (("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
        yield f"{name}, long and odd names", from_tarfile(
            form, ["d" * 90 + "/" + "n" * 120, "\u00e9\u4e2d"]
        ), 2


def all_cases():
    for make in (sizes, sums, cuts, names, kinds, samples, whole_files):
        yield from make()


# --- Running them ---


def judge(case, line):
    """Returns None or an error text. `expected` is a number of samples, a part of the message, or
    None if both a number and a message are acceptable."""
    what, _, expected = case
    status, n_samples, text = line.split("\t")
    if isinstance(expected, int):
        good = status == "0" and int(n_samples) == expected
    else:
        good = status == "65" if expected is not None else status in ("0", "65")
        good = good and (expected or "") in text
    if good and not any(ord(c) < 32 or ord(c) == 127 for c in text):
        return None
    return f"{what}: expected {expected!r}, got {line!r}"


def main():
    tool = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "tests", "index_list_tool")
    cases = list(all_cases())
    with tempfile.TemporaryDirectory() as folder:
        shards = [os.path.join(folder, f"{number}.tar") for number in range(len(cases))]
        for shard, (_, data, _) in zip(shards, cases):
            begin, hole, end = data if isinstance(data, tuple) else (data, 0, b"")
            with open(shard, "wb") as out:
                out.write(begin)
                out.truncate(len(begin) + hole)
                out.seek(0, os.SEEK_END)
                out.write(end)
        names = "".join(shard + "\n" for shard in shards).encode()
        run = subprocess.run([tool], input=names, capture_output=True, check=False, timeout=300)
    lines = run.stdout.decode().split("\n")[:-1]
    if run.returncode != 0 or len(lines) != len(cases):
        what = cases[min(len(lines), len(cases) - 1)][0]
        sys.stderr.write(f"crash ({run.returncode}) on {what}: {run.stderr.decode()[-3000:]}\n")
        return 1
    failures = [text for case, line in zip(cases, lines) if (text := judge(case, line))]
    for text in failures:
        sys.stderr.write(text + "\n")
    n_good = sum(isinstance(expected, int) for _, _, expected in cases)
    n_bad = sum(isinstance(expected, str) for _, _, expected in cases)
    print(
        f"{len(cases)} archives ({n_good} to accept, {n_bad} to reject): {len(failures)} failures"
    )
    return 1 if failures or len(cases) < 200 else 0


sys.exit(main())
