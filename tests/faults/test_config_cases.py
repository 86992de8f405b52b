"""Wrong configurations derived from the program's own schema: every key with values of other types
or out of range, misspelt, duplicated. Each must exit with 78 and print one line with the exact
path; random valid configurations must be accepted.
usage: test_config_cases.py DTRAIN [--long] (every ninth case, one or two per key; or all)
"""

import concurrent.futures
import json
import os
import random
import subprocess
import sys
import tempfile
import time

SECONDS_MAX = 60  # that is a hang; how long it really took is printed
N_VALID = 200  # short form: a fifth of them
STRIDE = 9  # short form: every ninth case

LITERALS = {  # text in the file -> type for a JSON parser; None: not JSON
    "null": (None,),
    "true": (True,),
    '"text"': ("text",),
    '"12"': ("12",),
    "[1]": ([1],),
    '{"a": 1}': ({"a": 1},),
    "-1": (-1,),
    "0": (0,),
    "1e999": None,
    "2.5": (2.5,),
}


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def in_range(spec, value):
    return (
        is_number(value)
        and value >= spec.get("minimum", value)
        and value <= spec.get("maximum", value)
        and not value <= spec.get("exclusiveMinimum", value - 1)
        and not value >= spec.get("exclusiveMaximum", value + 1)
    )


def fits(spec, value):
    """Whether the schema accepts a value, decided independently of the program."""
    if "anyOf" in spec:
        return any(fits(either, value) for either in spec["anyOf"])
    kind = spec["type"]
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "string":
        length = len(value) if isinstance(value, str) else -1
        return spec.get("minLength", 0) <= length <= spec.get("maxLength", length) and (
            "enum" not in spec or value in spec["enum"]
        )
    if kind == "object":
        members = spec["properties"]
        return (
            isinstance(value, dict)
            and all(name in value for name in spec["required"])
            and all(name in members and fits(members[name], item) for name, item in value.items())
        )
    if kind == "array":
        return (
            isinstance(value, list)
            and spec.get("minItems", 0) <= len(value) <= spec.get("maxItems", len(value))
            and all(fits(spec["items"], item) for item in value)
        )
    return in_range(spec, value) and (kind == "number" or value == int(value))


def other_case(name):
    return name.upper()


def misspelt(name):
    """The name with one edit."""
    middle = len(name) // 2
    return name[:middle] + "q" + name[middle + 1 :]


def bad_cases(keys):
    """(text of the file, path that the message must contain, description)"""
    for (section, name), spec in keys.items():
        path = f"{section}.{name}"
        good = json.dumps(spec["default"])

        def member(key, text, section=section):
            return f'{{"{section}": {{"{key}": {text}}}}}'

        for text, value in LITERALS.items():
            is_row = text == "[1]" and spec.get("items", {}).get("type") == "object"
            if value is None or not fits(spec, value[0]):
                yield member(name, text), path + "[0]" * is_row, f"{path}={text}"
        if spec.get("type") == "string" and "enum" not in spec:
            for text in ('"${DTRAIN_UNSET}"', '"a/${DTRAIN_UNSET:-b"', '"${DTRAIN_UNSET:b}"'):
                yield member(name, text), path, f"{path}={text}"
        limit = spec.get("maximum", spec.get("exclusiveMaximum"))
        if limit is not None:
            above = limit + 1 if limit < 2**53 else limit + 2
            yield member(name, above), path, f"{path} above its maximum"
        for key in (misspelt(name), other_case(name), name + "_2"):
            yield member(key, good), f"{section}.{key}", f"{key} in place of {path}"
        twice = f'{{"{section}": {{"{name}": {good}, "{name}": {good}}}}}'
        yield twice, path, f"{path} twice"


def large_cases():
    """Files at the size limit: thousands of mistakes, each with a search for the nearest key."""
    for name in ("global_bat{:06}", "{:092}", "epoch{}"):
        members = ", ".join(f'"{name.format(i)}": 1' for i in range(9990))
        yield f'{{"train": {{{members}}}}}', f"train.{name.format(0)}", f"9990 keys like {name}"


def random_value(rng, spec):
    if "anyOf" in spec:
        return random_value(rng, rng.choice(spec["anyOf"]))
    kind = spec["type"]
    if kind == "boolean":
        return rng.random() < 0.5
    if "enum" in spec:
        return rng.choice(spec["enum"])
    if kind == "object":
        return {name: random_value(rng, member) for name, member in spec["properties"].items()}
    if kind == "string":
        return "".join(rng.choice("abc/._-\u00e9 $") for _ in range(rng.randint(1, 20)))
    if kind == "array":
        n = rng.randint(spec.get("minItems", 0), spec.get("maxItems", 4))
        items = [random_value(rng, spec["items"]) for _ in range(n)]
        return items if spec["items"]["type"] == "object" else sorted(items)
    low = spec.get("minimum", spec.get("exclusiveMinimum"))
    high = spec.get("maximum", spec.get("exclusiveMaximum"))
    if kind == "integer":
        return rng.choice((low, high, rng.randint(low, high), rng.randint(low, min(high, low + 9))))
    value = low + (high - low) * rng.uniform(0.01, 0.99)
    return rng.choice((value, float(f"{value:.2g}")))


