"""`dtrain samples`: the cells of the sheet are the loader's pixels, the text below them names the
class, and wrong requests have their exit codes. Layout: src/cli/cmd_samples.c."""

import glob
import os
import sys

from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import np, run, write_config  # noqa: E402

SIZE, ZOOM, MARGIN, LINE = 32, 6, 14, 20
SIDE = SIZE * ZOOM


def samples(*args, code=0, text="", ranks=1):
    done = run("samples", *args, code=code, ranks=ranks)
    assert text in done.said, (args, done.said)


def load(path):
    return np.asarray(Image.open(path).convert("RGB"))


def cells(sheet, columns, n, lines):
    """Pixels and text of each sample."""
    for i in range(n):
        x = MARGIN + i % columns * (SIDE + MARGIN)
        y = MARGIN + i // columns * (SIDE + lines * LINE + MARGIN)
        image = sheet[y : y + SIDE, x : x + SIDE]
        assert (image == image[::ZOOM, ::ZOOM].repeat(ZOOM, 0).repeat(ZOOM, 1)).all(), i
        yield image[::ZOOM, ::ZOOM], sheet[y + SIDE : y + SIDE + lines * LINE, x : x + SIDE]


def check_plain(config, files):
    """Without augmentation a cell is one of the files; text depends on the class alone."""
    samples("--config", config, "-n", 24, "-o", "a.png", text="a.png: 24 of 30 training images of 10")
    sheet = load("a.png")
    assert sheet.shape == (MARGIN + 3 * (SIDE + LINE + MARGIN), MARGIN + 8 * (SIDE + MARGIN), 3)
    seen, texts = set(), {}
    for pixels, text in cells(sheet, 8, 24, 1):
        path = files[pixels.tobytes()]
        assert path not in seen, path
        seen.add(path)
        assert text.min() < 100, f"no text below {path}"
        texts.setdefault(os.path.dirname(path), set()).add(text.tobytes())
    assert len(texts) > 5 and all(len(of_class) == 1 for of_class in texts.values()), texts.keys()
    assert len(set.union(*texts.values())) == len(texts), "classes share a text"
    return sheet


def check_mixed(config, files):
    """CutMix: every pixel comes from one of two files, and images whose share is below 1 have two
    lines of text."""
    sets = ["--set", "data.cutmix=1"]
    samples("--config", config, "-n", 9, "-o", "m.png", *sets, text="m.png: 10 of 30")
    sources = [np.frombuffer(pixels, np.uint8).reshape(SIZE, SIZE, 3) for pixels in files]
    n_two = 0
    for pixels, text in cells(load("m.png"), 5, 10, 2):
        shares = sorted((np.all(pixels == s, 2).mean() for s in sources), reverse=True)
        assert shares[0] + shares[1] >= 1, shares[:3]
        two = text[LINE:].min() < 100
        assert not two or shares[0] < 0.995, shares[:3]
        n_two += two
    assert n_two >= 4, n_two


def check_refused(config):
    samples(code=64, text="dtrain samples needs --config FILE")
    samples("--config", config, "-n", 0, code=64, text="--count")
    samples("--config", config, "-n", code=64, text="-n requires a value")
    samples("--config", config, "-x", code=64, text="-x")
    samples("--config", config, "-o", "a.gif", code=64, text="must end in .png or .jpg")
    samples("--config", config, "-o", "nowhere/a.png", code=73, text="nowhere")
    samples("--config", config, "--set", "data.train=nowhere", code=66, text="nowhere")
    samples(
        "--config", config, "-n", 1024, "--set", "model.image_size=2048", "--set",
        "data.val_resize=0", "--set", "data.source=synthetic", "--set", "data.train=", code=64, text="show fewer images",
    )  # fmt: skip
    assert sorted(glob.glob("*.gif") + glob.glob("nowhere*")) == []


run("demo-data", "train", "--images-per-class", 3, "--size", SIZE)
files = {load(path).tobytes(): path for path in glob.glob("train/*/*.jpg")}
assert len(files) == 30
write_config({"model": {"image_size": SIZE}, "data": {"train": "train", "augment": "none", "val_resize": SIZE}})
sheet = check_plain("config.json", files)
samples("--config", "config.json", "-n", 24, "-o", "two.png", ranks=2)
assert (load("two.png") == sheet).all(), "the ranks draw something else"
samples("--config", "config.json", "--count", 24, "--output", "a.jpg")
assert np.abs(load("a.jpg").astype(int) - sheet).mean() < 8
samples("--config", "config.json", text="samples.png: 30 of 30")
check_mixed("config.json", files)
check_refused("config.json")
