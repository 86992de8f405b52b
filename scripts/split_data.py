#!/usr/bin/env python3
"""Splits labelled images into tables for dtrain: k folds, or training, validation and test images.

    split_data.py DATA OUT --k 5 [--group COLUMN|PATTERN] [--seed 1]
    split_data.py DATA OUT --val 0.1 [--test 0.1] [--group COLUMN|PATTERN] [--seed 1]

DATA is a folder with one folder per class, or a CSV table with the columns path and label. Every part has about the same
share of each class. --group keeps together what belongs together, such as the images of a patient: a column of the
table, or a regular expression of paths with parentheses around the group, such as 'patient([0-9]+)'. The same DATA and
seed give the same tables. --k writes OUT/train-0.csv and val-0.csv, where val-0 is the first fold and train-0 has all
others, and so on; otherwise OUT/train.csv, val.csv and test.csv are written. Needs nothing but Python."""

import argparse
import collections
import csv
import os
import random
import re
import sys

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".gif", ".bmp")


class Bad(Exception):
    """A fault of the input, as a sentence."""


def read_folder(folder):
    for name in sorted(os.listdir(folder)):
        top = os.path.join(folder, name)
        for below, folders, names in os.walk(top):  # of a file nothing
            folders.sort()
            for file in sorted(names):
                if file.lower().endswith(SUFFIXES) and not file.startswith("."):
                    yield {"path": os.path.join(below, file), "label": name}


def read_table(path):
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file, skipinitialspace=True)
        missing = {"path", "label"} - set(rows.fieldnames or [])
        if missing:
            raise Bad(f"{path}:1: no column {sorted(missing)[0]}: the first line names {', '.join(rows.fieldnames or [])}")
        for row in rows:
            if not row["path"] or not row["label"]:
                raise Bad(f"{path}:{rows.line_num}: path or label is empty")
            yield {**row, "path": os.path.join(os.path.dirname(path), row["path"])}


def group_of(row, group):
    if not group:
        return row["path"]
    if not re.compile(group).groups:
        if not row.get(group):
            raise Bad(f"--group: {row['path']} has no value in the column {group}; a pattern has parentheses")
        return row[group]
    found = re.search(group, row["path"])
    if not found or found[1] is None:
        raise Bad(f"--group: the pattern {group} does not match {row['path']}")
    return found[1]


def assign(rows, group, shares, seed):
    """The part of each row. The largest groups first, each goes where the classes are then closest to the shares."""
    groups = collections.OrderedDict()
    for i, row in enumerate(rows):
        groups.setdefault(group_of(row, group), []).append(i)
    if len(groups) < len(shares):
        raise Bad(f"{len(groups)} groups cannot be split into {len(shares)} parts")
    totals = collections.Counter(row["label"] for row in rows)
    parts, counts = [0] * len(rows), [collections.Counter() for _ in shares]
    order = list(groups.values())
    random.Random(seed).shuffle(order)
    order.sort(key=len, reverse=True)
    for members in order:
        labels = collections.Counter(rows[i]["label"] for i in members)

        def excess(part):
            """How much fuller the part gets, over all classes of the group."""
            have, share = counts[part], shares[part]
            return sum((2 * have[c] + n) * n / totals[c] / share for c, n in labels.items()), sum(have.values()) / share

        best = min(range(len(shares)), key=excess)
        counts[best].update(labels)
        for i in members:
            parts[i] = best
    return parts


def write_table(out, name, rows):
    """Paths are relative to the table's folder."""
    path = os.path.join(out, name)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["path", "label"])
        writer.writerows([os.path.relpath(row["path"], out), row["label"]] for row in rows)
    counts = collections.Counter(row["label"] for row in rows)
    print(f"{path}: {len(rows)} images: " + ", ".join(f"{counts[label]} {label}" for label in sorted(counts)))


def run(args):
    rows = list(read_folder(args.data) if os.path.isdir(args.data) else read_table(args.data))
    if not rows:
        raise Bad(f"{args.data} holds no images")
    shares = [1 / args.k] * args.k if args.k else [1 - args.val - args.test, args.val] + [args.test] * (args.test > 0)
    if len(shares) < 2 or min(shares) <= 0:
        raise Bad("give --k of 2 or more, or --val and --test that leave images for training")
    parts = assign(rows, args.group, shares, args.seed)
    os.makedirs(args.out, exist_ok=True)
    chosen = [[row for row, part in zip(rows, parts) if part == i] for i in range(len(shares))]
    if not all(chosen):
        raise Bad("a part would be empty: there are too few groups")
    if args.k:
        for i in range(args.k):
            write_table(args.out, f"train-{i}.csv", [row for row, part in zip(rows, parts) if part != i])
            write_table(args.out, f"val-{i}.csv", chosen[i])
    else:
        for name, part in zip(("train", "val", "test"), chosen):
            write_table(args.out, f"{name}.csv", part)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a folder with one folder per class, or a table (.csv)")
    parser.add_argument("out", help="folder for the tables")
    parser.add_argument("--k", type=int, help="number of folds")
    parser.add_argument("--val", type=float, default=0.1, help="share of the images (default: 0.1)")
    parser.add_argument("--test", type=float, default=0, help="share of the images (default: none)")
    parser.add_argument("--group", help="a column of the table, or a pattern with parentheses")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    try:
        run(parser.parse_args())
    except Bad as error:
        sys.exit(f"split_data.py: {error}")
    except re.error as error:
        sys.exit(f"split_data.py: --group: {error}")
    except OSError as error:
        sys.exit(f"split_data.py: cannot use {error.filename}: {error.strerror}")
    except UnicodeDecodeError as error:
        sys.exit(f"split_data.py: a file is not UTF-8: {error}")


main()
