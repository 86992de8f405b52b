"""A disk in a file, for nbdkit's Python plugin: DISK has its contents. Each write and each flush is appended to
DISK.log; while DISK.broken exists, writes and flushes fail."""

import errno
import os
import struct

import nbdkit

API_VERSION = 2
DISK = os.environ["DISK"]
RECORD = struct.Struct("<qq")  # offset and bytes, which follow; of a flush, the offset is -1
disk = open(DISK, "r+b", buffering=0)
log = open(DISK + ".log", "ab", buffering=0)


def open(_readonly):  # pylint: disable=redefined-builtin
    return 1


def get_size(_h):
    return os.fstat(disk.fileno()).st_size


def can_fua(_h):
    return nbdkit.FUA_EMULATE  # by a flush


def fail_if_broken():
    if os.path.exists(DISK + ".broken"):
        nbdkit.set_error(errno.EIO)
        raise OSError(errno.EIO, "broken")


def pread(_h, buffer, offset, _flags):
    buffer[:] = os.pread(disk.fileno(), len(buffer), offset)


def pwrite(_h, buffer, offset, _flags):
    fail_if_broken()
    os.pwrite(disk.fileno(), buffer, offset)
    log.write(RECORD.pack(offset, len(buffer)) + buffer)


def flush(_h, _flags):
    fail_if_broken()
    log.write(RECORD.pack(-1, 0))
