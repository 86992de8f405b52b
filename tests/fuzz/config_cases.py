"""Configurations: hand-made mistakes, and those derived from the schema that the program prints:
every key with values of other types or out of range, misspelt, given twice. Each must be refused
with one line that names place, path and mistake; random valid configurations must be accepted.
"""

import json
import os
import random
import re
import subprocess
import sys

import cases

# Keys with values -> a part of the message about the first of them, or "@" and another path before
# it. Each is tried as a file, with each key on a line of its own, and, without variables, by --set.
MISTAKES = """\
schedule.lr=1e999 -> too large
train.epohcs=3 -> unknown key; did you mean train.epochs?
train.EPOCHS=3 -> did you mean train.epochs?
train.lr=0.1 -> did you mean schedule.lr?
optim.betas=[1] -> did you mean optim.beta2?
optim.slots=2 -> optim has the keys name, momentum
train.epochs="ten" -> expected an integer from 1 to 100000, got "ten"
train.epochs=2.5 -> got 2.5
train.epochs=true -> got true
train.global_batch_size={} -> got an object
train.deterministic=1 -> expected true or false, got 1
optim.nesterov="yes" -> got "yes"
model.name="resnet5O" -> there is no model "resnet5O"; did you mean "resnet50"?
model.name="tacotron" -> the models are resnet18, 
model.dropout=-0.3 -> from 0, below 1, or -1, got -0.3
model.stochastic_depth=0.2 -> only EfficientNet and ConvNeXt have it, not "resnet50"
schedule.lr="0.1" -> expected a number above 0
data.mean=0.5 -> expected a list of 3 numbers
schedule.milestones=[30, "60"] -> got "60"
train.epochs=0 -> got 0
train.epochs=100001 -> got 100001
train.global_batch_size=-4 -> got -4
train.seed=-1 -> from 0 to 9007199254740991, got -1
train.seed=9007199254740993 -> to 9007199254740991, got 9007199254740992
train.global_batch_size=3000000000 -> got 3000000000
schedule.lr=0 -> expected a number above 0, up to 1000, got 0
optim.momentum=1 -> expected a number from 0, below 1
train.label_smoothing=-0.1 -> got -0.1
data.mean=[0.5, 0.5] -> got a list of 2
data.std=[0.5, 0.5, 0] -> above 0, up to 1, got 0
output.dir="" -> got ""
model.image_size=7 -> from 8 to 2048, got 7
output.dir="${DTRAIN_T_UNSET}/run" -> the environment variable DTRAIN_T_UNSET is not set where \
rank 0 runs; set it, or write ${DTRAIN_T_UNSET:-VALUE}
data.train="${DTRAIN_T_EMPTY}" -> T_EMPTY is empty
data.train="${DTRAIN_T_BYTES:-x}" -> is not UTF-8
data.val="${DTRAIN_T_UNSET:-${DTRAIN_T_EMPTY}}" -> is empty
output.dir="${DTRAIN_T_EMPTY:-}" -> 1 to 1023 bytes, got ""
output.dir="${DTRAIN_T_LONG}" -> (and more)
output.dir="a${" -> expected ${NAME} or ${NAME:-VALUE}, got "${"; $${ stands for ${ itself
output.dir="${A" -> got "${A"
output.dir="${}" -> got "${}"
output.dir="${A:-{}" -> got "${A:-{}"
output.dir="${0..9}" -> got "${0..9}"
output.dir="${A-b}" -> got "${A-b}"
model.name="${DTRAIN_T_MODEL}" -> there is no model "resnet5O"; did you mean "resnet50"?
train.precision="${DTRAIN_T_MODEL}" -> got "${DTRAIN_T_MODEL}"
train.precision="fp23" -> did you mean "fp32"?
train.precision="FP32" -> did you mean "fp32"?
data.scaled_decode="half" -> expected one of "never", "train", "always", got "half"
eval.metrics=["loss", "top2"] -> expected a list of some of "loss", "top1", "top5", 
eval.metrics="loss" -> got "loss"; write ["loss"]
train.class_weights="balance" -> expected one of "none", "balanced", or a list of at most 1000 \
numbers from 1e-06 to 1000000, got "balance"; did you mean "balanced"?
train.class_weights=[] -> got a list of 0
train.class_weights=[1, 0] -> got 0
train.stages=[{"epoch": 1}, {"epoch": -1}] -> @train.stages[1].epoch expected an integer from 0 \
to 100000, got -1
train.stages=[{"batch": 8}] -> @train.stages[0] a member is missing
train.stages=[{"epoch": 1, "size": 8}] -> @train.stages[0].size unknown key; train.stages takes \
a list of at most 16 objects with "epoch" (
train.stages=[{"epoch": 3}, {"epoch": 3}] -> epoch 3 after 3 is not in ascending order
train.class_weights=2 -> got 2
schedule.kind=3 -> expected one of "constant"
data.source="shards" -> @data.train data.source is "shards"
data.val_fraction=0.1 data.train="a" data.val="b" -> 0.1 of data.train, but data.val is given too
data.val_fraction=0.1 -> the images are generated
data.val_fraction=1 data.train="a" -> below 1
data.train="" data.source="folder" -> data.source is "folder"
data.synthetic_train=100 -> fewer than train.global_batch_size 256
data.val_resize=200 -> smaller than model.image_size 224
train.batch_size_per_rank=32 train.global_batch_size=64 -> train.global_batch_size 64 is given \
too; leave one of them out
train.micro_batch_size="all" -> "auto" or an integer from 0 to 65536
train.deterministic=true comm.algorithm="library" -> adds in no fixed order
early_stop.target=0.75 -> 0.75 is in per cent; did you mean 75?
early_stop.target=90 early_stop.metric="auc" -> auc lies between 0 and 1; did you mean 0.9?
early_stop.target=36 early_stop.metric="auto" $detector -> ap lies between 0 and 1; did you mean \
0.36?
early_stop.metric="ap" -> "ap" is not for classifiers, whose metrics are loss, top1, top5, \
balanced_accuracy
model.canvases=["96x60"] $detector -> "96x60" is not a size WIDTHxHEIGHT
model.canvases=["96x64 "] $detector -> is not a size WIDTHxHEIGHT
model.canvases=["4096x64"] $detector -> multiples of 32 up to 2048
model.canvases=["96x64", "32x32", "96x64"] $detector -> 96x64 is listed twice
data.min_side=80 $detector model.canvases=["96x64"] -> the shorter side of every canvas is at \
most 64
data.min_side=80 $detector data.max_side=79 -> 80 is more than data.max_side 79
data.min_side_low=80 $detector -> which is not given
data.min_side_low=80 $detector data.min_side=64 -> 80 is more than data.min_side 64
data.stretch=true $detector data.max_side=64 -> fills the canvas
early_stop.metric="top1" $detector -> is not for detectors, whose metrics are train_loss, ap, \
ap50, ap75
schedule.metric="ap50" -> is not for classifiers
checkpoint.best_metric="ap" -> is not for classifiers
eval.metrics=["auc", "ap75"] -> "ap75" is not for classifiers
early_stop.patience=3 data.synthetic_val=0 -> no validation data
early_stop.target=90 data.synthetic_val=0 -> no validation data
early_stop.patience=2 data.source="folder" data.train="a" -> no validation data
train.restore_best=true data.source="folder" data.train="a" -> no validation data
optim.nesterov=true optim.momentum=0 -> optim.momentum
optim.nesterov=true optim.name="lars" -> only optim.name
optim.beta2=0.9 -> "sgd" keeps no squared gradients
optim.eps=1e-08 -> "sgd" has no denominators
optim.trust_coefficient=0.02 -> only "lars"
optim.clip_value=1 optim.clip_norm=1 -> optim.clip_norm 1
optim.unfreeze_epoch=3 -> lists nothing
schedule.warmup_epochs=4 train.epochs=3 -> longer than train.epochs 3
schedule.milestones=[30, 60, 60] -> 60 after 60 is not in ascending order
schedule.milestones=[] -> empty
schedule.warmup_steps=9 schedule.warmup_epochs=4 -> schedule.warmup_epochs 4 is given too; leave \
one of them out
schedule.lr_base_size=0 -> set schedule.lr_scaling to "none"
train.loss_scale=1024 -> applies to train.precision fp16 only
train.loss_scale=1024 train.precision="bf16" -> fp16 only
train.loss_scale=33554432 train.precision="fp16" -> a number from 0 to 16777216
model.num_classes=1 -> 1 class leaves nothing to learn
schedule.factors=[1, 0.5] schedule.kind="piecewise" -> needs one for each of the 3 \
schedule.milestones, not 2
schedule.kind="plateau" eval.every_epochs=0 -> eval.every_epochs is 0
schedule.kind="plateau" data.synthetic_val=0 -> no validation data
schedule.min_lr=1 schedule.kind="cosine" -> larger than schedule.lr 0.1
comm.backend="nccl" device.kind="cpu" -> needs a GPU
comm.grad_dtype="bf16" train.precision="fp16" -> another 16-bit type
comm.mode="central" comm.backend="nccl" -> needs comm.backend "mpi"
comm.mode="async" comm.grad_dtype="bf16" -> fp32 only
comm.mode="async" train.deterministic=true -> who is first
train.sync_every=4 comm.mode="central" -> updates in every step
train.sync_every=4 comm.grad_dtype="fp16" -> averaged in fp32
train.sync_every=4 train.max_steps=6 -> not a multiple of 4
train.average_states=true -> above 1
train.outer_momentum=0.5 -> above 1
train.virtual_ranks=8 -> depend on device.threads
train.virtual_ranks=8 device.threads=1 comm.mode="central" -> comm.mode "allreduce"
train.virtual_ranks=8 device.threads=1 comm.grad_dtype="bf16" -> summed in fp32
train.virtual_ranks=8 device.threads=1 train.micro_batch_size=4 -> remove train.micro_batch_size
"""
DETECTOR = 'model.name="retinanet_resnet18_fpn"'
ENVIRONMENT = {
    "DTRAIN_T_LONG": "x" * 4096,
    "DTRAIN_T_EMPTY": "",
    "DTRAIN_T_BYTES": b"a\xff",
    "DTRAIN_T_MODEL": "resnet5O",
}

