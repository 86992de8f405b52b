"""Reads and checks a timeline: the rules of Chrome's trace format that Perfetto relies on."""

import gzip
import json
from collections import defaultdict

KEYS = {"name", "ph", "pid", "tid", "args"}


def check_nesting(spans):
    """Two spans of a lane do not overlap unless one contains the other."""
    open_until = []
    for begin, end, name in sorted(spans, key=lambda span: (span[0], -span[1])):
        while open_until and open_until[-1][0] <= begin:
            open_until.pop()
        assert not open_until or end <= open_until[-1][0], (begin, end, name, open_until)
        open_until.append((end, name))


def nanoseconds(text):
    whole, part = text.split(".")
    assert len(part) == 3, text
    return 1000 * int(whole) + int(part)


def load(path):
    """The header, and the spans as process -> lane -> [(begin, end, name, args)], in nanoseconds."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        trace = json.load(file, parse_float=str)
    assert trace["displayTimeUnit"] == "ms"
    processes, threads, lanes = {}, {}, defaultdict(lambda: defaultdict(list))
    for event in trace["traceEvents"]:
        assert event["pid"] > 0 and KEYS | {"ts", "dur"} >= event.keys() >= KEYS - {"args"}, event
        if event["ph"] == "M":
            if event["name"] == "process_name":
                assert event["pid"] not in processes
                processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                assert (event["pid"], event["tid"]) not in threads
                threads[event["pid"], event["tid"]] = event["args"]["name"]
            continue
        assert event["ph"] == "X" and event["tid"] > 0, event
        begin, length = nanoseconds(event["ts"]), nanoseconds(event["dur"])
        assert begin >= 0 and length >= 0, event
        lane = lanes[processes[event["pid"]]][threads[event["pid"], event["tid"]]]
        lane.append((begin, begin + length, event["name"], event.get("args", {})))
    for process in lanes.values():
        for spans in process.values():
            check_nesting([span[:3] for span in spans])
    assert set(processes.values()) == set(lanes)
    return trace["otherData"], lanes


def overlap(ranks):
    """The share of the sums' time in which the same rank computes; `ranks`: of each, lane -> spans."""
    summing, both = 0, 0
    for lanes in ranks:
        edges = []
        for lane, spans in lanes.items():
            for begin, end, name, _ in spans:
                if lane.startswith("reduction"):
                    edges += [(begin, 1, 0), (end, -1, 0)]
                elif lane == "compute" and name not in ("reduce", "wait", "poll", "sync"):
                    edges += [(begin, 0, 1), (end, 0, -1)]
        sums = computing = before = 0
        for at, change, other in sorted(edges):
            summing += (at - before) * (sums > 0)
            both += (at - before) * (sums > 0 and computing > 0)
            sums, computing, before = sums + change, computing + other, at
    return both / summing
