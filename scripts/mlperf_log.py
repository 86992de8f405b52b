#!/usr/bin/env python3
"""Makes mlperf.log in a run folder from its metrics.jsonl: the lines of MLPerf Training's ResNet benchmark, as its
compliance checker reads them, but for cache_clear: whoever drops the page cache before a run adds that line.

usage: mlperf_log.py RUN

A block is the training between two evaluations. A run that was resumed has one log, without the steps that it repeated.
"""

import json
import math
import os
import sys
from datetime import datetime

IMAGENET_IMAGES = 1281167  # other data cannot be of the closed division


def number(value):
    return int(value) if value == int(value) else value


class Log:
    def __init__(self):
        self.lines, self.step, self.first_epoch, self.is_in_block = [], 0, 1, False
        self.now = self.mark = 0  # milliseconds: of this event, and of the last report, where an interval begins

    def put(self, key, value=None, time=None, **metadata):
        kind = "INTERVAL_START" if "_start" in key else "INTERVAL_END" if "_stop" in key else "POINT_IN_TIME"
        line = {"namespace": "", "time_ms": time or self.now, "event_type": kind, "key": key, "value": value}
        self.lines.append({**line, "metadata": {"file": "scripts/mlperf_log.py", "lineno": 1, **metadata}})

    def put_optimizer(self, config, lr, steps_per_epoch):
        """opt_name, and the keys that begin with it; other optimizers than sgd and lars have theirs in the same way."""
        optim, schedule = config["optim"], config["schedule"]
        name, is_lars = optim["name"], optim["name"] == "lars"
        warmup = schedule["warmup_epochs"] + schedule["warmup_steps"] / steps_per_epoch
        self.put("opt_name", name)
        self.put(f"{name}_opt_base_learning_rate", number(lr))
        self.put(f"{name}_opt_end_learning_rate", number(schedule["min_lr"] * (lr / schedule["lr"])))
        if schedule["kind"] == "poly":
            self.put(f"{name}_opt_learning_rate_decay_poly_power", number(schedule["power"]))
        steps = math.floor((config["train"]["epochs"] - warmup) * steps_per_epoch + 0.5)
        self.put(f"{name}_opt_learning_rate_decay_steps", steps)
        self.put(f"{name}_opt_weight_decay", number(optim["weight_decay"]))
        self.put(f"{name}_opt_momentum", number(optim["momentum"]))
        self.put(("lars_" if is_lars else "") + "opt_learning_rate_warmup_epochs", number(warmup))
        if is_lars:
            self.put("lars_epsilon", number(optim["eps"]))

    def on_run_start(self, event):
        self.config = config = event["config"]
        if self.lines:
            return self.cut(event["start_step"])
        self.put("submission_benchmark", "ssd" if config["model"]["name"].startswith("retinanet") else "resnet")
        self.put("submission_division", "closed" if event["train_images"] == IMAGENET_IMAGES else "open")
        self.put("submission_org", "dtrain")
        self.put("submission_platform", "dtrain")
        self.put("submission_status", "research")
        self.put("init_start")
        self.put_optimizer(config, event["lr"], event["steps_per_epoch"])
        self.put("global_batch_size", event["global_batch_size"])
        self.put("gradient_accumulation_steps", event["passes"])
        self.put("model_bn_span", event["micro_batch_size"])
        self.put("seed", config["train"]["seed"])
        self.put("train_samples", event["train_images"])
        self.put("eval_samples", event["val_images"])
        self.put("init_stop")
        self.put("run_start")

    def cut(self, start_step):
        """Removes the lines that this start writes again, and goes on where those before them end."""
        kept, self.lines, self.first_epoch, self.step, self.is_in_block = self.lines, [], 1, 0, False
        for line in kept:
            metadata = line["metadata"]
            if line["key"] == "run_stop" or metadata.get("step", 0) > start_step:
                break
            self.lines.append(line)
            self.step = metadata.get("step", self.step)
            self.first_epoch = metadata.get("epoch_num", metadata.get("first_epoch_num", self.first_epoch) - 1) + 1
            self.is_in_block = line["key"] == "block_start" or (self.is_in_block and line["key"] != "block_stop")

    def on_step(self, event):
        every, left = self.config["eval"]["every_epochs"], self.config["train"]["epochs"] - self.first_epoch + 1
        if not self.is_in_block:
            n_epochs = every if 0 < every < left else max(left, 1)
            self.put("block_start", None, self.mark, first_epoch_num=self.first_epoch, epoch_count=n_epochs, step=self.step)
        self.is_in_block, self.step = True, event["step"]

    def end_block(self):
        if self.is_in_block:
            self.put("block_stop", None, self.mark, first_epoch_num=self.first_epoch, step=self.step)
        self.is_in_block = False

    def on_eval(self, event):
        if any(line["key"] == "eval_stop" and line["metadata"]["step"] == event["step"] for line in self.lines):
            self.cut(event["step"] - 1)  # killed before the checkpoint knew of it
        self.step = event["step"]
        place = {"epoch_num": event["epoch"], "step": self.step}
        self.end_block()
        self.put("eval_start", None, self.mark, **place)
        value = event["top1"] / 100 if event.get("top1") is not None else event.get("ap")
        if value is not None:
            self.put("eval_accuracy", number(value), **place)
        self.first_epoch = event["epoch"] + 1
        self.put("eval_stop", **place)

    def on_run_end(self, event):
        self.end_block()
        self.put("run_stop", status="success" if event["exit_code"] == 0 else "aborted")

    def add(self, event):
        on_event = getattr(self, f"on_{event['event']}", None)
        if on_event:
            self.now = round(1e3 * datetime.fromisoformat(event["ts"].replace("Z", "+00:00")).timestamp())
            self.mark = self.mark or self.now
            on_event(event)
            self.mark = self.now


def main(run):
    log = Log()
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                event = json.loads(text)
            except ValueError:  # of a run that was killed in the middle of a line
                continue
            if isinstance(event, dict) and (log.lines or event.get("event") == "run_start"):
                log.add(event)
    with open(os.path.join(run, "mlperf.log"), "w", encoding="utf-8") as file:
        for line in log.lines:
            file.write(f":::MLLOG {json.dumps(line, separators=(',', ':'))}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    try:
        main(sys.argv[1])
    except OSError as error:
        sys.exit(f"mlperf_log: {error}")
