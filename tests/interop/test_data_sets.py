"""Class folders against torchvision's ImageFolder: the same samples and labels in the same order,
for random trees of folders with odd names and links. CSV tables against Python's csv module."""

import csv
import os
import random
import subprocess
import sys
import tempfile

try:
    from torchvision.datasets import ImageFolder
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOOL = os.path.join(os.path.dirname(sys.argv[1]), "tests", "list_tool")
PARTS = ["a", "b", "a b", "a-1", "a.x", "a.", "A", "~", "0", "00", "é", "日", "a,b", 'q"q', "z=1"]
SUFFIXES = [".jpg", ".JPEG", ".png", ".PnG", ".jpg.txt", ".pdf", ".bmp", "", ".jpeg"]


def listed(path, code=0):
    done = subprocess.run([TOOL, path], capture_output=True)
    assert done.returncode == code, (done.returncode, done.stderr)
    rows = done.stdout.decode().split("\0")[:-1]
    return [(name, int(label)) for label, name in (row.split("\t", 1) for row in rows)]


def write(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write("x")


def make_tree(root, draw):
    folders = [os.path.join(root, name) for name in draw.sample(PARTS, 4)]
    for folder in list(folders):
        write(os.path.join(folder, "always.jpg"))
    for _ in range(draw.randrange(60)):
        folder = os.path.join(draw.choice(folders), draw.choice(PARTS))
        folders.append(folder)
        os.makedirs(folder, exist_ok=True)
        for _ in range(draw.randrange(4)):
            write(os.path.join(folder, "f" + draw.choice(PARTS) + draw.choice(SUFFIXES)))


def test_folders(folder):
    n = 0
    for seed in range(40):
        draw = random.Random(seed)
        root = os.path.join(folder, f"tree{seed}")
        make_tree(root, draw)
        os.symlink("always.jpg", os.path.join(root, sorted(os.listdir(root))[0], "link.jpg"))
        outside = os.path.join(folder, f"outside{seed}")
        write(os.path.join(outside, "sub", "1.jpg"))
        os.symlink(outside, os.path.join(root, "a b c"))
        os.symlink(os.path.join(outside, "sub"), os.path.join(outside, "link"))
        theirs = ImageFolder(root).samples
        assert listed(root) == theirs, seed
        n += len(theirs)
    print(f"40 folders with {n} images")


def test_tables(folder):
    n = 0
    for seed in range(40):
        draw = random.Random(seed)
        root = os.path.join(folder, f"table{seed}")
        names = [p + q for p in PARTS for q in ("", "-/x", "\r\n", '"')]
        columns = ["path", "label", *(["note"] * draw.randrange(3))]
        draw.shuffle(columns)
        table, labels = os.path.join(root, "list.csv"), draw.sample(PARTS, 5)
        if seed % 2:
            labels = ["0", "1", "2", "03"]
        write(table)
        with open(table, "w", newline="", encoding=draw.choice(["utf-8", "utf-8-sig"])) as f:
            writer = csv.writer(f, lineterminator=draw.choice(["\n", "\r\n"]))
            writer.writerow(columns)
            for name in draw.sample(names, 30):
                path = os.path.join(draw.choice(["", root + "/"]), "file" + name)
                write(os.path.join(root, path))
                values = {"path": path, "label": draw.choice(labels), "note": draw.choice(names)}
                writer.writerow([values[column] for column in columns])
        with open(table, newline="", encoding="utf-8-sig") as f:
            rows = list(csv.DictReader(f))
        classes = sorted({row["label"] for row in rows})
        want = [
            (
                os.path.join(root, row["path"]).replace("\n", "?"),
                int(row["label"]) if seed % 2 else classes.index(row["label"]),
            )
            for row in rows
        ]
        assert listed(table) == want, seed
        n += len(rows)
    print(f"40 tables with {n} rows")


def main():
    if not os.path.exists(TOOL):
        print(f"skipped: no {TOOL}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        test_folders(folder)
        test_tables(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