# Files as they are: text, line, beginning of the message after the column.
FILES = (
    ("", 1, "expected a value, but the text ends here"),
    ('\n{"train": {"epochs": 3}', 2, "'{' without its '}'"),
    ('{"train": {"epochs": 3}}\n}', 2, "expected the end of the text"),
    ('{"train": {"epochs": 3}} more', 1, "expected the end of the text"),
    ('{"train": {"epochs": 03}}', 1, "*leading zero"),
    ('{"train": {"epochs": 3,}}', 1, "*comma before '}'"),
    ("// my run\n{}", 1, '*JSON has no comments, use a key "_comment"'),
    ('{"schedule": {\n"lr": .1}}', 2, "*JSON numbers look like"),
    ('{"schedule": {"lr": NaN}}', 1, "expected a value, got 'N'"),
    ("{'train': {}}", 1, "*double quotes"),
    ('{"train": {}, \n"train": {}}', 2, "train: key appears twice"),
    ('{"train": {"seed": 1,\n\n"seed": 2}}', 3, "train.seed: key appears twice"),
    ('{"train": {"epochs": 3, "epo\\u0063hs": 4}}', 1, "train.epochs: key appears twice"),
    (b'{"output": {"dir": "a\xff"}}', 1, "*not UTF-8"),
    ('{"output": {"dir": "a\tb"}}', 1, "*control character"),
    (b"\xef\xbb\xbf{}", 1, "*byte-order mark"),
    ("[" * 17 + "]" * 17, 1, "*nested"),
    ("[" * 40, 1, "*nested"),
    ("[]", 1, "configuration: expected an object, got a list"),
    ("3", 1, "configuration: expected an object, got 3"),
    ('\n{"train": 5}', 2, "train: expected an object with the keys of train, got 5"),
    ('{"train": null}', 1, "train: *got null"),
    ('{"data": ["x"]}', 1, "data: *got a list"),
    ('{"Train": {}}', 1, "Train: *did you mean train?"),
    ('{"trian": {"epochs": 3}}', 1, "trian: *did you mean train?"),
    ('{"model": {"name": 50}}', 1, "model.name: expected a string of 1 to 63 bytes, got 50"),
    ('{"output": {"dir": null}}', 1, "output.dir: *got null"),
    ('{"epochs": 3}', 1, "epochs: *did you mean train.epochs?"),
    ('{"lr": 3}', 1, "lr: *did you mean schedule.lr?"),
    ('{"train.epochs": 3}', 1, "train.epochs: *nested objects instead of a dot"),
    ('{"a\\nb": 1}', 1, "a?b: unknown key"),
    ('{"comments": "x"}', 1, "comments: unknown key"),
    ('{"model": {"name": "tiny", "": 1}}', 1, "model.: unknown key"),
)

