"""`dtrain shard` of COCO files: the members, their order and what describes them; `dtrain verify` on
the result and on planted faults; what is refused."""

import copy
import json
import os
import shutil
import sys
import tarfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from made_files import members_of, png, tar_of  # noqa: E402
from scratch import content, write  # noqa: E402
from scratch import said as run  # noqa: E402

CATEGORIES = [{"id": 90, "name": "brush", "supercategory": "x"}, {"id": 3, "name": "ball"}]


def box(number, image, category, *bbox, **more):
    return {"id": number, "image_id": image, "category_id": category, "bbox": list(bbox), "area": 7.25, **more}


def make_coco():
    """Images and boxes not in the order of ids; one image without boxes, one crowd, one PNG file."""
    for size in (40, 56):
        run("demo-data", f"demo{size}", "--images-per-class", 2, "--size", size)
    files = {}
    for i, name in enumerate(("zebra.rf.1a2b.jpg", "sub/b.jpeg", "c.JPG", "d.jpg")):
        size = 40 if i % 2 else 56
        label = sorted(os.listdir(f"demo{size}"))[i]
        files[name] = content(f"demo{size}", label, sorted(os.listdir(f"demo{size}/{label}"))[0])
        write(f"data/x/{name}", files[name])
    write("data/x/e.png", png(30, 20, (b"\0" + b"\x40\x80\xc0" * 30) * 20))
    sizes = {"zebra.rf.1a2b.jpg": (56, 56), "sub/b.jpeg": (40, 40), "c.JPG": (56, 56), "d.jpg": (40, 40), "e.png": (30, 20)}
    ids = {"zebra.rf.1a2b.jpg": 12, "sub/b.jpeg": 7, "c.JPG": 10**12, "d.jpg": 1, "e.png": 300}
    images = [{"id": ids[n], "file_name": n, "width": w, "height": h, "license": 1} for n, (w, h) in sizes.items()]
    boxes = [
        box(5, 12, 90, 1.5, 2, 10.1, 20, iscrowd=0, segmentation=[[1, 2, 3, 4, 5, 6]]),
        box(4, 300, 3, 0, 0, 30, 20, iscrowd=1, segmentation={"counts": [1, 2], "size": [20, 30]}),
        box(9, 7, 3, 0.1, 0.2, 0.3, 0.4),
        box(2, 12, 3, 5, 5, 1, 1),
        box(6, 10**12, 90, 5, 5, 1, 1),
    ]
    coco = {"info": {}, "images": images, "annotations": boxes, "categories": CATEGORIES}
    write("data/annotations/instances_x.json", coco)
    return coco, files


def expected(coco):
    """Key and content of the .json members in the order of ids."""
    for image in sorted(coco["images"], key=lambda image: image["id"]):
        found = [
            {key: {"iscrowd": 0, **a}[key] for key in ("id", "category_id", "bbox", "area", "iscrowd")}
            for a in coco["annotations"]
            if a["image_id"] == image["id"]
        ]
        key = os.path.splitext(os.path.basename(image["file_name"]))[0].replace(".", "_")
        yield key, {**{k: image[k] for k in ("id", "file_name", "width", "height")}, "annotations": found}


def check_pack(coco, files):
    out = run("shard", "data/annotations/instances_x.json", "boxes", "--per-shard", 2, "--threads", 1)
    assert "packed 5 images with boxes of 2 classes" in out and "4 unchanged, 1 converted" in out, out
    run("shard", "data/annotations/instances_x.json", "again", "--per-shard", 2, "--threads", 3, "--seed", 9)
    for name in os.listdir("boxes"):
        assert content("boxes", name) == content("again", name), name
    members = [member for i in range(3) for member in members_of(f"boxes/train-{i:04d}.tar")]
    want = list(expected(coco))
    assert [name for name, _ in members] == [f"{key}.{end}" for key, _ in want for end in ("json", "jpg")], members
    assert [json.loads(data) for name, data in members if name.endswith("json")] == [image for _, image in want]
    images = dict(member for member in members if member[0].endswith("jpg"))
    for name, data in files.items():
        key = os.path.splitext(os.path.basename(name))[0].replace(".", "_")
        assert images[f"{key}.jpg"] == data, name
    assert json.loads(content("boxes/categories.json")) == [{"id": 3, "name": "ball"}, {"id": 90, "name": "brush"}]
    assert content("boxes/classes.txt") == b"ball\nbrush\n"
    assert json.loads(content("boxes/_info.json"))["splits"]["train"]["shard_lengths"] == [2, 2, 1]
    assert content("boxes/train-0002.idx").startswith(b"v1.2 1\njson 512 ")
    shutil.copytree("data/x", "elsewhere")
    run("shard", "data/annotations/instances_x.json", "boxes", "--prefix", "val", "--image-folder", "elsewhere")
    assert "4 shards, 10 samples" in run("verify", "boxes") and "0 faults" in run("verify", "boxes")
    assert "0 faults" in run("verify", "boxes/val-0000.tar")


