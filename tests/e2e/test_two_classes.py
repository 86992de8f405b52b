"""The story of configs/finetune.md: two folders of grey images, ten times more of one than of the
other, and a ResNet-18 in PyTorch's file format. Convert it, fine-tune it on two ranks with frozen
layers, balanced weights and early stopping on AUC, evaluate it on 1, 2 and 3 ranks, and compare its
predictions with PyTorch's for the same weights.

    python3 test_two_classes.py BUILD/dtrain"""

import csv
import json
import math
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import python_with  # noqa: E402

python_with.use_test_python()
try:
    import torch
    import torchvision
    from PIL import Image
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from scratch import TESTS, content, events, np, run, safetensors_np, sets  # noqa: E402

ROOT = os.path.join(TESTS, "..")
torch.set_num_threads(1)
SIZE = 64
CLASSES = ["clear", "spot"]
COUNTS = {"train": (60, 12), "val": (36, 9)}


def draw(rng, label):
    """Grey clouds; of class 1 with a bright spot."""
    y, x = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    image = 90 + 40 * np.sin(2 * np.pi * (x * rng.uniform(0, 2) + y * rng.uniform(0, 2) + rng.random()))
    image += rng.normal(0, 8, image.shape)
    if label == 1:
        cx, cy, r = rng.uniform(0.3, 0.7), rng.uniform(0.3, 0.7), rng.uniform(0.1, 0.15)
        image += 110 * (((x - cx) ** 2 + (y - cy) ** 2) < r * r)
    return Image.fromarray(image.clip(0, 255).astype(np.uint8))


def write_images(folder):
    rng = np.random.default_rng(7)
    for part, counts in COUNTS.items():
        for label, name in enumerate(CLASSES):
            os.makedirs(os.path.join(folder, part, name))
            for i in range(counts[label]):
                image = draw(rng, label)
                path = os.path.join(folder, part, name, f"{i:03}")
                if i % 2:
                    image.save(path + ".jpg", quality=95)
                else:
                    image.save(path + ".png")


def convert(weights):
    """A file as a training script leaves it: DataParallel's prefix, and more than the weights."""
    torch.manual_seed(3)
    model = torchvision.models.resnet18()
    state = {"module." + name: value for name, value in model.state_dict().items()}
    torch.save({"epoch": 12, "state_dict": state, "best": 71}, "resnet18.pth")
    done = run("--config", CONFIG, "--out", "no", *sets(DATA, "model.initial_checkpoint=resnet18.pth"), code=65)
    assert "PyTorch" in done.stderr and "scripts/to_safetensors.py" in done.stderr, done.stderr
    script = os.path.join(ROOT, "scripts", "to_safetensors.py")
    said = subprocess.run(
        ["/usr/bin/python3", script, "resnet18.pth", weights], capture_output=True, text=True, check=True
    ).stdout
    assert "omitted: epoch, best" in said, said
    return model


CONFIG = os.path.join(ROOT, "configs", "finetune_two_classes.json")
DATA = {"data.train": "xrays/train", "data.val": "xrays/val"}
# Small enough for a test; no resizing, so that PyTorch gets the same pixels from Pillow.
SMALL = {
    "model.image_size": SIZE,
    "data.val_resize": SIZE,
    "data.workers": 1,
    "device.kind": "cpu",
    "device.threads": 1,
    "train.global_batch_size": 12,
    "train.deterministic": "true",
    "train.epochs": 20,
    "early_stop.patience": 3,
    "checkpoint.keep": 1,
    "eval.batch_size_per_rank": 9,
}


def finetune(weights):
    options = sets(DATA, SMALL, f"model.initial_checkpoint={weights}")
    done = run("--config", CONFIG, "--out", "run", *options, ranks=2)
    for text in (
        "72 training and 45 validation images",
        "fc new (1000 -> 2 classes)",
        "frozen",
        "; best auc ",
    ):
        assert text in done.stderr, (text, done.stderr)
    (end,) = events("run", "run_end")
    assert end["best_metric"] == "auc" and end["best"] > 0.9, end
    print(f"{end['steps']} steps, {end['reason']}; best auc {end['best']:.4f} in epoch {end['best_epoch']}")
    assert "no better auc in 3 evaluations" in end["reason"], end
    assert os.path.samefile("run/model.safetensors", "run/checkpoints/best/model.safetensors"), end
    assert os.path.samefile(end["best_path"], "run/checkpoints/best"), end
    evaluations = events("run", "eval")
    assert max(event["auc"] for event in evaluations) == end["best"]
    assert all("top5" not in event for event in evaluations)


def check_frozen(model, trained):
    """Bit-unchanged, including running statistics; the rest has moved."""
    with open(CONFIG, encoding="utf-8") as file:
        frozen = tuple(name + "." for name in json.load(file)["optim"]["freeze"])
    before = model.state_dict()
    n_frozen = 0
    for name, value in trained.items():
        if name.startswith("fc.") or name.endswith("num_batches_tracked"):
            continue
        same = np.array_equal(before[name].numpy(), value)
        assert same == name.startswith(frozen), name
        n_frozen += same
    assert n_frozen > 10


def evaluate():
    """The same files, byte by byte, on any number of ranks."""
    contents = []
    for ranks in (1, 3):
        done = run("eval", "run", "--per-class", "--predictions", "p.csv", "--confusion", "c.csv", ranks=ranks)
        contents.append((done.stdout, content("p.csv"), content("c.csv")))
    assert contents[0] == contents[1], contents
    run("eval", "run", "--confusion", "c.svg")
    table = contents[0][0]
    assert "balanced accuracy" in table and "spot" in table and "sensitivity" in table, table
    with open("p.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def compare_with_torch(trained, rows):
    model = torchvision.models.resnet18(num_classes=2)
    state = {name: torch.from_numpy(np.array(value)) for name, value in trained.items()}
    model.load_state_dict(state, strict=True)
    model.eval()
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    largest = 0
    files = []
    for row in rows:
        image = torch.from_numpy(np.array(Image.open(row["file"]).convert("RGB"))).permute(2, 0, 1)
        with torch.no_grad():
            logits = model(((image / 255 - mean) / std)[None])[0]
        theirs = torch.softmax(logits.double(), 0)
        assert CLASSES[int(logits.argmax())] == row["prediction"], (row, theirs)
        assert os.path.basename(os.path.dirname(row["file"])) == row["label"]
        largest = max(largest, *(abs(float(row[f"p_{c}"]) - float(theirs[i])) for i, c in enumerate(CLASSES)))
        files.append(row["file"])
    assert len(files) == len(set(files)) == sum(COUNTS["val"]) and files == sorted(files)
    print(f"largest difference of a probability to PyTorch: {largest:.1e}")
    assert largest < 1e-4


def predict(rows):
    row = rows[-1]
    said = run("predict", "run", row["file"]).stdout.split()
    assert said[0] == row["prediction"], (said, row)
    assert math.isclose(float(said[1]), float(row[f"p_{row['prediction']}"]), abs_tol=1e-3), (said, row)


def main():
    write_images("xrays")
    model = convert("resnet18.safetensors")
    finetune("resnet18.safetensors")
    trained = safetensors_np.load("run/checkpoints/best/model.safetensors")
    check_frozen(model, trained)
    rows = evaluate()
    compare_with_torch(trained, rows)
    predict(rows)


main()
