"""configs/cifar10_resnet20.json in PyTorch: the yardstick for dtrain's accuracy.

    python3 tests/interop/cifar_torch.py SHARD_FOLDER [EPOCHS]

Reads the same JPEG shards; SGD 0.9 Nesterov, batch 128, lr 0.2 with one epoch of warm-up and then a
cosine to 0, weight decay 5e-4 (not on batch norm and bias), pad-4 crop and flip."""

import glob
import io
import os
import sys
import time

from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from torch_rig import np, sgd, torch, warm_cosine  # noqa: E402
from cifar_resnet import CifarResNet  # noqa: E402
from made_files import members_of  # noqa: E402

MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(1, 3, 1, 1)
STD = torch.tensor([0.2470, 0.2435, 0.2616]).view(1, 3, 1, 1)
BATCH, LR, WARMUP = 128, 0.2, 1


def load(pattern):
    images, labels = [], []
    for path in sorted(glob.glob(pattern)):
        for name, data in members_of(path):
            if name.endswith(".cls"):
                labels.append(int(data))
            else:
                images.append(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
    return np.stack(images), np.array(labels)


def normalise(pixels):
    x = torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float() / 255
    return ((x - MEAN) / STD).contiguous(memory_format=torch.channels_last)


def augment(pixels, rng):
    out = np.empty_like(pixels)
    padded = np.pad(pixels, ((0, 0), (4, 4), (4, 4), (0, 0)))
    for i in range(len(pixels)):
        y, x = rng.integers(0, 9, 2)
        image = padded[i, y : y + 32, x : x + 32]
        out[i] = image[:, ::-1] if rng.integers(0, 2) else image
    return out


def evaluate(model, images, labels):
    model.eval()
    correct = 0
    with torch.no_grad():
        for i in range(0, len(images), 500):
            found = model(normalise(images[i : i + 500])).argmax(1).numpy()
            correct += (found == labels[i : i + 500]).sum()
    model.train()
    return 100 * correct / len(images)


def main():
    folder, epochs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    torch.set_num_threads(2)
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    train, train_labels = load(os.path.join(folder, "cifar10-train-*.tar"))
    test, test_labels = load(os.path.join(folder, "cifar10-test-*.tar"))
    model = CifarResNet().to(memory_format=torch.channels_last)
    optimizer = sgd(list(model.parameters()), LR, 5e-4, nesterov=True)
    per_epoch, step = len(train) // BATCH, 0
    for epoch in range(epochs):
        start, order = time.time(), rng.permutation(len(train))
        for i in range(per_epoch):
            for group in optimizer.param_groups:
                group["lr"] = warm_cosine(LR, step, WARMUP * per_epoch, epochs * per_epoch)
            ids = order[i * BATCH : (i + 1) * BATCH]
            output = model(normalise(augment(train[ids], rng)))
            loss = torch.nn.functional.cross_entropy(output, torch.from_numpy(train_labels[ids]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        seconds = time.time() - start
        print(
            f"epoch {epoch + 1}: top1 {evaluate(model, test, test_labels):.2f} "
            f"({per_epoch * BATCH / seconds:.0f} images/s)",
            flush=True,
        )


main()
