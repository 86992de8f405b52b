"""metrics.jsonl, metrics.csv, dtrain.prom and mlperf.log of a run that was killed, in the middle of a
line, and resumed: nothing is doubled or torn. Their real readers (pandas, prometheus_client,
promtool, mlperf_logging) are used where they are installed; the rules that matter are here.

    python3 test_sinks.py BUILD/dtrain"""

import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from python_with import prefer

MISSING = prefer("pandas", "prometheus_client", "mlperf_logging")
TOOL = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "tests", "sinks_tool")
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "mlperf_log.py")
LOG = "mlperf.log"


def tool(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], check=False).returncode


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        text = file.read()
    assert text.endswith("\n"), path
    return text


def check_jsonl(run, n_starts):
    events = [json.loads(line) for line in read(run, "metrics.jsonl").splitlines()]
    assert sum(event["event"] == "run_start" for event in events) == n_starts
    assert {event["step"] for event in events if event["event"] == "step"} == set(range(1, 41))


def check_csv(run):
    rows = list(csv.DictReader(read(run, "metrics.csv").splitlines()))
    assert [int(row["step"]) for row in rows if row["event"] == "step"] == list(range(1, 41))
    assert [float(row["top1"]) for row in rows if row["event"] == "eval"] == [64, 68, 72, 76]
    if "pandas" not in MISSING:
        import pandas

        frame = pandas.read_csv(os.path.join(run, "metrics.csv"))
        steps = frame[frame.event == "step"]
        assert len(frame) == 44 and steps.step.is_monotonic_increasing
        assert steps.loss.dtype == float and steps.auc.isna().all()
        frame = pandas.read_json(os.path.join(run, "metrics.jsonl"), lines=True)
        assert set(frame.event) >= {"run_start", "step", "eval", "run_end"}


SAMPLE = re.compile(r'([a-z_0-9]+)\{run="(.*)",ranks="2"\} (-?[0-9.e+-]+|NaN|[+-]Inf)')


def parse_metrics(text):
    """Each metric must have one HELP and one TYPE line before its value, counters the suffix."""
    values, lines = {}, text.splitlines()
    for help_line, type_line, sample in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        name, run, value = SAMPLE.fullmatch(sample).groups()
        kind = "counter" if name.endswith("_total") else "gauge"
        assert help_line.startswith(f"# HELP {name} ") and type_line == f"# TYPE {name} {kind}"
        assert name not in values and name.startswith("dtrain_"), name
        values[name] = float(value)
        assert run.endswith("a\\\"b"), run
    return values


def check_prometheus(run, n_warnings):
    text = read(run, "dtrain.prom")
    values = parse_metrics(text)
    assert values["dtrain_steps_total"] == 40 and values["dtrain_warnings_total"] == n_warnings
    assert math.isclose(values["dtrain_eval_top1"], 0.76) and values["dtrain_exit_code"] == 0
    assert math.isclose(values["dtrain_train_loss"], 2.5) and values["dtrain_telemetry_power_w"] == 300
    assert "dtrain_telemetry_fan" not in values
    assert not os.path.exists(os.path.join(run, ".dtrain.prom"))
    if "prometheus_client" not in MISSING:
        from prometheus_client.parser import text_string_to_metric_families as families

        found = {sample.name: sample for family in families(text) for sample in family.samples}
        assert {name: sample.value for name, sample in found.items()} == values
        assert found["dtrain_steps_total"].labels["run"] == run
    if shutil.which("promtool"):
        subprocess.run(["promtool", "check", "metrics"], input=text.encode(), check=True)


ONCE = """submission_benchmark submission_division submission_org submission_platform submission_status
    global_batch_size gradient_accumulation_steps opt_name OPT_opt_base_learning_rate
    OPT_opt_end_learning_rate OPT_opt_learning_rate_decay_poly_power
    OPT_opt_learning_rate_decay_steps OPT_opt_weight_decay OPT_opt_momentum model_bn_span
    train_samples eval_samples init_start init_stop run_start
    run_stop"""
