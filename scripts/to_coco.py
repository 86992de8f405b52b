#!/usr/bin/env python3
"""Converts boxes in a CSV table or in the formats of Pascal VOC, YOLO, KITTI and Open Images to one COCO file, which
dtrain reads.

    to_coco.py boxes.csv instances_train.json [--images FOLDER] [--classes FILE]
    to_coco.py VOCdevkit/VOC2007 instances_train.json --set train [--difficult crowd|keep|drop]
    to_coco.py data.yaml instances_train.json --set train
    to_coco.py kitti/training instances_train.json [--set FILE]
    to_coco.py train-annotations-bbox.csv instances_train.json --images FOLDER [--names class-descriptions-boxable.csv]

A table is keras-retinanet's: path,x1,y1,x2,y2,class_name, one line per box, and path,,,,, for an
image without boxes. With a header, columns may have any order: path (or filename, image), x1 y1 x2
y2 (or xmin ymin xmax ymax), class_name (or class, label, name); others are ignored. Paths are
relative to the folder of the table, or to --images.

Of Pascal VOC, SRC is a folder with Annotations/*.xml and JPEGImages/, or one with XML files and
their images. Coordinates are VOC's: the first pixel is 1, and xmax and ymax belong to the box; with
--zero-based the first pixel is 0 and they do not. Difficult objects become crowd boxes, which are
not trained on and in which no detection is wrong, as in VOC's evaluation; `keep` makes them objects
like others, `drop` leaves them out.

YOLO's data.yaml names the folders or lists of images (train, val, test: --set) and the classes. The boxes of
images/x.jpg are in labels/x.txt, a line "class x y w h" each, relative to the size; an image without this file has no
boxes. A polygon is replaced by the box around it.

Of KITTI, SRC is a folder with label_2/*.txt and image_2/; regions of DontCare are skipped. --set is a file with the
numbers of the images.

A table of Open Images has the columns ImageID, LabelName, XMin, XMax, YMin and YMax; --names says what the names of the
labels mean. Groups (IsGroupOf) become crowd boxes. The hierarchy of the classes is ignored.

--classes says which classes there are: class_name,id lines as of keras-retinanet, one name per
line, or the COCO file of the training images. Without it classes are those in the data, sorted: give
it for validation, so that both have the same. Images and boxes have ids from 1, in the order of the
source. Sizes come from the JPEG and PNG files; an EXIF orientation is not applied: train with
data.exif=ignore. Boxes are clipped to their image. Needs nothing but Python."""

import argparse
import collections
import csv
import json
import os
import re
import struct
import sys
import xml.parsers.expat

COLUMNS = {
    "path": ("path", "filename", "file_name", "image", "image_path"),
    "x1": ("x1", "xmin"),
    "y1": ("y1", "ymin"),
    "x2": ("x2", "xmax"),
    "y2": ("y2", "ymax"),
    "class": ("class_name", "class", "label", "name"),
}
CORNERS = ("x1", "y1", "x2", "y2")
SUFFIXES = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")  # sizes of others are not read
NO_FRAME = (0xC4, 0xC8, 0xCC)  # of C0 to CF the JPEG markers that hold no size


class Bad(Exception):
    """A fault of the input, as a sentence that names file and line."""


class Warnings:
    """Counts by what has happened, with the first place."""

    def __init__(self):
        self.found = collections.OrderedDict()

    def add(self, what, where):
        n, first = self.found.get(what, (0, where))
        self.found[what] = (n + 1, first)

    def tell(self):
        for what, (n, first) in self.found.items():
            print(f"to_coco.py: warning: {n} {what}, first {first}", file=sys.stderr)


Box = collections.namedtuple("Box", "where name corners crowd")  # corners: from 0, ends not included


class Image:
    def __init__(self, where, file_name, is_relative=False):
        self.where, self.file_name = where, file_name
        self.is_relative = is_relative  # corners are parts of width and height
        self.said = None  # width and height by the annotations
        self.boxes = []


