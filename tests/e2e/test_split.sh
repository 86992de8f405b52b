#!/bin/bash
# data.val_fraction: nested folders of JPEG and PNG files are divided alike on any number of ranks and
# in dtrain eval; a CSV file of the same images can be used instead; other splits are other runs.
. "$(dirname "$0")/../e2e/common.sh"
shapes train 12 1
/usr/bin/python3 - "$work/train" <<'PYTHON' || exit 77
import csv, glob, os, sys
try:
    from PIL import Image
except ImportError as error:
    sys.exit(f"skipped: {error}")
os.chdir(sys.argv[1])
for i, path in enumerate(sorted(glob.glob("*/*.jpg"))):
    folder = os.path.join(os.path.dirname(path), f"part {i % 3}", "in")
    os.makedirs(folder, exist_ok=True)
    to = os.path.join(folder, os.path.basename(path))
    if i % 2:
        Image.open(path).convert(["L", "RGBA", "P", "LA"][i // 2 % 4]).save(to[:-3] + "png")
        os.unlink(path)
    else:
        os.rename(path, to)
with open("../all.csv", "w", newline="") as f:
    table = csv.writer(f)
    table.writerow(["label", "path"])
    table.writerows([path.split("/")[0], "train/" + path] for path in glob.glob("*/*/*/*.*"))
PYTHON
echo notes > "$work/train/ring/notes.txt"
small_config | sed 's/"val": "[^"]*"/"val_fraction": 0.25/' > "$work/config.json"

for ranks in 1 2; do
    train $ranks run$ranks
    [ "$(grep -c "skipped under $work/train, by suffix: 1 .txt" "$work/log")" = 1 ] ||
        fail "no word about notes.txt, or more than one: $(cat "$work/log")"
done
mv "$work/log" "$work/log2"
for ranks in 1 2 3; do
    ends 0 "" on_ranks $ranks "$dtrain" eval --config "$work/config.json" --weights "$work/run1"
    mv "$work/out" "$work/eval$ranks"
    cmp "$work/eval1" "$work/eval$ranks" || fail "the numbers differ on $ranks ranks"
done
n_val=$(sed 's/.*"images": *\([0-9]*\).*/\1/' "$work/eval1")
echo "$n_val of 120 images are for validation"
grep -q " $((120 - n_val)) training and $n_val validation images" "$work/log2" ||
    fail "training and evaluation use different images"

# Other data are evaluated if they are named; not silently if they were trained on.
trained="the weights were trained on images of $work/train that are now evaluated"
(cd "$work" && ends 0 "$trained" "$dtrain" eval run1 --set data.val=../${work##*/}/train)
shows '"images": *120'
ends 0 "$trained" "$dtrain" eval "$work/run1" --set data.val_fraction=0.5
cp -r "$work/train" "$work/other"
for setting in data.val="$work/other" data.val_fraction=0.25; do
    ends 0 "" "$dtrain" eval "$work/run1" --set "$setting"
    never_says "the weights were trained on"
done
train 1 all --set data.val_fraction=0
says "120 training and no validation images (set data.val or data.val_fraction)"
ends 78 "data.val: not given; .*or train with data.val_fraction" "$dtrain" eval "$work/all"

# The same images from a table; half of them.
train 1 table --set data.source=csv --set data.train="$work/all.csv" --set data.max_train=40
says " 40 training and "

# Another split leaves out other images, so it is not the same run.
ends 78 "data.val_fraction: was 0.25, now 0.3" "$dtrain" --config "$work/config.json" --out "$work/run1" \
    --set data.val_fraction=0.3 --set train.max_steps=30