def check_refused(coco):
    def refused(code, text, *args, **changes):
        write("data/annotations/instances_x.json", {**coco, **changes})
        out = run("shard", "data/annotations/instances_x.json", *(args or ["none"]), code=code)
        assert text in out and out.count("error") == 1, out
        assert not os.path.exists("none") or os.listdir("none") == [], os.listdir("none")

    images = coco["images"]
    twice = images + [{**images[1], "id": 70, "file_name": "other/b.png"}]
    refused(65, "sub/b.jpeg and other/b.png would have the same key b", images=twice)
    long = [{**images[1], "file_name": f"{'n' * 96}.jpg"}]
    refused(65, "must have 1 to 95 bytes", images=long, annotations=[])
    wider = [{**images[0], "width": 57}] + images[1:]
    refused(65, "it has 56 x 56 pixels, but its annotations say 57 x 56", images=wider)
    refused(66, "x/gone.jpg", images=images + [{**images[1], "id": 70, "file_name": "gone.jpg"}])
    refused(64, "--resize-short does not go with boxes", "none", "--resize-short", 64)
    refused(66, "which is no folder: say where they are with --image-folder", "none", "--image-folder", "nowhere")
    others = [{**CATEGORIES[0], "name": "broom"}, CATEGORIES[1]]
    refused(65, "categories.json", "boxes", "--prefix", "test", categories=others)
    refused(65, "x.json:1:", annotations=[box(1, 7, 4, 0, 0, 1, 1)])
    bare = [{**coco["annotations"][0], "bbox": None, "id": 70}, *coco["annotations"]]
    write("data/annotations/instances_x.json", {**coco, "images": wider, "annotations": bare})
    verify = "verify", "data/annotations/instances_x.json", "--image-folder", "data/x"
    for words in ("shard", "data/annotations/instances_x.json", "none"), verify:
        out = run(*words, code=65)
        assert "1 of 11 images and annotations cannot be used" in out and "annotations.bbox: expected an array" in out, out
    allowed = "--set", "data.max_bad_fraction=0.1"
    out = run(*verify, *allowed, code=65)
    assert "zebra" in out and "1 of the 5 images" in out and "annotations cannot be used and are skipped" in out, out
    out = run("shard", "data/annotations/instances_x.json", "skipped", "--skip-bad", *allowed)
    assert "1 of 11 images and annotations cannot be used and are skipped" in out, out
    assert "1 bad ones skipped" in out and "4 images with boxes" in out and "zebra.rf.1a2b.jpg is skipped" in out, out
    assert "goes with a .json file" in run("shard", "demo40", "none", "--image-folder", "x", code=64)
    for source in "boxes", "boxes/train-{0000..0002}.tar":
        assert "are not packed again" in run("shard", source, "none", code=65)
    assert "the shards in boxes have boxes, but demo40 has labels" in run(
        "shard", "demo40", "boxes", "--prefix", "test", code=65
    )
    run("shard", "demo40", "labels")
    write("data/annotations/instances_x.json", coco)
    assert "labels have labels, but data" in run(
        "shard", "data/annotations/instances_x.json", "labels", "--prefix", "test", code=65
    )


def check_faults(coco):
    """Each fault is one line of verify."""
    good = [(f"{key}.{end}", data) for key, data in expected(coco) for end in ("json", "jpg")]
    files = dict(members_of("boxes/val-0000.tar"))

    def faults(text, change):
        shutil.rmtree("faulty", ignore_errors=True)
        os.mkdir("faulty")
        shutil.copy("boxes/categories.json", "faulty")
        samples = [[name, copy.deepcopy(data) if name.endswith("json") else files[name]] for name, data in good]
        change(samples)
        members = [(name, data if isinstance(data, bytes) else json.dumps(data).encode()) for name, data in samples]
        tar_of("faulty/x-0.tar", members, form=tarfile.USTAR_FORMAT)
        out = run("verify", "faulty", code=65)
        assert text in out and "1 faults" in out, (text, out)

    def set_box(**changes):
        return lambda samples: samples[2][1]["annotations"][0].update(changes)

    def set_image(**changes):
        return lambda samples: samples[2][1].update(changes)

    faults("box 9 in member b.json has the category 4, which categories.json does not list", set_box(category_id=4))
    faults("member b.jpg: it has 40 x 40 pixels, but its annotations say 40 x 41", set_image(height=41))
    faults('member b.json of shard faulty/x-0.tar:1:1: the image has no "width"', lambda s: s[2][1].pop("width"))
    faults("b.json of shard faulty/x-0.tar:1:2: ", lambda s: s[2].__setitem__(1, b"{nothing"))
    faults("sample b has no .json member", lambda s: s.pop(2))
    faults("sample b has no .json member: shards for a classifier do not train a detector", lambda s: s[2].__setitem__(0, "b.cls"))
    faults("sample b has no .jpg", lambda s: s.pop(3))
    faults("member b.json is a second .json member of its sample", lambda s: s.insert(3, list(s[2])))
    faults("the image id 1 occurs twice", set_image(id=1))
    write("faulty/categories.json", [{"id": 3}])
    assert 'categories.json:1:2: the category has no "name"' in run("verify", "faulty", code=65)


made, jpegs = make_coco()
check_pack(made, jpegs)
check_refused(made)
check_faults(made)