# Keys that depend on others keep values that are valid in every combination.
TIED = {
    "data.source": "synthetic",
    "data.synthetic_train": 1 << 30,
    "data.synthetic_val": 100,
    "data.val_resize": 0,
    "data.train": "",
    "train.batch_size_per_rank": 0,
    "data.val": "",
    "data.val_fraction": 0,
    "model.num_classes": 10,
    "train.micro_batch_size": 0,
    "train.loss_scale": 0,
    "train.restore_best": False,
    "eval.weights": "both",
    "eval.metrics": ["loss"],
    "schedule.metric": "auto",
    "checkpoint.best_metric": "auto",
    "early_stop.metric": "top1",
    "early_stop.target": 75,
    "train.deterministic": False,
    "optim.nesterov": False,
    "optim.beta2": 0,
    "optim.eps": 0,
    "optim.trust_coefficient": 0.001,
    "optim.clip_value": 0,
    "optim.freeze": [],
    "optim.unfreeze_epoch": 0,
    "train.stages": [],
    "schedule.kind": "constant",
    "schedule.lr_scaling": "none",
    "schedule.warmup_epochs": 0,
    "schedule.warmup_steps": 0,
    "schedule.milestones": [],
    "device.kind": "auto",
    "comm.backend": "auto",
    "comm.grad_dtype": "auto",
    "comm.mode": "allreduce",
    "train.sync_every": 0,
    "train.average_states": False,
    "train.outer_momentum": 0,
    "model.name": "resnet20",
}


def valid_cases(keys, rng, n):
    for _ in range(n):
        config = {}
        for (section, name), spec in rng.sample(sorted(keys.items()), rng.randint(1, len(keys))):
            value = TIED.get(f"{section}.{name}", random_value(rng, spec))
            config.setdefault(section, {})[name] = value
        for path, value in TIED.items():
            section, name = path.split(".")
            config.setdefault(section, {})[name] = value
        yield json.dumps(config, ensure_ascii=False), None, "a valid configuration"


def try_case(dtrain, folder, number, case):
    """An error text or None, and the seconds taken."""
    text, path, what = case
    name = os.path.join(folder, f"{number}.json")
    with open(name, "w", encoding="utf-8") as out:
        out.write(text)
    start = time.monotonic()
    run = subprocess.run(
        [dtrain, "config", "show", "--config", name], capture_output=True, check=False
    )
    seconds = time.monotonic() - start
    message = run.stderr.decode()
    if path is None:
        return (f"{what} was rejected: {text}\n{message}" if run.returncode else None), seconds
    lines = [line for line in message.splitlines() if f": {path}: " in line]
    if run.returncode != 78 or len(lines) != 1 or f"{number}.json:1:" not in lines[0]:
        return f"{what}: code {run.returncode}, no single line with {path}:\n{message}", seconds
    return (f"{what}: {seconds:.1f} s" if seconds > SECONDS_MAX else None), seconds


def main():
    dtrain = sys.argv[1]
    schema = json.loads(
        subprocess.run([dtrain, "config", "schema"], capture_output=True, check=True).stdout
    )
    keys = {
        (section, name): spec
        for section, part in schema["properties"].items()
        for name, spec in part.get("properties", {}).items()
    }
    for path, spec in keys.items():
        if spec["description"].startswith("Detect"):  # and the model is a classifier
            TIED[".".join(path)] = spec["default"]
    is_long = "--long" in sys.argv
    cases = list(bad_cases(keys))[:: 1 if is_long else STRIDE]
    cases += large_cases()
    n_bad = len(cases)
    cases += valid_cases(keys, random.Random(8), N_VALID if is_long else N_VALID // 5)
    with tempfile.TemporaryDirectory() as folder:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(try_case, dtrain, folder, i, case) for i, case in enumerate(cases)]
            results = [job.result() for job in jobs]
    failures = [text for text, _ in results if text]
    for text in failures[:20]:
        sys.stderr.write(text + "\n")
    print(f"{len(keys)} keys, {n_bad} wrong and {len(cases) - n_bad} valid files:")
    print(f"{len(failures)} failures, at most {max(seconds for _, seconds in results):.2f} s")
    return 1 if failures or n_bad < (10 if is_long else 1) * len(keys) else 0


sys.exit(main())
