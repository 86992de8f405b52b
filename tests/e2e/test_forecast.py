"""dtrain forecast: table, advice and JSON agree, from a given step time and from measured steps and a
measured link; what cannot be understood is refused with one sentence.

    python3 test_forecast.py BUILD/dtrain"""

import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from scratch import load, run  # noqa: E402

LINK = ["--link", "100Gb/s,2us"]
STEP = ["--step-time", "105ms"]
TINY = ["--set", "model.name=tiny", "--set", "model.image_size=32", "--set", "device.kind=cpu",
        "--set", "device.threads=1", "--set", "train.batch_size_per_rank=4",
        "--set", "bench.warmup_steps=1", "--set", "bench.steps_per_round=3"]


def forecast(*arguments, ranks=1, code=0):
    done = run("forecast", "--json", "out.json", *arguments, ranks=ranks, code=code)
    if code != 0:
        return done.stderr
    result = load("out.json")
    rows = [line.split() for line in done.stdout.splitlines() if line.endswith("%")]
    assert len(rows) == len(result["forecast"])
    for row, point in zip(rows, result["forecast"]):
        n, step_ms, exposed_ms, images, percent = map(float, row[:5])
        assert n == point["ranks"] and math.isclose(step_ms, 1e3 * point["step_s"], abs_tol=0.006)
        assert math.isclose(exposed_ms, 1e3 * point["exposed_comm_s"], abs_tol=0.0006)
        assert math.isclose(percent, 100 * point["efficiency"], abs_tol=0.06)
        rate = n * result["images_per_rank"] / point["step_s"]
        assert math.isclose(point["images_per_s"], rate) and abs(images - rate) <= 0.51, (row, rate)
    for word in "Efficiency", "comm.bucket_cap_mb", "Not in the model":
        assert word in done.stdout, done.stdout
    return result


# ResNet-50 at 105 ms: a GPU's sums are hidden until the link is slow, a CPU's never are.
resnet50 = ["--set", "model.name=resnet50", "--ranks", "1,8,64,512", *STEP]
fast = forecast(*resnet50, *LINK)
assert fast["forecast"][0]["efficiency"] == 1 and fast["forecast"][0]["step_s"] == 0.105
assert all(a["efficiency"] >= b["efficiency"]
           for a, b in zip(fast["forecast"], fast["forecast"][1:])), fast
slow = forecast(*resnet50, "--link", "1Gb/s,50us", "--set", "train.precision=fp32")
assert slow["forecast"][3]["efficiency"] < fast["forecast"][3]["efficiency"]
assert 1 < slow["below_90_percent"] <= slow["below_50_percent"] <= 512
for precision in "bf16", "auto":
    half = forecast(*resnet50, "--link", "1Gb/s,50us", "--set", f"train.precision={precision}")
    assert half["forecast"][1]["exposed_comm_s"] < slow["forecast"][1]["exposed_comm_s"] / 1.9
cpu = forecast(*resnet50, *LINK, "--set", "device.kind=cpu")
assert cpu == forecast(*resnet50, *LINK, "--set", "device.kind=cpu", "--set", "train.precision=bf16")
assert not cpu["overlaps"] and fast["overlaps"]
assert cpu["forecast"][1]["exposed_comm_s"] > fast["forecast"][1]["exposed_comm_s"]
nodes = forecast(*resnet50, "--link", "1Gb/s,50us", "--local-link", "300GB/s,3us",
             "--ranks-per-node", "8", "--set", "comm.algorithm=library")
assert nodes["forecast"][1]["efficiency"] > 0.99 > nodes["forecast"][2]["efficiency"]

one = forecast("--ranks", "1", *LINK, *TINY)
assert one["measured_ranks"] == 1 and math.isclose(one["forecast"][0]["step_s"],
                                                   one["measured_step_s"])
two = forecast("--ranks", "1,2", "--link", "measured", *TINY, ranks=2)
assert two["measured_ranks"] == 2 and two["link_bytes_per_s"] > 0 <= two["link_latency_s"]

for arguments, code, text in [
        (["--ranks", "2"], 64, "needs --link"),
        (["--ranks", "2,", *LINK], 64, "--ranks: "),
        (["--ranks", "0", *LINK], 64, "--ranks: "),
        (["--ranks", ",".join(["2"] * 17), *LINK], 64, "at most 16"),
        (["--ranks", "2", "--link", "100Gb/s"], 64, "such as 100Gb/s,2us"),
        (["--ranks", "2", "--link", "100Gbit,2us"], 64, "such as 100Gb/s,2us"),
        (["--ranks", "2", "--link", "-1Gb/s,2us"], 64, "such as 100Gb/s,2us"),
        (["--ranks", "2", *LINK, "--local-link", "1GB/s,1us"], 64, "give both or neither"),
        (["--ranks", "2", *LINK, "--ranks-per-node", "2"], 64, "--local-link"),
        (["--ranks", "2", *LINK, "--step-time", "0"], 64, "--step-time: "),
        (["--ranks", "2", "--link", "measured", *STEP], 64, "no link with one rank"),
        (["--ranks", "2", *LINK, *STEP, "--set", "model.name=resnet50",
          "--set", "model.image_size=8"], 78, "too small")]:
    error = forecast(*arguments, code=code)
    assert text in error and error.count("error[") == 1, (arguments, error)