# --- Sizes of image files ---


def jpeg_size(file):
    """Width and height of a JPEG file, whose first two bytes have been read; None if damaged."""
    while True:
        byte = file.read(1)
        while byte and byte != b"\xff":
            byte = file.read(1)
        while byte == b"\xff":
            byte = file.read(1)
        if not byte:
            return None
        marker = byte[0]
        if marker in (0x00, 0x01) or 0xD0 <= marker <= 0xD8:  # no segment follows
            continue
        head = file.read(2)
        if len(head) < 2 or marker in (0xD9, 0xDA):
            return None
        (n_bytes,) = struct.unpack(">H", head)
        if 0xC0 <= marker <= 0xCF and marker not in NO_FRAME:
            frame = file.read(5)
            return struct.unpack(">xHH", frame)[::-1] if len(frame) == 5 else None
        file.seek(max(n_bytes - 2, 0), os.SEEK_CUR)


def image_size(path, where):
    try:
        with open(path, "rb") as file:
            head = file.read(2)
            if head == b"\xff\xd8":
                size = jpeg_size(file)
            else:
                head += file.read(22)
                is_png = head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR"
                size = struct.unpack(">II", head[16:24]) if is_png and len(head) == 24 else None
    except OSError as error:
        raise Bad(f"{where}: cannot read image {path}: {error.strerror}")
    if not size or 0 in size:
        raise Bad(f"{where}: {path} is neither a JPEG nor a PNG file, or it is damaged")
    return size


# --- Numbers and paths ---


def number(text, what, where):
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = float("nan")
    if not abs(value) < 1e9:
        raise Bad(f"{where}: {what} is not a number: '{text}'")
    return int(value) if value == int(value) else value


def inside(path, folder, where):
    """`path` relative to `folder`, in which it must lie."""
    relative = os.path.relpath(os.path.abspath(path), os.path.abspath(folder))
    if relative.split(os.sep)[0] == os.pardir:
        raise Bad(f"{where}: {path} is not in {folder}: give a folder that holds all images with --images")
    return relative.replace(os.sep, "/")


# --- CSV ---


def is_header(row):
    """Whether the first line names columns: none of its fields is a number, and not all are empty."""
    return len(row) > 1 and any(row[1:]) and not any(re.fullmatch(r"[-+.\d]+(e[-+]?\d+)?", f) for f in row)


def find_columns(row, where):
    names = [field.lower().lstrip("\ufeff") for field in row]
    found = {}
    for column, aliases in COLUMNS.items():
        places = [names.index(alias) for alias in aliases if alias in names]
        if not places:
            raise Bad(f"{where}: the header names no column {column} ({' or '.join(aliases)})")
        found[column] = places[0]
    return found


def table_rows(path):
    """Line number and fields by the names of COLUMNS."""
    columns = {column: i for i, column in enumerate(COLUMNS)}
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        is_first = True
        for row in reader:
            row = [field.strip() for field in row]
            where = f"{path}:{reader.line_num}"
            if not any(row):
                continue
            if is_first and is_header(row):
                columns = find_columns(row, where)
            elif len(row) > 1 and len(row) <= max(columns.values()):
                raise Bad(f"{where}: {len(row)} fields, but {max(columns.values()) + 1} are needed")
            else:
                row += [""] * (max(columns.values()) + 1 - len(row))
                yield where, {column: row[i] for column, i in columns.items()}
            is_first = False


def read_csv(args):
    folder = args.images or os.path.dirname(args.src) or "."
    images = collections.OrderedDict()
    try:
        for where, row in table_rows(args.src):
            if not row["path"]:
                raise Bad(f"{where}: the path of the image is empty")
            name = inside(os.path.join(folder, row["path"]), folder, where)
            image = images.setdefault(name, Image(where, name))
            rest = [row[column] for column in (*CORNERS, "class")]
            if not any(rest):
                continue
            if not all(rest):
                raise Bad(f"{where}: a box needs x1, y1, x2, y2 and a class; an image without boxes, none of them")
            corners = [number(row[column], column, where) for column in CORNERS]
            image.boxes.append(Box(where, row["class"], corners, False))
    except csv.Error as error:
        raise Bad(f"{args.src}: not a CSV file: {error}")
    return folder, list(images.values())


