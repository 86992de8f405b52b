"""Tar archives and PNG files, made byte by byte."""

import io
import struct
import tarfile
import zlib


def tar_of(path, members, mode="w", form=tarfile.GNU_FORMAT):
    """Members are pairs of name and content."""
    with tarfile.open(path, mode, format=form) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def members_of(path):
    with tarfile.open(path) as archive:
        return [[member.name, archive.extractfile(member).read()] for member in archive]


def png(width, height, rows, depth=8, colour=2, interlaced=0, chunks=()):
    """The rows begin with their filters; the chunks, pairs of kind and content, come before the pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    parts = [(b"IHDR", head), *chunks, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)
