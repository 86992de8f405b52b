"""What the readers of a page are assumed to have, small: assumed.py photos|boxes|voc|resnet18 ...

Called by the comments "before:" of the pages, in the folder where their commands run."""

import json
import os
import shutil
import subprocess
import sys

SIZE, CLASSES = 64, ("cell", "platelet")


def photos():
    """photos/CLASS/*.jpg, and photo.jpg"""
    command = ["build/dtrain", "demo-data", "photos", "--images-per-class", "12", "--size", str(SIZE)]
    subprocess.run(command, check=True)
    shutil.copy(some_photos()[0], "photo.jpg")


def some_photos():
    found = [os.path.join(folder, name) for folder, _, names in os.walk("photos") for name in names]
    return sorted(name for name in found if name.endswith(".jpg"))


def two_classes():
    """data/two_classes/{train,val}/{healthy,ill}, and new/"""
    photos()
    kinds = sorted(os.listdir("photos"))
    for part, images in (("train", slice(8)), ("val", slice(8, 12))):
        for name, kind in zip(("healthy", "ill"), kinds):
            target = f"data/two_classes/{part}/{name}"
            os.makedirs(target)
            for image in sorted(os.listdir(f"photos/{kind}"))[images]:
                shutil.copy(f"photos/{kind}/{image}", target)
    os.mkdir("new")
    for i, image in enumerate(some_photos()[-2:]):
        shutil.copy(image, f"new/000{i + 1}.jpg")


def resnet18():
    """resnet18.pth, as torchvision saves it, but with random weights"""
    try:
        import torch
        import torchvision
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(77)

    torch.save(torchvision.models.resnet18().state_dict(), "resnet18.pth")


def readme():
    """scripts/quickstart.sh with few images and without setup; photos/ of two classes, and new/"""
    small = ("images-per-class 1000/images-per-class 40", "images-per-class 200/images-per-class 10")
    small += ("per-shard 2500/per-shard 100", "per-shard 1000/per-shard 50", "> 90/>= 0")
    edits = [*(f"s/{edit}/" for edit in small), "/setup.sh/d"]
    subprocess.run(["sed", "-i", "; ".join(edits), "scripts/quickstart.sh"], check=True)
    subprocess.run(["build/dtrain", "demo-data", "all", "--images-per-class", "40", "--size", str(SIZE)], check=True)
    for kind in ("circle", "ring"):
        shutil.copytree(f"all/{kind}", f"photos/{kind}")
    shutil.copytree("photos/ring", "new")


def box(i):
    return 4 + i % 20, 6 + i % 16, 34 + i % 24, 40 + i % 20


def boxes():
    """mine/{train,val}.csv with their images and classes; data/bccd in COCO's format"""
    photos()
    os.makedirs("data/bccd/annotations", exist_ok=True)
    for part, images in (("train", some_photos()[:8]), ("val", some_photos()[8:12])):
        os.makedirs(f"data/bccd/{part}")
        os.makedirs(f"mine/{part}")
        coco = {"images": [], "annotations": [], "categories": []}
        coco["categories"] = [{"id": k + 1, "name": name} for k, name in enumerate(CLASSES)]
        with open(f"mine/{part}.csv", "w") as table:
            for i, image in enumerate(images):
                x1, y1, x2, y2 = box(i)
                for folder in (f"data/bccd/{part}", f"mine/{part}"):
                    shutil.copy(image, f"{folder}/{i}.jpg")
                table.write(f"{part}/{i}.jpg,{x1},{y1},{x2},{y2},{CLASSES[i % 2]}\n")
                coco["images"].append({"id": i, "file_name": f"{i}.jpg", "width": SIZE, "height": SIZE})
                place = {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1), "iscrowd": 0}
                coco["annotations"].append({"id": i, "image_id": i, "category_id": i % 2 + 1, **place})
        with open(f"data/bccd/annotations/instances_{part}.json", "w") as file:
            json.dump(coco, file)
    with open("mine/classes.csv", "w") as file:
        file.writelines(f"{name},{k}\n" for k, name in enumerate(CLASSES))


def voc():
    """VOCdevkit/VOC2007, and the tables of boxes() here"""
    boxes()
    shutil.copytree("mine", ".", dirs_exist_ok=True)
    top = "VOCdevkit/VOC2007"
    for name in ("Annotations", "JPEGImages", "ImageSets/Main"):
        os.makedirs(f"{top}/{name}")
    for i, image in enumerate(some_photos()[:8]):
        shutil.copy(image, f"{top}/JPEGImages/{i}.jpg")
        corners = "".join(f"<{k}>{v}</{k}>" for k, v in zip(("xmin", "ymin", "xmax", "ymax"), box(i)))
        size = f"<size><width>{SIZE}</width><height>{SIZE}</height><depth>3</depth></size>"
        thing = f"<object><name>{CLASSES[i % 2]}</name><bndbox>{corners}</bndbox></object>"
        with open(f"{top}/Annotations/{i}.xml", "w") as file:
            file.write(f"<annotation><filename>{i}.jpg</filename>{size}{thing}</annotation>")
    for part, numbers in (("train", range(4)), ("val", range(4, 8))):
        with open(f"{top}/ImageSets/Main/{part}.txt", "w") as file:
            file.writelines(f"{i}\n" for i in numbers)


for what in sys.argv[1:]:
    globals()[what]()