SETS = (  # arguments of --set, message
    (["train.epochs"], "train.epochs: expected key.path=value"),
    (["=3"], ": expected key.path=value"),
    (["amp=true"], "amp: *use train.precision=fp16 (or bf16)"),
    (["train=3"], "train: expected an object with the keys of train, got 3"),
    (["device=gpu"], 'device: *got "gpu"; did you mean device.kind=gpu?'),
    (["optim=adam"], 'optim: *got "adam"; did you mean optim.name=adam?'),
    (["model.name=resnet5O"], 'model.name: *did you mean "resnet50"'),
    (["train.deterministic=yes"], "train.deterministic: expected true or false"),
    (["data.train=a\xff"], "data.train: the value is too long or not UTF-8"),
    (["train.epochs=x", "a.b=1", "model.name="], "train.epochs: *a.b: *model.name: "),
)

GOOD = (
    "{}",
    '{"$schema": "x", "_comment": "a", "//": [1, 2], "train": {"epochs": 9}}',
    '{"train":{"seed":-0,"epochs":1e2,"max_steps":1.5e3},"early_stop":{"target":99.9999999999}}',
    '{"output": {"dir": "a\\u00e9\\ud83d\\ude00\\n\\"\\\\/"}}',
    '{"output":{"dir":"${HOME:-}/${USER:-a}/$${b}"},"data":{"val":"${X:-${Y:-t-{0..9}}}"}}',
    '{"model": {"name": "resnet20"}, "data": {"source": "folder", "train": "a", "val": "b"},'
    '"schedule": {"kind": "step", "milestones": [1, 2], "lr": 1e-3, "warmup_epochs": 0}}',
)
GOOD_SETS = (
    ["train.epochs=9", "output.dir=2024", "data.mean=[0,0,0]"],
    ['train={"epochs": 9, "global_batch_size": 8}', "schedule.kind=poly"],
)


