#!/bin/bash
# Classes have names: those of the training data decide which label a class has, in validation, in
# evaluation and when a run is resumed.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 6 1
shapes val 4 2
small_config | sed 's/"num_classes": 10, //; s/"source": "folder", //' > "$work/config.json"
train() { # folder settings...
    "$dtrain" --config "$work/config.json" --out "$work/$1" "${@:2}"
}
evaluate() { # weights settings...
    "$dtrain" eval --config "$work/config.json" --weights "$work/$1" "${@:2}"
}

# They are kept in the run folder and in the model.
ends 0 "images of 32 x 32, 10 classes" train base
ls "$work/train" | cmp - "$work/base/classes.txt" || fail "classes.txt"
model=$(model_of "$work/base")
head -c 4000 "$model" | grep -qaF '"classes":"'"$(head -1 "$work/base/classes.txt")"'\n' ||
    fail "no classes in the metadata of $model"

# A validation folder with one of the classes: the labels keep their meaning.
cp -r "$work/val" "$work/few"
find "$work/few" -mindepth 1 -maxdepth 1 -not -name square -exec rm -r {} +
mkdir "$work/alone"
cp -r "$work/train/square" "$work/alone/"
ends 0 "lacks 9 of 10 classes: checker, " evaluate base --set data.val="$work/few"
/usr/bin/python3 - "$work" "$dtrain" "$model" <<'PY'
import json, shutil, subprocess, sys
work, dtrain, model = sys.argv[1:]
def run(val):
    return json.loads(subprocess.run(
        [dtrain, "eval", "--config", f"{work}/config.json", "--weights", model, "--set",
         f"data.val={val}"], capture_output=True, check=True).stdout)
few = run(f"{work}/few")
# With labels of its own, class 0, the loss would be that of another class.
for name in ("checker", "square", "vbars"):
    shutil.rmtree(f"{work}/one", ignore_errors=True)
    shutil.copytree(f"{work}/val/{name}", f"{work}/one/{name}")
    result = run(f"{work}/one")
    assert (result["loss"] == few["loss"]) == (name == "square"), (name, result, few)
PY

# Classes the model does not know.
cp -r "$work/val" "$work/renamed"
mv "$work/renamed/square" "$work/renamed/quadrat"
refused 65 "renamed holds 1 class(es) that the model is not trained for: quadrat;" \
    evaluate base --set data.val="$work/renamed"
refused 65 "not trained for: quadrat" train new --set data.val="$work/renamed"
[ ! -e "$work/new/checkpoints" ] || fail "a refused run wrote checkpoints"
cp -r "$work/train" "$work/train2"
mv "$work/train2/square" "$work/train2/quadrat"
refused 78 "was trained for other classes: .*,square,.* then, .*,quadrat,.* now" \
    train base --set data.train="$work/train2" --set data.val= --set train.max_steps=30

# The number of classes.
refused 78 "has 10 classes (the last is vbars), but model.num_classes is 9" \
    train new --set model.num_classes=9
refused 65 "alone holds one class only" train new --set data.train="$work/alone" \
    --set data.val=

# A list of classes chooses and orders them.
printf 'square\r\ncircle\nring\n' > "$work/map"
ends 0 "images of 32 x 32, 3 classes" train subset --set data.class_map="$work/map"
says "data  *18 training and 12 validation images; the incomplete last batch of an epoch is dropped (6 images, different ones each epoch)$"
tr -d '\r' < "$work/map" | cmp - "$work/subset/classes.txt"
printf 'square\nsquare\n' > "$work/map"
refused 65 "map lists class square twice" train new --set data.class_map="$work/map"
refused 66 "nowhere" train new --set data.class_map="$work/nowhere"

# Numbers instead of names: the model has as many classes as it was trained for.
table() { # labels...
    echo path,label
    for label; do echo "train/ring/00000.jpg,$label"; done
}
table 0 1 2 0 1 2 0 1 2 0 1 2 0 1 2 0 1 2 > "$work/three.csv"
table 0 1 > "$work/two.csv"
ends 0 "" train numbers --set data.train="$work/three.csv" --set data.val=
ends 0 "" "$dtrain" eval "$work/numbers" --set data.val="$work/two.csv"
ends 0 "" "$dtrain" predict "$work/numbers" "$work/train/ring/00000.jpg"
[ "$(wc -l < "$work/out")" = 3 ] || fail "$(cat "$work/out")"
table 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 > "$work/one.csv"
ends 0 "no label is below 1: .*data.label_offset=1" train from_one --set data.train="$work/one.csv" --set data.val=
table 0 2000000000 > "$work/far.csv"
refused 65 "far.csv:3: label 2000000000 is out of range" train new --set data.train="$work/far.csv"

# Generated images only where no data are given, and they are asked for.
for what in train "train --dry-run" samples; do
    refused 78 "data.train: not given; name a folder .*, shards .*, or a .csv .*; generated images: --set data.source=" \
        "$dtrain" $what --set model.name=tiny
done
refused 78 'data.train: given, but data.source "synthetic"' train new --set data.source=synthetic \
    --set data.train="$work/train"
refused 66 "no data at .*/nowhere" train new --set data.train="$work/nowhere"

# Shards know their classes too, and mean the same by a label as the folder they were made from.
"$dtrain" shard "$work/val" "$work/shards" --prefix val 2> /dev/null
evaluate base > "$work/folder.json"
evaluate base --set data.val="$work/shards" > "$work/shards.json"
/usr/bin/python3 - "$work/folder.json" "$work/shards.json" <<'PY'
import json, sys
a, b = (json.load(open(path)) for path in sys.argv[1:])
assert a["top1"] == b["top1"] and abs(a["loss"] - b["loss"]) < 1e-5, (a, b)
PY
sed -i 's/square/quadrat/' "$work/shards/classes.txt"
refused 65 "not trained for: quadrat" evaluate base --set data.val="$work/shards"