OF_OPTIMIZER = {
    "sgd": ["opt_learning_rate_warmup_epochs"],
    "lars": ["lars_opt_learning_rate_warmup_epochs", "lars_epsilon"],
}


def check_mlperf(run, optimizer="sgd"):
    """The rules of the compliance checker, rule set 4.0.0, closed division."""
    subprocess.run([SCRIPT, run], check=True)
    lines = read(run, LOG).splitlines()
    assert all(line.startswith(":::MLLOG ") for line in lines)
    lines = [json.loads(line[len(":::MLLOG ") :]) for line in lines]
    order = ["namespace", "time_ms", "event_type", "key", "value", "metadata"]
    assert all(list(line) == order for line in lines)
    kinds = {"start": "INTERVAL_START", "stop": "INTERVAL_END"}
    for line in lines:
        kind = kinds.get(line["key"].rsplit("_", 1)[-1], "POINT_IN_TIME")
        assert line["event_type"] == kind and {"file", "lineno"} <= set(line["metadata"]), line
    keys, values = [line["key"] for line in lines], {line["key"]: line["value"] for line in lines}
    once = ONCE.replace("OPT", optimizer).split() + OF_OPTIMIZER[optimizer]
    assert all(keys.count(key) == 1 for key in once), [key for key in once if keys.count(key) != 1]
    assert values["opt_name"] == optimizer
    times = [line["time_ms"] for line in lines]
    assert times == sorted(times)
    assert keys[-1] == "run_stop" and lines[-1]["metadata"]["status"] == "success"
    loop = keys[keys.index("run_start") + 1 : -1]
    block = ["block_start", "block_stop", "eval_start", "eval_accuracy", "eval_stop"]
    assert loop == 4 * block, loop
    evals = [line for line in lines if line["key"] == "eval_accuracy"]
    assert [line["metadata"]["epoch_num"] for line in evals] == [1, 2, 3, 4]
    assert [line["value"] for line in evals] == [0.64, 0.68, 0.72, 0.76]
    assert values[f"{optimizer}_opt_end_learning_rate"] == 0.0001 and "cache_clear" not in values
    assert (values[f"{optimizer}_opt_base_learning_rate"] / 0.001).is_integer()
    if "mlperf_logging" not in MISSING:
        with open(os.path.join(run, "checked.log"), "w", encoding="utf-8") as file:
            line = {**lines[0], "key": "cache_clear", "value": True}  # of who has cleared it
            file.write(f":::MLLOG {json.dumps(line)}\n{read(run, LOG)}")
        checker = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training"]
        done = subprocess.run(
            [*checker, "--ruleset", "4.0.0", os.path.join(run, "checked.log")],
            capture_output=True,
            text=True,
            cwd=run,
            check=False,
        )
        assert "SUCCESS" in done.stdout + done.stderr, done.stdout + done.stderr


def check_all(run, n_starts):
    check_jsonl(run, n_starts)
    check_csv(run)
    check_prometheus(run, 4 if n_starts == 1 else 2)  # counted from a start
    check_mlperf(run)


with tempfile.TemporaryDirectory() as folder:
    name = os.path.join(folder, 'a"b')
    assert tool(name, 40) == 0
    check_all(name, 1)
    for torn in (0, 1, 9, 60):
        shutil.rmtree(name)
        assert tool(name, 27) == -9
        for file in ("metrics.jsonl", "metrics.csv"):
            path = os.path.join(name, file)
            os.truncate(path, os.path.getsize(path) - torn)
        assert tool(name, 29, 20) == -9
        assert tool(name, 40, 20) == 0
        check_all(name, 3)
    shutil.rmtree(name)
    assert tool(name, 40, -1, "optim.name=lars") == 0
    check_mlperf(name, "lars")
    shutil.rmtree(name)
    assert tool(name, 40, -1, "schedule.kind=cosine") == 0
    subprocess.run([SCRIPT, name], check=True)
    assert "poly_power" not in read(name, LOG)  # it has none
if MISSING:
    print(f"skipped: no {', '.join(MISSING)}, the rules alone were checked; scripts/setup.sh test installs them")
    sys.exit(77)
print("all sinks can be read")