# --- Pascal VOC ---


class Node:
    """An element of XML that knows its line."""

    def __init__(self, name, line):
        self.name, self.line, self.text, self.children = name, line, "", []

    def get(self, *names):
        node = self
        for name in names:
            node = next((child for child in node.children if child.name == name), None)
            if node is None:
                return None
        return node

    def value(self, *names):
        node = self.get(*names)
        return node.text.strip() if node else ""


def parse_xml(path):
    parser = xml.parsers.expat.ParserCreate()
    stack = [Node("", 0)]

    def begin(name, _):
        stack.append(Node(name, parser.CurrentLineNumber))
        stack[-2].children.append(stack[-1])

    def text(data):
        stack[-1].text += data

    def refuse(*_):
        raise Bad(f"{path}:{parser.CurrentLineNumber}: entities are not read")

    parser.StartElementHandler, parser.EndElementHandler = begin, lambda _: stack.pop()
    parser.CharacterDataHandler, parser.EntityDeclHandler = text, refuse
    try:
        with open(path, "rb") as file:
            parser.ParseFile(file)
    except xml.parsers.expat.ExpatError as error:
        raise Bad(f"{path}:{error.lineno}: not XML: {xml.parsers.expat.ErrorString(error.code)}")
    root = stack[0].get("annotation")
    if root is None:
        raise Bad(f"{path}:1: no <annotation>: not a file of Pascal VOC")
    return root


def find_image(root, folder, path):
    """By <filename>, or by the name of the XML file."""
    stem = os.path.splitext(os.path.basename(path))[0]
    said = os.path.basename(root.value("filename").replace("\\", "/"))
    for name in [said] * bool(said) + [stem + suffix for suffix in SUFFIXES]:
        if os.path.isfile(os.path.join(folder, name)):
            return name
    raise Bad(f"{path}:1: its image is not in {folder}: neither {said or '<filename>'} nor {stem}.jpg, .jpeg or .png")


def voc_box(node, path, args, warnings):
    where = f"{path}:{node.line}"
    name, box = node.value("name"), node.get("bndbox")
    if not name or box is None:
        raise Bad(f"{where}: an object needs <name> and <bndbox>")
    is_difficult = node.value("difficult") not in ("", "0")
    if is_difficult and args.difficult == "drop":
        return None
    corners = []
    for tag in ("xmin", "ymin", "xmax", "ymax"):
        corners.append(number(box.value(tag), f"<{tag}>", f"{path}:{(box.get(tag) or box).line}"))
    if not args.zero_based:
        if min(corners[:2]) < 1:
            warnings.add("boxes begin before pixel 1, the first of Pascal VOC: is this --zero-based?", where)
        corners[:2] = [corners[0] - 1, corners[1] - 1]
    return Box(where, name, corners, is_difficult and args.difficult == "crowd")


def voc_image(path, folder, args, warnings):
    root = parse_xml(path)
    image = Image(f"{path}:1", find_image(root, folder, path))
    size = root.get("size")
    width, height = (root.value("size", tag) for tag in ("width", "height"))
    if size is None or "0" in (width or "0", height or "0"):
        warnings.add("XML files do not say the size of their image", image.where)
    else:
        image.where = f"{path}:{size.line}"
        image.said = (number(width, "<width>", image.where), number(height, "<height>", image.where))
    boxes = (voc_box(node, path, args, warnings) for node in root.children if node.name == "object")
    image.boxes = [box for box in boxes if box]
    return image


