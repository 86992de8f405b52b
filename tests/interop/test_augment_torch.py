"""Colour jitter, erasing, mixup and CutMix: pixels against Pillow for the same factors, and what is
drawn against torchvision's RandomErasing and timm's rectangles (written out here).
Label: numeric."""

import os
import subprocess
import sys

try:
    import numpy as np
    import torch
    import torchvision.transforms as transforms
    import torchvision.transforms.functional as functional
    from PIL import Image
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOOL = os.path.join(os.path.dirname(sys.argv[1]), "tests", "augment_tool")
ERASE = (124, 116, 104)
ADJUST = [functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation]
LIMIT = 1


class Tool:
    def __init__(self):
        self.process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, command, rows):
        self.process.stdin.write(command.encode() + b"\n" + rows.tobytes())
        self.process.stdin.flush()
        drawn = [float(x) for x in self.process.stdout.readline().split()]
        data = self.process.stdout.read(rows.size)
        assert len(data) == rows.size, f"augment_tool gave up at: {command}"
        return drawn, np.frombuffer(data, np.uint8).reshape(rows.shape)


def picture(rng, size):
    """Smooth colours with noise of a random strength."""
    y, x = np.mgrid[0:size, 0:size] / size
    waves = [np.sin(6 * rng.normal() * x + 6 * rng.normal() * y + 6 * rng.random()) for _ in "rgb"]
    noise = rng.normal(size=(size, size, 3)) * 100 * rng.random()
    pixels = 128 + 127 * np.stack(waves, axis=2) + noise
    return np.clip(pixels, 0, 255).astype(np.uint8)


def check_jitter(tool, rng):
    worst, n_off, n = 0, 0, 0
    for i in range(200):
        size = (224, 32, 17)[i % 3]
        row = picture(rng, size)
        drawn, ours = tool.ask(f"recolour {size} {(0.4, 1.0)[i % 2]} {i % 4 / 3} {i}", row)
        theirs = Image.fromarray(row)
        for colour, factor in zip(drawn[:3], drawn[3:6]):
            theirs = ADJUST[int(colour)](theirs, factor)
        x, y, w, h = (int(v) for v in drawn[6:])
        theirs = np.array(theirs)
        theirs[y : y + h, x : x + w] = ERASE
        off = np.abs(ours.astype(int) - theirs.astype(int))
        worst, n_off, n = max(worst, int(off.max())), n_off + int((off > 0).sum()), n + off.size
    print(f"jitter and erasing, 200 images: worst byte off by {worst}, {n_off} of {n} bytes differ")
    assert worst <= LIMIT


def compare_means(what, ours, theirs):
    """Means and variances agree within 4.5 standard errors."""
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    for name, a, b in ((what, ours, theirs), (what + ", squared", ours**2, theirs**2)):
        error = np.sqrt(a.var() / len(a) + b.var() / len(b))
        distance = abs(a.mean() - b.mean()) / max(error, 1e-12)
        print(f"{name:28} {a.mean():10.4f} {b.mean():10.4f}   {distance:.1f} standard errors")
        assert distance < 4.5, name


def check_erasing(tool):
    size, n = 32, 5000
    row = np.zeros((size, size, 3), np.uint8)
    ours = [tool.ask(f"recolour {size} 0 1 {i}", row)[0][6:] for i in range(n)]
    image, theirs = torch.zeros(3, size, size), []
    for _ in range(n):
        params = transforms.RandomErasing.get_params(image, (0.02, 0.33), (0.3, 3.3), [0.0])
        theirs.append((params[1], params[0], params[3], params[2]))
    for what, a, b in zip("xywh", zip(*ours), zip(*theirs)):
        compare_means("erased " + what, a, b)
    area = [w * h for _, _, w, h in ours], [w * h for _, _, w, h in theirs]
    compare_means("erased area", *area)


def timm_share(rng, alpha, size):
    """What timm's CutMix leaves of an image, or of its partner where that is more."""
    ratio = np.sqrt(1 - rng.beta(alpha, alpha))
    cut = int(size * ratio)
    cy, cx = rng.integers(0, size, 2)
    yl, yh = np.clip([cy - cut // 2, cy + cut // 2], 0, size)
    xl, xh = np.clip([cx - cut // 2, cx + cut // 2], 0, size)
    share = 1 - (yh - yl) * (xh - xl) / size**2
    return max(share, 1 - share)


def check_shares(tool, rng):
    size, n = 32, 5000
    rows = np.zeros((2, size, size, 3), np.uint8)
    for alpha in (0.2, 1.0):
        ours = [tool.ask(f"pair {size} {alpha} 0 {i}", rows)[0][0] for i in range(n)]
        draws = rng.beta(alpha, alpha, n)
        compare_means(f"mixup share, alpha {alpha}", ours, np.maximum(draws, 1 - draws))
        ours = [tool.ask(f"pair {size} 0 {alpha} {i}", rows)[0][0] for i in range(n)]
        theirs = [timm_share(rng, alpha, size) for _ in range(n)]
        compare_means(f"CutMix share, alpha {alpha}", ours, theirs)


def check_mixup(tool, rng):
    for i in range(20):
        rows = np.stack([picture(rng, 64), picture(rng, 64)])
        (share,), ours = tool.ask(f"pair 64 1 0 {i}", rows)
        exact = share * rows.astype(float) + (1 - share) * rows[::-1].astype(float)
        assert np.abs(ours - exact).max() <= 0.5


def main():
    if not os.path.exists(TOOL):
        print(f"skipped: no {TOOL}")
        return 77
    torch.manual_seed(3)
    tool, rng = Tool(), np.random.default_rng(7)
    check_jitter(tool, rng)
    check_erasing(tool)
    check_shares(tool, rng)
    check_mixup(tool, rng)
    tool.process.stdin.close()
    assert tool.process.wait() == 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
