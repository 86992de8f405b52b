"""scripts/to_coco.py: tables and Pascal VOC become the COCO file that they should; every fault of the
input is one sentence with file and line. The images consist of headers only."""

import contextlib
import io
import json
import os
import runpy
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "..", "..", "scripts", "to_coco.py")
XML = """<annotation>
 <filename>{file}</filename>
 <size><width>{w}</width><height>{h}</height><depth>3</depth></size>
{objects}</annotation>
"""
OBJECT = """ <object><name>{0}</name><difficult>{1}</difficult>
  <part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>
  <bndbox><xmin>{2}</xmin><ymin>{3}</ymin><xmax>{4}</xmax><ymax>{5}</ymax></bndbox></object>
"""


def write(path, data):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def png(width, height):
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x02\0\0\0"


def jpeg(width, height, frame=0xC0):
    """With an EXIF segment that holds the markers of a thumbnail, fill bytes and tables before the frame."""
    thumbnail = b"\xff\xd8\xff\xc0\0\x11\x08\0\x01\0\x01"
    segments = b"\xff\xe1" + struct.pack(">H", 2 + len(thumbnail)) + thumbnail
    segments += b"\xff\xff\xff\xc4\0\x04\0\0"
    return b"\xff\xd8" + segments + struct.pack(">BBHBHH", 255, frame, 17, 8, height, width) + b"\3" * 10


