"""Power loss and broken disks below real file systems, ext4 and XFS: a disk that logs its writes (logged_disk.py) is
put back to moments of a run. What it had not been told to flush may be there, or in part, or not. Reported checkpoints
and shards are there, and the run resumes to the state of an undisturbed one.

Needs root, loop devices, nbdkit with its Python plugin, nbdfuse, mkfs.ext4 and mkfs.xfs."""

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import time

import rig as faults
from test_power import go_on

STEPS = {"train.max_steps": 40, "checkpoint.keep": 2, "eval.every_epochs": 1}
HERE = os.path.dirname(os.path.abspath(__file__))
SECTOR = 4096  # that a disk writes whole
FILE_SYSTEMS = {"ext4": (64, ["mkfs.ext4", "-q", "-F"]), "xfs": (300, ["mkfs.xfs", "-q", "-f"])}  # MiB
RECORD = struct.Struct("<qq")  # of the log; see logged_disk.py
INSIDE = "DTRAIN_OWN_MOUNTS"


def call(*words):
    subprocess.run(words, check=True, capture_output=True)


class Disk:
    """A logged disk with a file system, mounted at `top`."""

    def __init__(self, rig, kind):
        self.folder = rig.folder(f"disk-{kind}")
        self.top, self.fuse = f"{self.folder}/top", f"{self.folder}/fuse"
        self.image, self.first = f"{self.folder}/image", f"{self.folder}/first"
        os.makedirs(self.top)
        mib, make = FILE_SYSTEMS[kind]
        for path in (self.image, self.fuse):
            open(path, "wb").close()
        os.truncate(self.image, mib << 20)
        call(*make, self.image)
        call("cp", "--sparse=always", self.image, self.first)
        plugin = ["nbdkit", "-s", "--exit-with-parent", "python", f"{HERE}/logged_disk.py"]
        env = {**os.environ, "DISK": self.image}
        command = ["nbdfuse", self.fuse, "--command", *plugin]
        self.server = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
        while os.path.getsize(self.fuse) == 0:
            assert self.server.poll() is None, "nbdfuse does not start"
            time.sleep(0.05)
        call("mount", "-o", "loop", self.fuse, self.top)

    def written(self):
        """How much has been logged so far."""
        return os.path.getsize(self.image + ".log")

    def close(self):
        call("umount", "--lazy", self.top)
        while subprocess.run(["umount", self.fuse], capture_output=True, check=False).returncode:
            time.sleep(0.1)
        self.server.wait()

    def records(self):
        """Position behind it in the log, offset (-1 of a flush) and data of each write and flush."""
        with open(self.image + ".log", "rb") as log:
            while head := log.read(RECORD.size):
                offset, size = RECORD.unpack(head)
                data = log.read(size)
                yield log.tell(), offset, data


def sectors(writes, keep):
    for offset, data in writes:
        for at in range(0, len(data), SECTOR):
            if keep():
                yield offset + at, data[at : at + SECTOR]


def apply(path, writes):
    with open(path, "r+b") as image:
        for offset, data in writes:
            image.seek(offset)
            image.write(data)


@contextlib.contextmanager
def mounted(image, top):
    call("mount", "-o", "loop", image, top)
    try:
        yield top
    finally:
        call("umount", top)


def record_run(rig, disk, photos):
    """Trains and packs shards on the disk. Returns where in its log each checkpoint, and the shards, were reported."""
    run = rig.start(1, f"{disk.top}/run", sets=STEPS, env={"DTRAIN_FAULT": "slow@0:20"})
    promised, steps = [], -1
    while run.process.poll() is None or faults.reported_step(run) > steps:
        step = faults.reported_step(run)
        if step > steps:
            promised.append((disk.written(), step))
            steps = step
        time.sleep(0.002)
    assert run.wait() == 0 and steps == 40, run.text()
    faults.run(rig.program, "shard", photos, f"{disk.top}/shards", "--per-shard", "4")
    return promised, disk.written()


