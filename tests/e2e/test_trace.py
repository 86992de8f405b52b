"""`--trace` of train and bench: the file holds the steps that were asked for, of every rank, with all lanes; a run that
is killed while tracing leaves no file; wrong ranges are refused."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import scratch  # noqa: E402
import trace_file  # noqa: E402
from scratch import load, run, sets  # noqa: E402

SETTINGS = (
    "model.name=tiny model.num_classes=10 model.image_size=32 data.synthetic_train=240 data.workers=2 "
    "data.synthetic_val=40 train.max_steps=12 train.global_batch_size=24 train.micro_batch_size=6 device.kind=cpu "
    "device.threads=1 eval.every_epochs=1 checkpoint.every_steps=5 comm.bucket_cap_mb=0.02 "
    "comm.last_bucket_cap_mb=0.01"
).split()


def train(out, steps, *more, ranks=2, code=0, text="", fault=""):
    done = scratch.train(out, *SETTINGS, *more, options=["--trace", steps], ranks=ranks, code=code,
                         env={"DTRAIN_FAULT": fault})  # fmt: skip
    assert text in done.stderr, (text, done.stderr)
    return done.stderr


def bench(code, *more):
    changes = *SETTINGS, "bench.rounds=2", "bench.steps_per_round=3", "bench.warmup_steps=1"
    run("bench", "--config", "config.json", "--trace", "bench.json.gz", *more, *sets(*changes), ranks=2, code=code)


def names(lane):
    return {name for _, _, name, _ in lane}


def steps_of(lane):
    return [int(args["number"]) for _, _, name, args in sorted(lane, key=lambda s: s[0]) if name == "step"]


def check_lanes(rank, lanes):
    assert steps_of(lanes["main thread"]) == list(range(4, 13)), lanes["main thread"]
    assert "evaluation" in names(lanes["main thread"])
    compute = lanes["compute"]
    assert {"conv", "conv_bwd_weights", "accumulate", "reduce", "wait", "check", "update", "settle"} <= names(compute)
    assert {args["layer"] for _, _, name, args in compute if name == "conv"} >= {"conv1", "conv2"}
    sums = {lane: spans for lane, spans in lanes.items() if lane.startswith("reduction")}
    assert len(sums) > 1 and all(len(spans) == 9 for spans in sums.values()), sums
    loaders = [lane for lane in lanes if re.fullmatch(r"loader \d", lane)]
    assert loaders and all(names(lanes[lane]) <= {"read", "augment"} for lane in loaders), loaders
    if rank == 0:
        assert {"checkpoint"} == names(lanes["checkpoint writer"])
        assert "snapshot" in names(lanes["main thread"])
    # Each step contains the actions of its passes: 2 per step.
    for begin, end, name, _ in lanes["main thread"]:
        inside = [n for b, e, n, _ in compute if begin <= b and e <= end]
        assert name != "step" or (inside.count("ingest") == 2 and inside.count("settle") == 1), inside


def check_clocks(header, ranks):
    """A sum ends nowhere before it has begun everywhere, up to the stated error of the clocks."""
    error = 1000 * 2 * float(header["clock_error_us"])
    for lane in ranks[0]:
        if lane.startswith("reduction"):
            for spans in zip(*(sorted(rank[lane]) for rank in ranks)):
                assert max(s[0] for s in spans) <= min(s[1] for s in spans) + error, (lane, spans)


def check_overlap(header, processes):
    share, wanted = float(header["comm_overlap_share"]), trace_file.overlap(processes.values())
    assert 0 <= share <= 1 and abs(share - wanted) < 1e-3, (share, wanted)


def main():
    log = train("run", "4-99", text="timeline of steps 4 to 12 in run/trace.json.gz")
    assert re.search(r": \d+ spans, 0 dropped; open it in https://ui.perfetto.dev", log), log
    header, processes = trace_file.load("run/trace.json.gz")
    assert (header["ranks"], header["first_step"], header["last_step"]) == (2, 4, 12), header
    assert [p.split(" (")[0] for p in sorted(processes)] == ["rank 0", "rank 1"], processes.keys()
    ranks = [processes[name] for name in sorted(processes)]
    for rank, lanes in enumerate(ranks):
        check_lanes(rank, lanes)
    check_clocks(header, ranks)
    check_overlap(header, processes)

    # The weights do not depend on it, and a traced run resumes.
    train("one", "2", "train.max_steps=6", ranks=1, text="timeline of steps 2 to 2")
    header, processes = trace_file.load("one/trace.json.gz")
    assert "comm_overlap_share" not in header, header
    (lanes,) = processes.values()
    assert steps_of(lanes["main thread"]) == [2] and "reduction 0" not in lanes, lanes.keys()
    train("one", "5-8", "train.max_steps=8", ranks=1, text="timeline of steps 7 to 8")
    train("one", "5-8", ranks=1, text="no timeline is written: the run goes on after step 8, and --trace names steps 5")

    # The measured steps of a benchmark.
    bench(64, "--batch-size-per-rank", "6,12")
    bench(0, "--json", "bench.json")
    header, processes = trace_file.load("bench.json.gz")
    assert len(processes) == 2, processes.keys()
    check_overlap(load("bench.json"), processes)
    for lanes in processes.values():
        assert steps_of(lanes["main thread"]) == list(range(1, 7)), lanes["main thread"]
        assert [name for _, _, name, _ in lanes["compute"]].count("settle") == 6

    for steps in ("0-3", "5-4", "x", "3-", "1-2x", "-3"):
        train("none", steps, ranks=1, code=64, text=f'--trace: "{steps}" is not a range of steps such as 100-120')
    train("none", "13-14", code=64, text="steps 13 to 14 are none of this run's, which makes steps 1 to 12")
    train("kill", "3-9", code=None, fault="kill@6:1")
    assert os.path.exists("kill/RUN") and not [n for n in os.listdir("kill") if "trace" in n], os.listdir("kill")
    os.makedirs("odd/trace.json.gz")
    train("odd", "3-9", ranks=1, text="no timeline is written: cannot replace odd/trace.json.gz")


scratch.write_config({"data": {"source": "synthetic"}})
main()