def run(*args):
    """The script in this process, as fifty starts of Python would take seconds."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = [SCRIPT, *args]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(SCRIPT, run_name="__main__")
        except SystemExit as end:
            code = end.code
    if isinstance(code, str):
        err.write(f"{code}\n")
        code = 1
    return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())


def convert(*args):
    done = run(*args, "out.json", "--force") if "out.json" not in args else run(*args)
    assert done.returncode == 0, (args, done.stdout, done.stderr)
    with open("out.json", encoding="utf-8") as file:
        return json.load(file), done.stdout + done.stderr


def refused(text, *args):
    done = run(*args, "bad.json")
    assert done.returncode == 1 and text in done.stderr, (args, text, done.stderr)
    assert "to_coco.py: " in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not os.path.exists("bad.json"), args


def boxes(out):
    names = {category["id"]: category["name"] for category in out["categories"]}
    return [(a["image_id"], names[a["category_id"]], a["bbox"], a["iscrowd"]) for a in out["annotations"]]


def check_table():
    write("t/a/one.jpg", jpeg(40, 30, 0xC2))
    write("t/two.png", png(20, 10))
    write("t/zero.jpeg", jpeg(8, 8))
    rows = "two.png,1,2,11,6,dog\na/one.jpg,0,0,40,30,cat\nzero.jpeg,,,,,\ntwo.png,2.5,2,4,5,cat\n"
    write("t/boxes.csv", rows)
    out, said = convert("t/boxes.csv")
    assert [(i["id"], i["file_name"], i["width"], i["height"]) for i in out["images"]] == [
        (1, "two.png", 20, 10),
        (2, "a/one.jpg", 40, 30),
        (3, "zero.jpeg", 8, 8),
    ], out
    assert [(c["id"], c["name"]) for c in out["categories"]] == [(1, "cat"), (2, "dog")]
    assert boxes(out) == [
        (1, "dog", [1, 2, 10, 4], 0),
        (1, "cat", [2.5, 2, 1.5, 3], 0),
        (2, "cat", [0, 0, 40, 30], 0),
    ], out
    assert [(a["id"], a["area"]) for a in out["annotations"]] == [(1, 40), (2, 4.5), (3, 1200)]
    assert "3 images, 1 of them without boxes; 3 boxes" in said and "data.train_images = t " in said, said

    header = "label,ymax,xmax,width,ymin,xmin,filename\ndog,6,11,20,2,1,two.png\ncat,30,40,0,0,0,a/one.jpg\n"
    write("t/header.csv", "\ufeff" + header + ",,,,,,zero.jpeg\ncat,5,4,20,2,2.5,two.png\n")
    again, _ = convert("t/header.csv")
    assert again == out
    write("other/boxes.csv", rows)
    assert convert("other/boxes.csv", "--images", "t")[0] == out
    write("t/all.csv", "".join(f"{os.path.abspath('t')}/{row}\n" for row in rows.split()))
    assert convert("t/all.csv")[0] == out


def check_yolo():
    write("y/images/train/a.jpg", jpeg(200, 100))
    write("y/images/train/deep/b.png", png(50, 40))
    write("y/images/val/c.jpg", jpeg(10, 10))
    write("y/labels/train/a.txt", "1 0.5 0.5 0.2 0.4\n0 0.1 0.2 0.9 0.2 0.9 0.6 0.1 0.6\n\n")
    write("y/labels/val/c.txt", "0 0.95 0.5 0.2 1\n")
    write("y/data.yaml", "# data\npath: ../y  # from here\ntrain: images/train\nval: images/val\n\nnames:\n  0: fish\n  1: 'dog'\n")
    out, said = convert("y/data.yaml")
    assert [(i["file_name"], i["width"]) for i in out["images"]] == [("a.jpg", 200), ("deep/b.png", 50)], out
    assert [(c["id"], c["name"]) for c in out["categories"]] == [(1, "fish"), (2, "dog")]
    found = [(image, name, [round(x, 6) for x in box], crowd) for image, name, box, crowd in boxes(out)]
    assert found == [(1, "dog", [80, 30, 40, 40], 0), (1, "fish", [20, 20, 160, 40], 0)], found
    assert "1 polygons are replaced" in said and "1 images have no file of labels" in said, said
    write("y/list.txt", "./images/val/c.jpg\n")
    for names in ("[fish, dog]", "{0: fish, 1: dog}", "\n- fish\n- dog"):
        write("y/other.yaml", f"val: list.txt\nnc: 2\nnames: {names}\n")
        out, said = convert("y/other.yaml", "--set", "val")
        assert [round(x, 6) for x in boxes(out)[0][2]] == [8.5, 0, 1.5, 10] and "clipped" in said, (out, said)
    refused("test names no images", "y/data.yaml", "--set", "test")
    for line, text in (
        ("2 0.5 0.5 0.2 0.4", "y/labels/val/c.txt:1: the class 2 is not in names"),
        ("0 0.5 0.5 0.2", "c.txt:1: 4 numbers, but a box has 5: class x y w h"),
        ("0 50 50 20 40", "c.txt:1: not relative to the size of the image"),
        ("0 x 0.5 0.2 0.4", "c.txt:1: a field is not a number: 'x'"),
    ):
        write("y/labels/val/c.txt", line)
        refused(text, "y/data.yaml", "--set", "val")
    write("y/none.yaml", "train: images/train\n")
    refused("names must list the classes, each once", "y/none.yaml")


def check_kitti():
    write("k/image_2/000001.png", png(1242, 375))
    write("k/image_2/000002.png", png(1242, 375))
    rest = "1.5 1.6 3.7 -0.7 1.6 9.8 -1.6"
    rows = f"Car 0.00 0 -1.58 587.01 173.33 614.12 200.12 {rest}\nDontCare -1 -1 -10 5 5 9 9 {rest}\n"
    write("k/label_2/000001.txt", rows + f"Cyclist 0 1 2 10 20 30 50 {rest} 0.9\n")
    write("k/label_2/000002.txt", "")
    out, said = convert("k")
    found = [(image, name, [round(x, 6) for x in box]) for image, name, box, _ in boxes(out)]
    assert found == [(1, "Car", [587.01, 173.33, 27.11, 26.79]), (1, "Cyclist", [10, 20, 20, 30])], found
    assert len(out["images"]) == 2 and "1 regions of DontCare are skipped" in said, said
    write("k/some.txt", "000002\n")
    os.rename("out.json", "k.json")
    assert len(convert("k", "--set", "k/some.txt", "--classes", "k.json")[0]["images"]) == 1
    write("k/label_2/000002.txt", "Car 0 0 0 1 2 3\n")
    refused("000002.txt:1: 7 fields, but KITTI has 15", "k")


def check_open_images():
    write("o/aa01.jpg", jpeg(100, 50))
    head = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside\n"
    rows = "aa01,xclick,/m/0bt9lr,1,0.1,0.5,0.2,1,0,0,0,0,0\naa01,xclick,/m/01yrx,1,0,1,0,1,0,0,1,0,0\nbb02,xclick,/m/01yrx,1,0,1,0,1,0,0,0,0,0\n"
    write("o.csv", head + rows)
    out, said = convert("o.csv", "--images", "o")
    assert [c["name"] for c in out["categories"]] == ["/m/01yrx", "/m/0bt9lr"] and len(out["images"]) == 1, out
    assert "1 of 2 images are in o; the others are skipped" in said and "hierarchy of Open Images' classes is ignored" in said, said
    write("names.csv", "/m/0bt9lr,Dog\n/m/01yrx,Cat\n")
    out, _ = convert("o.csv", "--images", "o", "--names", "names.csv")
    found = [(name, [round(x, 6) for x in box], crowd) for _, name, box, crowd in boxes(out)]
    assert found == [("Dog", [10, 10, 40, 40], 0), ("Cat", [0, 0, 100, 50], 1)], found
    write("names.csv", "/m/0bt9lr,Dog\n")
    refused("o.csv:3: names.csv does not list /m/01yrx", "o.csv", "--images", "o", "--names", "names.csv")


def check_classes():
    write("c.csv", "fish,1\ndog,0\ncat,2\n")
    out, _ = convert("t/boxes.csv", "--classes", "c.csv")
    listed = [(1, "dog"), (2, "fish"), (3, "cat")]
    assert [(c["id"], c["name"]) for c in out["categories"]] == listed and boxes(out)[1][1] == "cat"
    os.rename("out.json", "train.json")
    again, _ = convert("t/boxes.csv", "--classes", "train.json")
    assert again == out
    write("c.txt", "dog\nfish\n\ncat\n")
    assert boxes(convert("t/boxes.csv", "--classes", "c.txt")[0]) == boxes(out)
    write("c.txt", "dog\nfish\n")
    refused("t/boxes.csv:4: c.txt does not list the class 'cat'", "t/boxes.csv", "--classes", "c.txt")
    write("c.csv", "dog,0\ncat,0\n")
    refused("c.csv:2: the class cat or its id occurs twice", "t/boxes.csv", "--classes", "c.csv")
    write("c.csv", "dog,0\ncat,x\n")
    refused("c.csv:2: not class_name,id: 'cat,x'", "t/boxes.csv", "--classes", "c.csv")
    write("c.json", "[1]")
    refused("c.json lists no classes", "t/boxes.csv", "--classes", "c.json")


def check_bad_tables():
    write("t/bad.png", png(20, 10)[:20])
    write("t/none.jpg", b"\xff\xd8\xff\xda\0\x08")
    write("t/short.jpg", jpeg(40, 30)[:-14])
    for row, text in {
        "two.png,1,2,11,6": ":1: 5 fields, but 6 are needed",
        "two.png,1,2,,6,dog": ":1: a box needs x1, y1, x2, y2 and a class",
        ",1,2,11,6,dog": ":1: the path of the image is empty",
        "two.png,1,2,11,six,dog": ":1: y2 is not a number: 'six'",
        "two.png,1,2,inf,6,dog": ":1: x2 is not a number: 'inf'",
        "two.png,1,2,1,6,dog": ":1: the box is empty: its right end 1 must be above 1",
        "../t2.png,1,2,11,6,dog": ":1: t/../t2.png is not in t: give a folder",
        "gone.png,1,2,11,6,dog": ":1: cannot read image t/gone.png: No such file",
        "bad.png,1,2,11,6,dog": ":1: t/bad.png is neither a JPEG nor a PNG file, or it is damaged",
        "none.jpg,1,2,11,6,dog": "t/none.jpg is neither",
        "short.jpg,1,2,11,6,dog": "t/short.jpg is neither",
        "image,x1,y1,x2,class\n": ":1: the header names no column y2 (y2 or ymax)",
        'two.png,1,2,11,6,"dog': "not a CSV file",
        "": "t/rows.csv names no images",
    }.items():
        write("t/rows.csv", row)
        refused(text, "t/rows.csv")
    refused("cannot use t/nowhere.csv: No such file", "t/nowhere.csv")
    refused("--set and --zero-based are for Pascal VOC", "t/boxes.csv", "--set", "train")
    write("bad.json", "kept")
    done = run("t/boxes.csv", "bad.json")
    assert done.returncode == 1 and "bad.json exists" in done.stderr, done.stderr
    os.remove("bad.json")


def check_clipping():
    write("t/clip.csv", "two.png,-3,2,11,60,dog\ntwo.png,20,2,30,6,dog\ntwo.png,15,2,30,6,dog\n")
    out, said = convert("t/clip.csv")
    assert boxes(out) == [(1, "dog", [0, 2, 11, 8], 0), (1, "dog", [15, 2, 5, 4], 0)], out
    assert "warning: 2 boxes reach out of their image and are clipped, first t/clip.csv:1" in said, said
    assert "warning: 1 boxes lie outside their image and are skipped, first t/clip.csv:2" in said, said


def voc(name, file, w, h, *objects, folder="voc/Annotations"):
    text = "".join(OBJECT.format(*entry) for entry in objects)
    write(f"{folder}/{name}.xml", XML.format(file=file, w=w, h=h, objects=text))


def check_voc():
    write("voc/JPEGImages/b.jpg", jpeg(40, 30))
    write("voc/JPEGImages/a.jpg", jpeg(20, 10))
    voc("b", "b.jpg", 40, 30, ("dog", 0, 1, 1, 40, 30), ("cat", 1, 3, 4, 3, 5))
    voc("a", "C:\\images\\other.png", 20, 10)  # the image is the one with the name of the XML file
    write("voc/ImageSets/Main/train.txt", "b\n")
    out, said = convert("voc")
    assert [(i["id"], i["file_name"]) for i in out["images"]] == [(1, "a.jpg"), (2, "b.jpg")], out
    assert boxes(out) == [(2, "dog", [0, 0, 40, 30], 0), (2, "cat", [2, 3, 1, 2], 1)], out
    assert "2 boxes, 1 of them crowds" in said and "data.train_images = voc/JPEGImages " in said, said
    assert boxes(convert("voc", "--difficult", "keep")[0])[1][3] == 0
    assert [box[1] for box in boxes(convert("voc", "--difficult", "drop")[0])] == ["dog"]
    out, _ = convert("voc", "--set", "train")
    assert [i["file_name"] for i in out["images"]] == ["b.jpg"]
    assert convert("voc", "--set", "voc/ImageSets/Main/train.txt")[0] == out

    voc("z", "z.png", 0, 0, ("dog", 0, 0, 0, 20, 10), folder="flat")  # as some tools write it
    write("flat/z.png", png(20, 10))
    out, said = convert("flat", "--zero-based")
    assert boxes(out) == [(1, "dog", [0, 0, 20, 10], 0)] and "1 XML files do not say the size" in said, said
    _, said = convert("flat")
    assert "1 boxes begin before pixel 1" in said and "first flat/z.xml:4" in said, said


def check_bad_voc():
    voc("a", "a.jpg", 10, 20)
    refused("Annotations/a.xml:3: the size is 10 x 20, but a.jpg has 20 x 10 pixels; turn the pixels", "voc")
    voc("a", "a.jpg", 20, 10, ("dog", 0, 5, 1, 4, 3))
    refused("Annotations/a.xml:4: the box is empty", "voc")
    voc("a", "a.jpg", 20, 10, ("dog", 0, "x", 1, 4, 3))
    refused("Annotations/a.xml:6: <xmin> is not a number: 'x'", "voc")
    voc("a", "b.jpg", 40, 30)
    refused("Annotations/b.xml:3: its image b.jpg also belongs to voc/Annotations/a.xml:3", "voc")
    voc("a", "a.jpg", 20, 10)
    voc("c", "", 20, 10)
    refused("Annotations/c.xml:1: its image is not in voc/JPEGImages: neither <filename> nor c.jpg", "voc")
    for text, said in {
        "<annotation>\n<object>\n": "c.xml:3: not XML: no element found",
        "<other/>": "c.xml:1: no <annotation>",
        '<!DOCTYPE x [<!ENTITY e "x">]><annotation/>': "c.xml:1: entities are not read",
        "<annotation>\n<object/></annotation>": "c.xml:1: its image is not in",
        "<annotation><filename>a.jpg</filename>\n<object/></annotation>": "c.xml:2: an object needs <name>",
    }.items():
        write("voc/Annotations/c.xml", text)
        refused(said, "voc")
    write("voc/ImageSets/Main/dog_train.txt", "a  1\nb -1\n")
    refused("dog_train.txt:1: a list of one class", "voc", "--set", "dog_train")
    write("voc/ImageSets/Main/twice.txt", "a\nb\na\n")
    refused("twice.txt: 1 names occur twice", "voc", "--set", "twice")
    refused("cannot use voc/ImageSets/Main/no.txt: No such file", "voc", "--set", "no")
    os.mkdir("empty")
    refused("empty names no XML files", "empty")


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    for check in (check_table, check_classes, check_bad_tables, check_clipping, check_voc, check_bad_voc, check_yolo, check_kitti, check_open_images):
        check()
    os.chdir("/")
