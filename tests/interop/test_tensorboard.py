"""TensorBoard's own reader finds every tag, the settings and the picture; a run that was killed, even
in the middle of a record, and resumed has no doubled point.

    python3 test_tensorboard.py BUILD/dtrain"""

import glob
import io
import json
import logging
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from python_with import need

need("tensorboard")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

DTRAIN = os.path.abspath(sys.argv[1])
TOOL = os.path.join(os.path.dirname(DTRAIN), "tests", "sinks_tool")
SCALARS = {
    "train/loss",
    "train/top1",
    "train/lr",
    "perf/images_per_s",
    "perf/data_wait",
    "perf/exposed_comm",
    "perf/step",
    "perf/compute",
    "perf/sync",
    "perf/other",
    "telemetry/power_w",
    "telemetry/rss_bytes",
    "eval/loss",
    "eval/top1",
}


def read(run):
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger("tensorboard").addHandler(handler)
    events = EventAccumulator(os.path.join(run, "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    logging.getLogger("tensorboard").removeHandler(handler)
    return events, log.getvalue()


def points(events, tag):
    return [(point.step, round(point.value, 4)) for point in events.Scalars(tag)]


def check_run(run):
    events, log = read(run)
    assert set(events.Tags()["scalars"]) == SCALARS, events.Tags()
    assert "oddly" not in log, log
    assert points(events, "train/loss") == [(n, round(100 / n, 4)) for n in range(1, 41)]
    assert points(events, "eval/top1") == [(10, 64), (20, 68), (30, 72), (40, 76)]
    assert "Seconds" in events.SummaryMetadata("perf/data_wait").summary_description
    hparams = events.PluginTagToContent("hparams")
    start = plugin_data_pb2.HParamsPluginData.FromString(hparams["_hparams_/session_start_info"])
    settings = start.session_start_info.hparams
    assert settings["schedule.kind"].string_value == "poly"
    assert settings["lr"].number_value == 0.256 and settings["ranks"].number_value == 2
    end = plugin_data_pb2.HParamsPluginData.FromString(hparams["_hparams_/session_end_info"])
    assert end.session_end_info.status == 1
    text = events.Tensors("config/text_summary")[-1].tensor_proto.string_val[0].decode()
    assert json.loads(text.split("```")[1][4:])["schedule"]["lr"] == 0.256


def tool(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], check=False).returncode


def kill_and_resume(work, torn, zeros=0):
    """`torn`: bytes that the crash has cut off the last record; a power failure may leave zeros."""
    run = os.path.join(work, f"torn{torn}-{zeros}")
    assert tool(run, 27) == -9
    (path,) = glob.glob(f"{run}/tensorboard/*")
    os.truncate(path, os.path.getsize(path) - torn)
    os.truncate(path, os.path.getsize(path) + zeros)
    assert tool(run, 33, 20) == -9
    assert tool(run, 40, 30) == 0
    check_run(run)


def real_run(work):
    run = os.path.join(work, "real")
    settings = {
        "model": {"name": "tiny", "image_size": 32},
        "data": {"source": "synthetic", "synthetic_train": 48, "synthetic_val": 12},
        "train": {"max_steps": 4, "global_batch_size": 12},
        "device": {"kind": "cpu", "threads": 1},
        "output": {"dir": run, "sinks": ["tensorboard"]},
    }
    config = os.path.join(work, "config.json")
    with open(config, "w", encoding="utf-8") as file:
        json.dump(settings, file)
    subprocess.run([DTRAIN, "--config", config], check=True, stderr=subprocess.DEVNULL)
    assert not os.path.exists(f"{run}/metrics.jsonl")
    events, _ = read(run)
    assert points(events, "train/loss")[-1][0] == 4
    if os.path.exists(f"{run}/samples.png"):  # not without libpng
        (image,) = events.Images("samples")
        with open(f"{run}/samples.png", "rb") as file:
            assert image.encoded_image_string == file.read() and image.width > image.height > 0


with tempfile.TemporaryDirectory() as folder:
    assert tool(f"{folder}/whole", 40) == 0
    check_run(f"{folder}/whole")
    for cut in (0, 1, 5, 17):
        kill_and_resume(folder, cut)
    kill_and_resume(folder, 9, zeros=300)
    real_run(folder)
print("TensorBoard reads every tag; killed runs have no doubled point")
