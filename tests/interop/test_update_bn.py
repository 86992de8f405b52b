"""dtrain average --recompute-bn against torch.optim.swa_utils.update_bn: one batch of the same images,
read from PNG files without augmentation.

    python3 test_update_bn.py BUILD/dtrain"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from torch_rig import normalise, np, safetensors_np, save_model, torch  # noqa: E402
from scratch import run, sets, write_config  # noqa: E402
import torchvision  # noqa: E402
from PIL import Image  # noqa: E402

N, SIZE, BOUND = 16, 32, 1e-5
torch.manual_seed(1)
torch.set_num_threads(1)


def write_images():
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (N, SIZE, SIZE, 3), np.uint8)
    for i, image in enumerate(pixels):
        os.makedirs(f"images/{i % 2}", exist_ok=True)
        Image.fromarray(image).save(f"images/{i % 2}/{i:02d}.png")
    return normalise(pixels, torch.float64)


def average(batch):
    changes = ["model.name=resnet18", f"model.image_size={SIZE}", "model.num_classes=2"]
    changes += ["data.augment=none", f"data.val_resize={SIZE}", "data.source=folder", "data.train=images"]
    changes += [f"train.global_batch_size={batch}", "device.kind=cpu", "device.threads=1", "data.workers=1"]
    run("average", "0.safetensors", "1.safetensors", "-o", "mean.safetensors", "--recompute-bn",
        "--config", "config.json", *sets(*changes))
    return safetensors_np.load("mean.safetensors")


def main():
    images = write_images()
    write_config({})
    models = [torchvision.models.resnet18(num_classes=2) for _ in range(2)]
    for i, model in enumerate(models):
        save_model(f"{i}.safetensors", model)
    mean = torchvision.models.resnet18(num_classes=2)
    mean.load_state_dict({name: sum(model.state_dict()[name] for model in models) / 2
                          if value.is_floating_point() else value
                          for name, value in mean.state_dict().items()})
    torch.optim.swa_utils.update_bn([images], mean.double())
    got, worst = average(N), 0
    for name, value in mean.state_dict().items():
        want = value.numpy().astype(np.float64)
        error = np.linalg.norm(got[name] - want) / max(np.linalg.norm(want), 1e-30)
        worst = max(worst, error)
        assert error < BOUND, (name, error)
    print(f"largest relative difference {worst:.2g}")


main()