def voc_list(path):
    """Names of the XML files without .xml, one per line."""
    names = []
    with open(path, encoding="utf-8-sig") as file:
        for line, text in enumerate(file, 1):
            words = text.split()
            if len(words) > 1:
                raise Bad(f"{path}:{line}: a list of one class; give the list of all images, such as trainval.txt")
            names += words
    if len(set(names)) < len(names):
        raise Bad(f"{path}: {len(names) - len(set(names))} names occur twice")
    return names


def read_voc(args, warnings):
    is_devkit = os.path.isdir(os.path.join(args.src, "Annotations"))
    xmls = os.path.join(args.src, "Annotations") if is_devkit else args.src
    folder = args.images or (os.path.join(args.src, "JPEGImages") if is_devkit else args.src)
    names = sorted(name[:-4] for name in os.listdir(xmls) if name.lower().endswith(".xml"))
    if args.set:
        path = os.path.join(args.src, "ImageSets", "Main", f"{args.set}.txt")
        names = voc_list(args.set if os.path.isfile(args.set) else path)
    if not names:
        raise Bad(f"{args.set or xmls} names no XML files")
    images = [voc_image(os.path.join(xmls, f"{name}.xml"), folder, args, warnings) for name in names]
    seen = {}
    for image in images:
        if image.file_name in seen:
            raise Bad(f"{image.where}: its image {image.file_name} also belongs to {seen[image.file_name]}")
        seen[image.file_name] = image.where
    return folder, images


# --- YOLO ---


def yaml_value(text):
    """A scalar or a list in brackets; quotes and a comment are removed."""
    text = re.sub(r"(^|\s)#.*", "", text).strip()
    if text.startswith("[") and text.endswith("]"):
        return [yaml_value(part) for part in next(csv.reader([text[1:-1]], skipinitialspace=True), [])]
    if text.startswith("{") and text.endswith("}"):
        return dict(pair.split(":", 1) for pair in text[1:-1].split(",") if ":" in pair)
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def read_yaml(path):
    """The part of YAML that data.yaml uses: keys with scalars, and lists and tables of scalars under a key."""
    found, key = {}, None
    with open(path, encoding="utf-8-sig") as file:
        for line, text in enumerate(file, 1):
            bare = text.strip()
            if not bare or bare.startswith(("#", "---", "%")):
                continue
            name, colon, value = bare.partition(":")
            if text[0] not in " \t-" and colon:
                key = name.strip("'\" ")
                found[key] = yaml_value(value)
            elif key and bare.startswith("-") and found[key] in ("", *[found[key]] * isinstance(found[key], list)):
                found[key] = [*(found[key] or []), yaml_value(bare[1:])]
            elif key and colon and (found[key] == "" or isinstance(found[key], dict)):
                found[key] = {**(found[key] or {}), yaml_value(name): yaml_value(value)}
            elif isinstance(found.get(key), (list, dict)) or not key:
                raise Bad(f"{path}:{line}: neither a key nor an item of one: '{bare}'")
    return found


def yolo_names(data, path):
    names = data.get("names")
    pairs = names.items() if isinstance(names, dict) else enumerate(names if isinstance(names, list) else [])
    try:
        found = {int(i): yaml_value(str(name)) for i, name in pairs}
    except ValueError:
        found = {}
    if not found or len(set(found.values())) < len(found) or any(not name for name in found.values()):
        raise Bad(f"{path}: names must list the classes, each once")
    return found


def image_files(path):
    """Images of a folder and the folders in it, or of a list, whose paths may be relative to it."""
    if os.path.isdir(path):
        found = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
        return sorted(name for name in found if name.lower().endswith(SUFFIXES))
    with open(path, encoding="utf-8-sig") as file:
        lines = [line.strip() for line in file if line.strip()]
    return [os.path.join(os.path.dirname(path), line) for line in lines]


def yolo_label(image):
    """labels/x.txt for images/x.jpg, else x.txt next to it."""
    stem = os.path.splitext(os.path.abspath(image))[0] + ".txt"
    before, images, after = stem.rpartition(f"{os.sep}images{os.sep}")
    return f"{before}{os.sep}labels{os.sep}{after}" if images else stem


