#!/usr/bin/env python3
"""Writes the list of labels that `dtrain shard --labels` needs for ILSVRC2012_img_val.tar: a synset per line.

    ilsvrc_labels.py ILSVRC2012_devkit_t12.tar.gz LABELS.txt

Needs scipy (Debian: python3-scipy). The ground truth of the development kit has one ILSVRC2012_ID per
image, which does not follow the order of the synsets; the struct array `synsets` of meta.mat maps one to
the other. Only its leaves (no children) are classes."""

import argparse
import sys
import tarfile


def fail(text):
    sys.exit(f"ilsvrc_labels.py: {text}")


try:
    import scipy.io
except ImportError:
    fail(f"{sys.executable} has no scipy; on Debian: apt-get install python3-scipy, then /usr/bin/python3")


def member(kit, name):
    for entry in kit:
        if entry.name.endswith("/" + name):
            return kit.extractfile(entry)
    raise ValueError(f"it has no {name}")


def read_labels(path):
    with tarfile.open(path) as kit:
        synsets = scipy.io.loadmat(member(kit, "meta.mat"), squeeze_me=True)["synsets"]
        truth = member(kit, "ILSVRC2012_validation_ground_truth.txt").read().split()
    classes = {int(s["ILSVRC2012_ID"]): s["WNID"] for s in synsets if s["num_children"] == 0}
    return [classes[int(number)] for number in truth]


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("kit")
parser.add_argument("labels")
args = parser.parse_args()
try:
    labels = read_labels(args.kit)
except Exception as error:  # whatever scipy raises for a damaged file
    fail(f"cannot read {args.kit} as the development kit: {error!r}")
with open(args.labels, "w") as file:
    file.write("".join(f"{label}\n" for label in labels))