def as_file(text):
    return b"f" + (text if isinstance(text, bytes) else text.encode())


def as_sets(sets):
    return b"s" + b"".join(text.encode("latin-1") + b"\0" for text in sets)


def file_of(settings):
    """{"section": {...}} with each key on a line of its own, and the line of each key."""
    sections, lines, out = {}, {}, "{"
    for setting in settings:
        path, value = setting.split("=", 1)
        sections.setdefault(path.split(".")[0], []).append((path, value))
    for number, (section, members) in enumerate(sections.items()):
        out += f'{", " if number else ""}"{section}": {{'
        for k, (path, value) in enumerate(members):
            out += f'{"," if k else ""}\n"{path.split(".")[1]}": {value}'
            lines[path] = out.count("\n") + 1
        out += "}"
    return out + "}", lines


def hand_made():
    for row in MISTAKES.splitlines():
        given, what = row.replace("$detector", DETECTOR).split(" -> ")
        settings = re.split(r" (?=[a-zA-Z_]+\.[a-zA-Z_0-9]+=)", given)
        text, lines = file_of(settings)
        path = settings[0].split("=")[0]
        line = lines[path]
        if what.startswith("@"):
            path, what = what[1:].split(" ", 1)
            line = lines.get(path.split("[")[0])
        place = f"@:{line}:*" if line else "@"
        yield given, as_file(text), f"bad {place}: {path}: *{what}"
        if "${" not in given and "1e999" not in given:
            place = "--set" if line else "configuration"
            yield "--set " + given, as_sets(settings), f"bad {place}: {path}: *{what}"
    for text, line, what in FILES:
        yield str(text), as_file(text), f"bad @:{line}:*: {what}"
    for sets, what in SETS:
        yield "--set", as_sets(sets), f"{'bad' if len(sets) == 1 else 'many'} --set: {what}"
    for text in GOOD:
        yield text, as_file(text), "ok"
    for sets in GOOD_SETS:
        yield "--set", as_sets(sets), "ok"
    yield "2 MiB", as_file(" " * (2 << 20)), "bad @*at most 1048576"
    yield "nothing", b"", "any"


# --- Derived from the schema ---

