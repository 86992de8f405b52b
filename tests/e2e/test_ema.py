"""The moving average of the weights (train.ema_decay): timm's formula from step to step, the same
bits after stops on two ranks as without any, as a file that dtrain eval and predict load, and evaluated.

    python3 test_ema.py BUILD/dtrain"""

import csv
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import DTRAIN, content, events, np, rig, run, safetensors_np, sets, train, write_config  # noqa: E402

STEPS, DECAY = 6, 0.6
CONFIG = {
    "model": {"name": "resnet20", "image_size": 32, "num_classes": 10},
    "data": {"source": "synthetic", "synthetic_train": 24, "synthetic_val": 40, "workers": 1},
    "train": {"epochs": 2, "global_batch_size": 8, "deterministic": True, "ema_decay": DECAY},
    "eval": {"batch_size_per_rank": 8, "metrics": ["loss", "top1"]},
    "schedule": {"kind": "constant", "lr": 0.01, "lr_scaling": "none", "warmup_epochs": 0},
    "checkpoint": {"keep": 99},
    "output": {"sinks": ["console", "jsonl", "csv"]},
    "device": {"kind": "cpu", "threads": 1},
}
write_config(CONFIG)


def saved(folder, step, name):
    return safetensors_np.load(f"{folder}/checkpoints/step-{step:09d}/{name}.safetensors")


def check_formula(folder):
    """timm's ModelEmaV3 with warm-up: of parameters and buffers, numbers are copied."""
    ema = {}
    for step in range(STEPS):
        decay = min(DECAY, 1 - (1 + step) ** (-2 / 3))
        model, found = saved(folder, step + 1, "model"), saved(folder, step + 1, "ema")
        assert list(model) == list(found)
        for name, value in model.items():
            if value.dtype == np.int64:
                assert np.array_equal(value, found[name]), name
                continue
            value = value.astype(np.float64)
            ema[name] = value if step == 0 else decay * ema[name].astype(np.float64) + (1 - decay) * value
            error = np.linalg.norm(found[name] - ema[name]) / np.linalg.norm(ema[name])
            assert error < 1e-6, (step, name, error)


def test_train_and_resume():
    """A stop after every step, since a save may be postponed, but not the one of a stop."""
    for folder, ranks in ("one", 1), ("two", 2):
        for step in range(1, STEPS + 1):
            done = train(folder, f"train.max_steps={step}", "train.micro_batch_size=4", ranks=ranks)
            assert "average" in done.stderr, done.stderr
        check_formula(folder)
    train("whole", "train.micro_batch_size=4", "eval.weights=both", ranks=2)
    for name in "ema.safetensors", "model.safetensors":
        assert content(f"two/{name}") == content(f"whole/{name}"), name
        assert content(f"whole/{name}") == content(f"whole/checkpoints/step-{STEPS:09d}/{name}"), name


def test_damage():
    path = f"two/checkpoints/step-{STEPS:09d}/ema.safetensors"
    blob = bytearray(content(path))
    blob[-5] ^= 1
    with open(path, "wb") as f:
        f.write(blob)
    assert "ema.safetensors" in run("verify", "two", code=65).stdout


def test_switched_on_later():
    train("late", "train.ema_decay=0", "train.max_steps=4")
    assert not os.path.exists("late/ema.safetensors")
    change = "train.max_steps=5"
    refused = train("late", change, code=78)
    assert "train.ema_decay" in refused.stderr, refused.stderr
    done = train("late", change, options=["--allow-config-change"])
    assert "no moving average" in done.stderr, done.stderr
    weight = 1 - min(DECAY, 1 - 5 ** (-2 / 3))
    before, after, ema = (saved("late", *x) for x in ((4, "model"), (5, "model"), (5, "ema")))
    for name, value in ema.items():
        if value.dtype != np.int64:
            want = before[name] + weight * (after[name].astype(np.float64) - before[name])
            assert np.allclose(value, want, rtol=1e-5, atol=1e-7), name


def test_evaluation():
    """What a run says of both sets of weights is what dtrain eval says of the files."""
    for weights in "both", "ema", "raw":
        folder, name = "whole" if weights == "both" else weights, "model" if weights == "raw" else "ema"
        if weights != "both":
            train(weights, f"eval.weights={weights}")
        log = content(f"{folder}/logs/rank-0000.log").decode()
        last = events(folder, "eval")[-1]
        judged = json.loads(run("eval", f"{folder}/{name}.safetensors").stdout)
        assert judged["top1"] == last["top1"] and abs(judged["loss"] - last["loss"]) < 1e-5
        found = run("eval", f"{folder}@latest")
        assert json.loads(found.stdout) == judged and f"{name}.safetensors (" in found.stderr, found
        run("average", f"{folder}@latest", "-o", "one.safetensors")
        one, of_run = (safetensors_np.load(path) for path in ("one.safetensors", f"{folder}/{name}.safetensors"))
        assert one.keys() == of_run.keys() and all((one[key] == of_run[key]).all() for key in one), weights
        assert (last.get("weights") == "ema") == (weights != "raw"), last
        assert ("top1_raw" in last) == (weights == "both"), last
        assert f"best top1 {max(e['top1'] for e in events(folder, 'eval')):.3f}" in log, log
        if weights == "both":
            raw = json.loads(run("eval", "whole/model.safetensors").stdout)
            assert raw["top1"] == last["top1_raw"] and "loss_raw" in log
            assert abs(raw["loss"] - last["loss_raw"]) < 1e-5
            with open("whole/metrics.csv", encoding="utf-8") as f:
                rows = list(csv.DictReader(f))
            assert float(rows[-1]["top1_raw"]) == last["top1_raw"], rows[-1]
        assert f"model {folder}/{name}.safetensors" in log, log
    for name in "model", "ema":  # evaluations change nothing
        assert content(f"ema/{name}.safetensors") == content(f"raw/{name}.safetensors")


def test_stop_while_evaluating():
    """SIGTERM while the averages stand in for the weights: both are saved as they are."""
    command = [DTRAIN, "--config", "config.json", "--out", "stopped", *sets("eval.weights=ema")]
    env = {**os.environ, **rig.ENVIRONMENT, "DTRAIN_FAULT": "stop@eval:0"}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        while rig.process_state(process.pid)[0] != "T":
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        rig.send([process.pid], signal.SIGTERM)
        rig.send([process.pid], signal.SIGCONT)
        assert "stopped after step 3 by SIGTERM" in process.communicate(timeout=300)[1]
    assert not events("stopped", "eval")
    for name in "model", "ema":
        path = f"checkpoints/step-000000003/{name}.safetensors"
        assert content(f"stopped/{path}") == content(f"ema/{path}"), name
    train("stopped", "eval.weights=ema")
    for name in "model", "ema":
        assert content(f"stopped/{name}.safetensors") == content(f"ema/{name}.safetensors"), name


TESTS = test_train_and_resume, test_evaluation, test_stop_while_evaluating, test_damage, test_switched_on_later
for test in TESTS:
    test()
    print(f"{test.__name__}: ok")