def yolo_box(where, fields, names, warnings):
    values = [number(field, "a field", where) for field in fields]
    if len(values) != 5 and (len(values) < 7 or len(values) % 2 == 0):
        raise Bad(f"{where}: {len(values)} numbers, but a box has 5: class x y w h")
    if values[0] not in names:
        raise Bad(f"{where}: the class {fields[0]} is not in names")
    if len(values) > 5:
        warnings.add("polygons are replaced by the box around them", where)
        xs, ys = values[1::2], values[2::2]
        corners = [min(xs), min(ys), max(xs), max(ys)]
    else:
        _, x, y, w, h = values
        corners = [x - w / 2, y - h / 2, x + w / 2, y + h / 2]
    if max(abs(corner - 0.5) for corner in corners) > 1:
        raise Bad(f"{where}: not relative to the size of the image: {' '.join(fields)}")
    return Box(where, names[values[0]], corners, False)


def read_yolo(args, warnings):
    data = read_yaml(args.src)
    names, part = yolo_names(data, args.src), args.set or "train"
    base = os.path.dirname(args.src) or "."
    root = os.path.join(base, str(data.get("path", "")))
    root = root if os.path.isdir(root) else base
    paths = data.get(part) or []
    files = [file for path in ([paths] if isinstance(paths, str) else paths) for file in image_files(os.path.join(root, path))]
    if not files:
        raise Bad(f"{args.src}: {part} names no images")
    folder = args.images or (os.path.commonpath([os.path.dirname(os.path.abspath(file)) for file in files]))
    images = []
    for file in files:
        label = yolo_label(file)
        images.append(Image(label, inside(file, folder, args.src), is_relative=True))
        if not os.path.exists(label):
            warnings.add("images have no file of labels, and so no boxes", label)
            continue
        with open(label, encoding="utf-8-sig") as lines:
            for line, text in enumerate(lines, 1):
                if text.strip():
                    images[-1].boxes.append(yolo_box(f"{label}:{line}", text.split(), names, warnings))
    args.found_classes = {i + 1: name for i, name in names.items()}
    return folder, images


# --- KITTI ---


def read_kitti(args, warnings):
    labels = os.path.join(args.src, "label_2")
    folder = args.images or os.path.join(args.src, "image_2")
    names = voc_list(args.set) if args.set else sorted(name[:-4] for name in os.listdir(labels) if name.endswith(".txt"))
    images = []
    for name in names:
        path = os.path.join(labels, f"{name}.txt")
        found = [name + suffix for suffix in SUFFIXES if os.path.isfile(os.path.join(folder, name + suffix))]
        if not found:
            raise Bad(f"{path}: its image is not in {folder}: {name}.png or .jpg")
        images.append(Image(path, found[0]))
        with open(path, encoding="utf-8-sig") as file:
            for line, fields in enumerate(map(str.split, file), 1):
                where = f"{path}:{line}"
                if not fields:
                    continue
                if len(fields) not in (15, 16):
                    raise Bad(f"{where}: {len(fields)} fields, but KITTI has 15, or 16 with a score")
                if fields[0] == "DontCare":
                    warnings.add("regions of DontCare are skipped", where)
                    continue
                corners = [number(field, "an edge of the box", where) for field in fields[4:8]]
                images[-1].boxes.append(Box(where, fields[0], corners, False))
    return folder, images


# --- Open Images ---

OPEN_IMAGES = ("XMin", "YMin", "XMax", "YMax")


def is_open_images(path):
    with open(path, encoding="utf-8-sig") as file:
        return {"ImageID", "LabelName", *OPEN_IMAGES} <= set(file.readline().strip().split(","))