def lose_power(rig, disk, image, what, promised, shards, expected, at):
    with mounted(image, f"{disk.folder}/after") as top:
        step = max((step for position, step in promised if position <= at), default=-1)
        go_on(rig, f"{top}/run", what, step, expected)
        report = faults.run(rig.program, "report", f"{top}/run", "-o", f"{disk.folder}/page.html", code=None)
        rig.check(report.returncode == 0, f"{what}: report: {report.said}")
        if at >= shards:
            verified = faults.run(rig.program, "verify", f"{top}/shards", code=None)
            rig.check(verified.returncode == 0, f"{what}: shards: {verified.said}")


def power_losses(rig, kind, expected, photos):
    disk = Disk(rig, kind)
    promised, shards = record_run(rig, disk, photos)
    disk.close()
    os.makedirs(f"{disk.folder}/after")
    records, scratch = list(disk.records()), f"{disk.folder}/scratch"
    n_cuts = len(records) if rig.long else 12
    cuts = sorted({len(records), *rig.random.sample(range(1, len(records) + 1), n_cuts)})
    durable, pending, done = disk.first, [], 0
    for number, cut in enumerate(cuts):
        for _, offset, data in records[done:cut]:
            if offset >= 0:
                pending.append((offset, data))
            else:
                apply(durable, pending)
                pending = []
        done = cut
        call("cp", "--sparse=always", durable, scratch)
        mode = ("all", "some", "none")[number % 3]
        keep = {"all": lambda: True, "some": lambda: rig.random.random() < 0.5, "none": lambda: False}[mode]
        apply(scratch, sectors(pending, keep))
        what = f"{kind}, {cut} of {len(records)} writes and flushes, {mode} of {len(pending)} not flushed"
        lose_power(rig, disk, scratch, what, promised, shards, expected, records[cut - 1][0])
    print(f"{kind}: power lost at {len(cuts)} of {len(records)} writes and flushes", flush=True)


def broken(rig, kind, expected):
    """The disk fails in a run, and works again when the machine has booted."""
    disk = Disk(rig, kind)
    out = f"{disk.top}/run"
    run = rig.start(1, out, sets={**STEPS, "train.max_steps": 2000}, env={"DTRAIN_FAULT": "slow@0:2"})
    while faults.reported_step(run) < 0:
        time.sleep(0.01)
    open(disk.image + ".broken", "wb").close()
    code = run.wait()
    rig.check(code in (73, 74), f"{kind}, broken: exit code {code}\n{run.text()}")
    disk.close()
    reported = faults.reported_step(run)
    sets = {**STEPS, "train.max_steps": reported + 20}
    with mounted(disk.image, disk.top):
        go_on(rig, out, f"{kind}, broken", reported, rig.reference(1, sets), sets)
    print(f"{kind}: writes failed, exit code {code}; resumed from step {reported}", flush=True)


def campaign(rig):
    expected = rig.reference(1, STEPS)
    photos = rig.folder("photos")
    faults.run(rig.program, "demo-data", photos, "--images-per-class", "2", "--size", "16")
    for kind in FILE_SYSTEMS:
        power_losses(rig, kind, expected, photos)
        broken(rig, kind, expected)


def missing():
    tools = [tool for tool in ("nbdkit", "nbdfuse", "mkfs.ext4", "mkfs.xfs", "unshare") if not shutil.which(tool)]
    if os.geteuid() != 0:
        return "not root"
    if subprocess.run(["losetup", "--find"], capture_output=True, check=False).returncode:
        return "no loop devices"
    return f"{tools[0]} is missing" if tools else ""


if __name__ == "__main__":
    if INSIDE not in os.environ:  # mounts that end with this process
        if reason := missing():
            print(f"skipped: {reason}")
            sys.exit(77)
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])
    faults.main(campaign, __doc__)
