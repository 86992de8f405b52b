"""dtrain average: means against NumPy, what is refused, and --recompute-bn against the statistics of
the same batches in training runs, whose learning rate is almost zero.

    python3 test_average.py BUILD/dtrain"""

import json
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import content, np, run, safetensors_np, sets, train, write_config  # noqa: E402

CONFIG = {
    "model": {"name": "resnet20", "image_size": 32, "num_classes": 10},
    "data": {"source": "synthetic", "synthetic_train": 24, "synthetic_val": 8, "workers": 1},
    "train": {"epochs": 1, "global_batch_size": 8, "micro_batch_size": 4, "deterministic": True},
    "eval": {"batch_size_per_rank": 8},
    "schedule": {"kind": "constant", "lr": 0.05, "lr_scaling": "none", "warmup_epochs": 0},
    "checkpoint": {"keep": 9},
    "device": {"kind": "cpu", "threads": 1},
}
write_config(CONFIG)
STATISTICS = ".running_mean", ".running_var"


def test_mean():
    os.mkdir("again")
    train("run", "train.max_steps=2")
    train("run", "train.max_steps=3")
    names = ["run@step-2", "run@latest", "run/checkpoints/step-000000002", "run/model.safetensors"]
    done = run("average", *names[:3], "-o", "mean.safetensors")
    assert f"warning: {names[0]} and {names[2]} are the same weights, which count twice" in done.stderr, done.stderr
    files = [f"run/checkpoints/step-{n:09d}/model.safetensors" for n in (2, 3, 2)]
    parts = [safetensors_np.load(file) for file in files]
    mean = safetensors_np.load("mean.safetensors")
    assert list(mean) == list(parts[0])
    for name, value in mean.items():
        if value.dtype == np.int64:
            assert np.array_equal(value, parts[-1][name]), name
            continue
        want = np.mean([part[name].astype(np.float64) for part in parts], axis=0)
        assert np.array_equal(value, want.astype(np.float32)), name
    run("average", names[3], "-o", "same.safetensors")
    same, of_run = safetensors_np.load("same.safetensors"), safetensors_np.load(names[3])
    assert {name: value.tobytes() for name, value in same.items()} == {k: v.tobytes() for k, v in of_run.items()}
    run("average", "same.safetensors", "-o", "again/same.safetensors")
    for name in "mean.safetensors", "same.safetensors", "again/same.safetensors":
        shutil.copy(name, os.path.join("again", "moved"))
        done = run("eval", "again/moved", code=64)
        assert done.stderr.endswith(f"give one with --config {os.path.realpath('run')}/config.json\n"), done.stderr
    assert json.loads(run("eval", "mean.safetensors", "--config", "config.json").stdout)["images"] == 8


def test_all():
    """eval RUN --all-checkpoints: the line of each, from the oldest, and which it is."""
    lines = [json.loads(line) for line in run("eval", "run", "--all-checkpoints", "-q", ranks=2).stdout.splitlines()]
    files = [os.path.normpath(line.pop("checkpoint")) for line in lines]
    assert files == [f"run/checkpoints/step-{n:09d}/model.safetensors" for n in (2, 3)], files
    assert lines == [json.loads(run("eval", f"run@step-{n}").stdout) for n in (2, 3)], lines
    assert "--confusion is written for a single checkpoint" in run(
        "eval", "run", "--all-checkpoints", "--confusion", "all.csv", code=64
    ).stderr
    run("eval", "mean.safetensors", "--config", "config.json", "--all-checkpoints", code=66)


def test_refused():
    train("other", "model.name=tiny", "train.max_steps=1")
    done = run("average", "run", "other", "-o", "x.safetensors", code=78)
    assert "cannot be averaged" in done.stderr, done.stderr
    run("average", "run", "other", code=64)
    run("average", "run", "-o", "x.safetensors", "--images", "8", code=64)
    for name in "x.onnx", "x":
        done = run("average", "run", "-o", name, code=64)
        assert f"-o {name}: " in done.stderr and "must end in .safetensors" in done.stderr, done.stderr
        assert not os.path.exists(name)
    assert not os.path.exists("x.safetensors")
    # Whether it can be written is found out before anything is read, and no other file is touched.
    done = run("average", "nowhere", "-o", "missing/x.safetensors", code=73)
    assert "missing" in done.stderr and "nowhere" not in done.stderr, done.stderr
    with open("new.safetensors.part", "w", encoding="utf-8") as out:
        out.write("mine")
    run("average", "run", "-o", "new.safetensors", "--recompute-bn", "--images", "8")
    assert content("new.safetensors.part") == b"mine"
    assert not [name for name in os.listdir() if name.startswith(".tmp-")]


def batch_statistics():
    """Of the three batches of 8, as passes of 4 make them: b = (new - 0.9 old) / 0.1."""
    sums = {}
    old = safetensors_np.load("mean.safetensors")
    for step in range(1, 4):
        train("still", "model.initial_checkpoint=mean.safetensors", "schedule.lr=1e-12",
              "train.micro_batch_size=8", "optim.weight_decay=0", f"train.max_steps={step}")
        new = safetensors_np.load("still/model.safetensors")
        for name in new:
            if name.endswith(STATISTICS):
                batch = (new[name].astype(np.float64) - 0.9 * old[name]) / 0.1
                sums[name] = sums.get(name, 0) + batch / 3
        old = new
    return sums


def check_statistics(file, want):
    for name, value in safetensors_np.load(file).items():
        if name.endswith(STATISTICS):
            error = np.linalg.norm(value - want[name]) / np.linalg.norm(want[name])
            assert error < 1e-5, (file, name, error)


def test_recompute():
    want = batch_statistics()
    full = ["--recompute-bn", "--config", "config.json", *sets("train.micro_batch_size=8")]
    run("average", "mean.safetensors", "-o", "new.safetensors", *full)
    check_statistics("new.safetensors", want)
    got, mean = safetensors_np.load("new.safetensors"), safetensors_np.load("mean.safetensors")
    for name, value in got.items():
        if value.dtype == np.int64:
            assert value == 3, name
        elif not name.endswith(STATISTICS):
            assert np.array_equal(value, mean[name]), name
    run("average", "mean.safetensors", "-o", "part.safetensors", *full, "--images", "16")
    assert next(v for v in safetensors_np.load("part.safetensors").values() if v.dtype == np.int64) == 2
    slices = ["train.virtual_ranks=2", "train.micro_batch_size=0", "device.threads=1"]
    for ranks, more in (2, []), (1, slices), (2, slices):  # that share their statistics
        options = sets("model.sync_bn=true", *more)
        run("average", "mean.safetensors", "-o", "synced.safetensors", *full[:3], *options, ranks=ranks)
        check_statistics("synced.safetensors", want)


def test_ranks():
    """Micro-batches of 4: the same batches on one rank as on two, added up in another order."""
    for name, ranks in ("one", 1), ("two", 2), ("again", 2):
        run("average", "run@step-2", "run", "-o", f"{name}.safetensors", "--recompute-bn", ranks=ranks)
    assert content("two.safetensors") == content("again.safetensors")
    one, two = (safetensors_np.load(f"{name}.safetensors") for name in ("one", "two"))
    for name, value in one.items():
        assert np.allclose(value, two[name], rtol=1e-6, atol=1e-9), name


for test in test_mean, test_all, test_refused, test_recompute, test_ranks:
    test()
    print(f"{test.__name__}: ok", flush=True)