def read_open_images(args):
    folder, images, names = args.images or os.path.dirname(args.src) or ".", collections.OrderedDict(), {}
    if args.names:
        with open(args.names, newline="", encoding="utf-8-sig") as file:
            names = {row[0]: row[1] for row in csv.reader(file) if len(row) > 1}
    with open(args.src, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        for row in reader:
            where = f"{args.src}:{reader.line_num}"
            if None in row.values():
                raise Bad(f"{where}: fields are missing")
            image = images.setdefault(row["ImageID"], Image(where, f"{row['ImageID']}.jpg", is_relative=True))
            if names and row["LabelName"] not in names:
                raise Bad(f"{where}: {args.names} does not list {row['LabelName']}")
            corners = [number(row[column], column, where) for column in OPEN_IMAGES]
            name = names.get(row["LabelName"], row["LabelName"])
            image.boxes.append(Box(where, name, corners, row.get("IsGroupOf", "0") == "1"))
    print("to_coco.py: the hierarchy of Open Images' classes is ignored: a box has only the class that the table gives")
    found = [image for image in images.values() if os.path.exists(os.path.join(folder, image.file_name))]
    if len(found) < len(images):
        print(f"to_coco.py: {len(found)} of {len(images)} images are in {folder}; the others are skipped", file=sys.stderr)
    return folder, found


# --- Classes ---


def read_classes(path):
    """Names by the id of their category."""
    with open(path, encoding="utf-8-sig") as file:
        if path.endswith(".json"):
            pairs = [(str(c["name"]), int(c["id"]), path) for c in json.load(file)["categories"]]
        else:
            pairs = []
            for line, text in enumerate(file.read().splitlines(), 1):
                name, comma, label = text.strip().rpartition(",")
                if not text.strip():
                    continue
                if comma and not re.fullmatch(r"\s*\d{1,9}\s*", label):
                    raise Bad(f"{path}:{line}: not class_name,id: '{text}'")
                pairs.append((name if comma else label, int(label) + 1 if comma else line, f"{path}:{line}"))
    found = {}
    for name, number_, where in pairs:
        if number_ in found or name in found.values():
            raise Bad(f"{where}: the class {name} or its id occurs twice")
        found[number_] = name
    return found


def choose_classes(args, images):
    boxes = [box for image in images for box in image.boxes]
    if not args.classes:
        return args.found_classes or dict(enumerate(sorted({box.name for box in boxes}), 1))
    try:
        classes = read_classes(args.classes)
    except (KeyError, TypeError, ValueError) as error:
        raise Bad(f"{args.classes} lists no classes: {error}")
    for box in boxes:
        if box.name not in classes.values():
            raise Bad(f"{box.where}: {args.classes} does not list the class '{box.name}'")
    return classes


# --- COCO ---


def check_size(image, size):
    if image.said and tuple(image.said) != size:
        turned = tuple(image.said) == size[::-1]
        raise Bad(
            f"{image.where}: the size is {image.said[0]} x {image.said[1]}, but {image.file_name} has "
            f"{size[0]} x {size[1]} pixels"
            + ("; turn the pixels of images whose EXIF orientation is not 1, then annotate them" if turned else "")
        )


def clip(box, size, warnings):
    """x, y, w and h inside the image; None if nothing is left."""
    x1, y1, x2, y2 = box.corners
    if x2 <= x1 or y2 <= y1:
        raise Bad(f"{box.where}: the box is empty: its right end {x2} must be above {x1}, its lower end {y2} above {y1}")
    corners = max(x1, 0), max(y1, 0), min(x2, size[0]), min(y2, size[1])
    if corners[2] <= corners[0] or corners[3] <= corners[1]:
        warnings.add("boxes lie outside their image and are skipped", box.where)
        return None
    if list(corners) != list(box.corners):
        warnings.add("boxes reach out of their image and are clipped", box.where)
    return [corners[0], corners[1], corners[2] - corners[0], corners[3] - corners[1]]


def convert(images, folder, classes, warnings):
    ids = {name: number_ for number_, name in classes.items()}
    out = {"info": {"description": "made by dtrain's to_coco.py"}, "licenses": [], "images": []}
    out["annotations"] = []
    for image_id, image in enumerate(images, 1):
        size = image_size(os.path.join(folder, image.file_name), image.where)
        check_size(image, size)
        out["images"].append({"id": image_id, "file_name": image.file_name, "width": size[0], "height": size[1]})
        for box in image.boxes:
            if image.is_relative:
                box = box._replace(corners=[corner * size[i % 2] for i, corner in enumerate(box.corners)])
            bbox = clip(box, size, warnings)
            if bbox:
                out["annotations"].append(
                    {
                        "id": len(out["annotations"]) + 1,
                        "image_id": image_id,
                        "category_id": ids[box.name],
                        "bbox": bbox,
                        "area": bbox[2] * bbox[3],
                        "iscrowd": int(box.crowd),
                    }
                )
    out["categories"] = [{"id": i, "name": name, "supercategory": "none"} for i, name in sorted(classes.items())]
    return out


def save(out, path, force):
    if os.path.exists(path) and not force:
        raise Bad(f"{path} exists: choose another name, or replace it with --force")
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            json.dump(out, file, ensure_ascii=False, separators=(",", ":"))
            file.write("\n")
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def tell(out, path, folder):
    counts = collections.Counter(annotation["image_id"] for annotation in out["annotations"])
    n_crowd = sum(annotation["iscrowd"] for annotation in out["annotations"])
    print(
        f"{path}: {len(out['images'])} images, {len(out['images']) - len(counts)} of them without boxes; "
        f"{len(out['annotations'])} boxes, {n_crowd} of them crowds; {len(out['categories'])} classes: "
        + ", ".join(category["name"] for category in out["categories"])
    )
    print(f"for dtrain: data.train = {path}, data.train_images = {folder} (or data.val and data.val_images)")


def run(args, warnings):
    if args.src.endswith((".yaml", ".yml")):
        folder, images = read_yolo(args, warnings)
    elif os.path.isdir(os.path.join(args.src, "label_2")):
        folder, images = read_kitti(args, warnings)
    elif os.path.isdir(args.src):
        folder, images = read_voc(args, warnings)
    elif args.set or args.zero_based:
        raise Bad(f"{args.src} is not a folder: --set and --zero-based are for Pascal VOC, and --set for YOLO and KITTI")
    elif is_open_images(args.src):
        folder, images = read_open_images(args)
    else:
        folder, images = read_csv(args)
    if not images:
        raise Bad(f"{args.src} names no images")
    out = convert(images, folder, choose_classes(args, images), warnings)
    save(out, args.out, args.force)
    tell(out, args.out, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("src", help="table (.csv), data.yaml of YOLO, or folder of Pascal VOC or KITTI")
    parser.add_argument("out", help="COCO file to write, such as instances_train.json")
    parser.add_argument("--images", metavar="FOLDER", help="of the images")
    parser.add_argument("--classes", metavar="FILE", help="class_name,id lines; names; or a COCO file")
    parser.add_argument("--set", help="Pascal VOC: a list in ImageSets/Main, such as train, or a file; YOLO: train, val or test; KITTI: a file")
    parser.add_argument("--names", metavar="FILE", help="Open Images: what the names of labels mean")
    parser.set_defaults(found_classes=None)
    parser.add_argument("--difficult", choices=("crowd", "keep", "drop"), default="crowd", help="default: crowd")
    parser.add_argument("--zero-based", action="store_true", help="Pascal VOC: the first pixel is 0")
    parser.add_argument("--force", action="store_true", help="replace OUT")
    warnings = Warnings()
    try:
        run(parser.parse_args(), warnings)
    except Bad as error:
        sys.exit(f"to_coco.py: {error}")
    except OSError as error:
        sys.exit(f"to_coco.py: cannot use {error.filename}: {error.strerror}")
    except UnicodeDecodeError as error:
        sys.exit(f"to_coco.py: a file is not UTF-8: {error}")
    finally:
        warnings.tell()


main()
