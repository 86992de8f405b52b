"""What the sinks cost: the time of a step event, written after every step (output.log_every=1, the
worst case), as a share of a step of ResNet-18 with 32 images.

    python3 sinks.py BUILD/dtrain"""

import json
import os
import statistics
import tempfile

import turns

DTRAIN = os.path.abspath(turns.parser().parse_args().program)
SETTINGS = {
    "model": {"name": "resnet18"},
    "data": {"source": "synthetic", "synthetic_train": 512, "synthetic_val": 0},
    "train": {"global_batch_size": 32, "max_steps": 13},
    "device": {"kind": "cpu"},
    "output": {"log_every": 1, "sinks": ["jsonl"]},
    "checkpoint": {"every_seconds": 0},
}


def step_s(work):
    config, run = os.path.join(work, "config.json"), os.path.join(work, "run")
    with open(config, "w", encoding="utf-8") as file:
        json.dump(SETTINGS, file)
    turns.output(DTRAIN, "--config", config, "--out", run)
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        steps = [event for event in map(json.loads, file) if event["event"] == "step"]
    return statistics.median(32 / event["images_per_s"] for event in steps[3:])


with tempfile.TemporaryDirectory() as folder:
    tool = os.path.join(os.path.dirname(DTRAIN), "tests", "report_tool")
    costs = {name: float(us) for name, us in map(str.split, turns.output(tool, folder).splitlines())}
    step = step_s(folder)
    print(f"a step: {1000 * step:.1f} ms")
    once = costs.pop("prometheus")
    for name, us in costs.items():
        print(f"{name:12} {us:8.2f} us  {us / step / 1e4:8.4f} % of a step")
    print(f"{'prometheus':12} {once:8.2f} us  {once / 1e4:8.4f} % of the time: once per second")