LITERALS = {  # text in the file -> type for a JSON parser; None: not JSON
    "null": (None,),
    "true": (True,),
    '"text"': ("text",),
    '"12"': ("12",),
    '"' + "x" * 4000 + '"': ("x" * 4000,),
    "[1]": ([1],),
    "[[1]]": ([[1]],),
    "[true, true, true]": ([True, True, True],),
    "{}": ({},),
    '{"a": 1}': ({"a": 1},),
    "-1": (-1,),
    "0": (0,),
    "1e300": (1e300,),
    "-1e300": (-1e300,),
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


def bad_cases(keys):
    for (section, name), spec in keys.items():
        path = f"{section}.{name}"
        good = json.dumps(spec["default"])

        def case(key, text, what, section=section, path=path):
            text = f'{{"{section}": {{\n"{key}": {text}}}}}'
            return f"{path}: {text[:60]}", as_file(text), f"bad @:2:*: {section}.{what}"

        for text, value in LITERALS.items():
            is_row = text[0] == "[" and spec.get("items", {}).get("type") == "object"
            if value is None:
                yield case(name, text, f"{name}: *too large")
            elif not fits(spec, value[0]):
                yield case(name, text, f"{name}{'[0]' * is_row}: expected ")
        if spec.get("type") == "string" and "enum" not in spec:
            for text in ('"${DTRAIN_UNSET}"', '"a/${DTRAIN_UNSET:-b"', '"${DTRAIN_UNSET:b}"'):
                yield case(name, text, f"{name}: ")
        limit = spec.get("maximum", spec.get("exclusiveMaximum"))
        if limit is not None:
            above = limit + 1
            yield case(name, above, f"{name}: expected ")
        for key in (name + "x", name.capitalize(), "_" + name):
            yield case(key, good, f"{key}: unknown key; did you mean {path}?")
        middle = len(name) // 2
        for key in (name[:middle] + "q" + name[middle + 1 :], name.upper(), name + "_2"):
            yield case(key, good, f"{key}: unknown key")
        yield case(name, f'{good}, "{name}": {good}', f"{name}: key appears twice")


def large_cases():
    """Files at the size limit: thousands of mistakes, each with a search for the nearest key."""
    for name in ("global_bat{:06}", "{:092}", "epoch{}"):
        members = ", ".join(f'"{name.format(i)}": 1' for i in range(9990))
        first = f"many @:1:*: train.{name.format(0)}: *(and *more mistakes)"
        yield f"9990 keys like {name}", as_file(f'{{"train": {{{members}}}}}'), first


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


# Keys that depend on others keep their defaults, or values that are valid in every combination.
TIED_TO_DEFAULTS = """
    checkpoint.best_metric comm.backend comm.grad_dtype comm.mode data.train data.val data.val_fraction
    data.val_resize device.kind eval.weights model.stochastic_depth optim.beta2
    optim.clip_value optim.eps optim.freeze optim.nesterov optim.trust_coefficient optim.unfreeze_epoch
    schedule.metric schedule.warmup_steps train.average_states train.batch_size_per_rank
    train.deterministic train.loss_scale train.micro_batch_size train.outer_momentum train.restore_best
    train.stages train.sync_every train.virtual_ranks
""".split()
TIED = {
    "data.source": "synthetic",
    "data.synthetic_train": 1 << 30,
    "data.synthetic_val": 100,
    "early_stop.metric": "top1",
    "early_stop.target": 75,
    "eval.metrics": ["loss"],
    "model.name": "resnet20",
    "model.num_classes": 10,
    "schedule.kind": "constant",
    "schedule.lr_scaling": "none",
    "schedule.milestones": [],
    "schedule.warmup_epochs": 0,
}


def valid_cases(keys, rng, n):
    for _ in range(n):
        config = {}
        for (section, name), spec in rng.sample(sorted(keys.items()), rng.randint(1, len(keys))):
            value = TIED.get(f"{section}.{name}", random_value(rng, spec))
            value = max(value, 0) if name == "dropout" else value  # below 0 only -1 has a meaning
            config.setdefault(section, {})[name] = value
        for path, value in TIED.items():
            section, name = path.split(".")
            config.setdefault(section, {})[name] = value
        yield "a valid configuration", as_file(json.dumps(config, ensure_ascii=False)), "ok"


def generated(is_long):
    dtrain = os.path.join(os.path.dirname(sys.argv[1]), "..", "..", "dtrain")
    schema = json.loads(
        subprocess.run([dtrain, "config", "schema"], capture_output=True, check=True).stdout
    )
    keys = {
        (section, name): spec
        for section, part in schema["properties"].items()
        for name, spec in part.get("properties", {}).items()
    }
    for path, spec in keys.items():
        name, is_for_detectors = ".".join(path), spec["description"].startswith("Detect")
        if name in TIED_TO_DEFAULTS or is_for_detectors:  # the model is a classifier
            TIED[name] = spec["default"]
    bad = list(bad_cases(keys))
    assert len(bad) >= 10 * len(keys)
    yield from bad
    yield from large_cases()
    yield from valid_cases(keys, random.Random(8), 2000 if is_long else 200)


cases.main("config", list(hand_made()), generated, ENVIRONMENT)
