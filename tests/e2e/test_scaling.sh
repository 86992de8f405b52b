#!/bin/bash
# scripts/scaling.sh measures every point once, continues where it stopped and draws the result.
. "$(dirname "$0")/common.sh"
export DTRAIN="$dtrain"
out=$work/scaling
report=$here/../../scripts/scaling_report.py
scaling() {
    "$here/../../scripts/scaling.sh" --out "$out" "$@"
}
quick=(--set model.name=tiny --set model.image_size=32 --set model.num_classes=10
    --set bench.rounds=2 --set bench.steps_per_round=2 --set bench.warmup_steps=1
    --set device.kind=cpu --set device.threads=1)

scaling --np 1,2 --repeat 1 --batch-size 4 -- "${quick[@]}" > "$work/out" ||
    fail "$(cat "$work/out" "$out"/*.log)"
[ "$(grep -c "^scaling: [12] of 2: " "$work/out")" = 2 ] || fail "progress: $(cat "$work/out")"
# Only what is missing is measured.
scaling --np 1,2 --repeat 2 --batch-size 4 -- "${quick[@]}" > "$work/out"
[ "$(grep -c "^scaling: . of 4: " "$work/out")" = 2 ] || fail "again: $(cat "$work/out")"
for file in {1,2}-{1,2}; do
    [ -s "$out/synthetic-weak-np$file.json" ] || fail "no measurement $file"
done
grep -q "^  *1  .* 1.00 *100.0 %" "$work/out" || fail "no row of one rank in $(cat "$work/out")"
grep -q "^  *2  " "$work/out" || fail "no row of two ranks in $(cat "$work/out")"
/usr/bin/python3 - "$out" <<'PY'
import csv, json, statistics, sys, xml.etree.ElementTree as ET
out = sys.argv[1]
points = json.load(open(f"{out}/scaling.json"))["points"]
assert [(p["ranks"], p["repetitions"]) for p in points] == [(1, 2), (2, 2)], points
for p in points:
    runs = [json.load(open(f"{out}/{p['series']}-np{p['ranks']}-{i}.json"))["images_per_s"] for i in (1, 2)]
    assert abs(p["images_per_s"] - statistics.median(runs)) < 1e-6 * p["images_per_s"], (p, runs)
    assert abs(p["efficiency"] * p["ranks"] - p["images_per_s"] / points[0]["images_per_s"]) < 1e-9
rows = list(csv.DictReader(open(f"{out}/scaling.csv")))
assert [int(r["ranks"]) for r in rows] == [1, 2] and abs(float(rows[1]["efficiency"]) - points[1]["efficiency"]) < 1e-4
page = open(f"{out}/scaling.html").read()
root = ET.fromstring(page)
assert len(root.findall(".//figure/script")) == 3 and root.find(".//noscript//{*}polyline") is not None, page[:200]
cells = [[cell.text for cell in row] for row in root.find(".//table[@id='points']").iter("tr")]
assert [row[1:3] for row in cells[1:]] == [[str(p["ranks"]), f"{p['images_per_s']:.1f}"] for p in points], cells
drawn = json.loads(root.find(".//figure/script").text)["series"][0]
assert drawn["low"][1] <= drawn["y"][1] <= drawn["high"][1], drawn
PY

# Runs that were trained there tell their best accuracy, for the same network and number of ranks.
! grep -q "top-1" "$work/out" || fail "accuracy without a run"
small=(--set data.source=synthetic --set data.synthetic_train=16 --set data.synthetic_val=16
    --set train.global_batch_size=8 --set schedule.warmup_epochs=0 "${quick[@]}")
for ranks in 1 2; do
    on_ranks "$ranks" "$dtrain" "${small[@]}" --set train.epochs=2 --out "$out/run-$ranks" > "$work/log" 2>&1 ||
        fail "$(cat "$work/log")"
done
on_ranks 2 "$dtrain" "${small[@]}" --set train.epochs=1 --set model.name=resnet20 --out "$out/other" > "$work/log" 2>&1 ||
    fail "$(cat "$work/log")"
"$dtrain" "${small[@]}" --set train.epochs=1 --set data.synthetic_val=0 --out "$out/blind" > "$work/log" 2>&1 ||
    fail "$(cat "$work/log")"
mkdir "$out/nothing"
"$report" "$out" > "$work/out"
/usr/bin/python3 - "$out" "$work/out" <<'PY' || fail "$(cat "$work/out")"
import json, sys
out, table = sys.argv[1], open(sys.argv[2]).read().splitlines()
for ranks in (1, 2):
    events = map(json.loads, open(f"{out}/run-{ranks}/metrics.jsonl"))
    best = max(event["top1"] for event in events if event["event"] == "eval")
    points = json.load(open(f"{out}/scaling.json"))["points"]
    assert [p["top1"] for p in points if p["ranks"] == ranks] == [best], (points, best)
    column = table[1].index("   top-1")
    assert float(table[1 + ranks][column:column + 8]) == round(best, 2), table
    assert f"<td>{best:.2f}</td>" in open(f"{out}/scaling.html").read(), "the page has no top-1"
PY

# Numbers that are no measurement of scaling are marked.
mkdir "$work/noisy"
echo '{"images_per_s": 10, "ranks_per_cpu": 0.5}' > "$work/noisy/a-np1-1.json"
echo '{"images_per_s": 34.2, "ranks_per_cpu": 2}' > "$work/noisy/a-np2-1.json"
"$report" "$work/noisy" > "$work/out"
grep -q "^  *2 .* 171.0 %  more ranks than CPUs  above 100 %: noise" "$work/out" || fail "$(cat "$work/out")"
[ "$(grep -c "more ranks" "$work/out")" = 1 ] || fail "$(cat "$work/out")"
grep -q '"ranks_per_cpu"' "$out/synthetic-weak-np1-1.json" || fail "bench does not say how full the CPUs were"

# Names of files may have any characters.
mkdir "$work/odd"
cp "$out/synthetic-weak-np1-1.json" "$work/odd/<b>,\"x-np1-1.json"
"$report" "$work/odd" > /dev/null
grep -q "^_b___x,1,1," "$work/odd/scaling.csv" || fail "$(cat "$work/odd/scaling.csv")"
! grep -q "<b>" "$work/odd/scaling.html" || fail "the page has a tag from the name of a file"

# Several folders on one page; a storage with a name is a place of the training data.
"$dtrain" demo-data "$work/photos" --images-per-class 2 --size 32 > /dev/null
"$here/../../scripts/scaling.sh" --out "$work/places" --np 1 --batch-size 4 --repeat 1 --storage "ssd=$work/photos" \
    -- "${quick[@]}" --set data.source=auto > "$work/log" 2>&1 || fail "$(cat "$work/log")"
"$report" "$out" "$work/places" > "$work/log"
grep -q "/places/ssd-weak: tiny fp32; cpu, .*; [0-9-]*$" "$work/log" || fail "$(cat "$work/log")"
[ "$(wc -l < "$out/scaling.csv")" = 4 ] || fail "$(cat "$out/scaling.csv")"

refused 64 "holds measurements with other settings" scaling --np 1,2 --batch-size 8 -- "${quick[@]}"
refused 64 "\-\-storage is synthetic, disk, memory or NAME=PATH" scaling --storage tape
refused 64 "there is no option --ranks" scaling --ranks 2
refused 64 "2;4 is not a list of numbers" scaling --np "2;4"

# An interruption ends the measurement and the script, not only the one or the other.
out=$work/stopped
"$here/../../scripts/scaling.sh" --out "$out" --np 1,2 --batch-size 4 -- "${quick[@]}" \
    --set bench.rounds=1000 --set bench.steps_per_round=1000 > "$work/out" 2>&1 &
while ! grep -q "^Iter #0" "$out"/*.log 2> /dev/null; do
    kill -0 $! || fail "it has ended: $(cat "$work/out")"
    sleep 0.1
done
kill $!
code=0
wait $! || code=$?
[ "$code" = 130 ] || fail "exit code $code after an interruption: $(cat "$work/out")"
[ "$(grep -c "^scaling: " "$work/out")" = 1 ] || fail "it went on: $(cat "$work/out")"
[ -z "$(pgrep -f "$out/synthetic")" ] || fail "left: $(pgrep -af "$out/synthetic")"

# A point that fails is named, the others are measured, and the exit code is that of dtrain.
out=$work/strong
refused 78 "1 of 2 measurements failed" scaling --mode strong --np 1,3 --batch-size 2 --repeat 1 -- "${quick[@]}"
[ -s "$out/synthetic-strong-np1-1.json" ] || fail "nothing was measured beside the failure"
refused 66 "has no measurements" "$report" "$work"
refused 64 "did you mean scripts/scaling_report.py" "$dtrain" scaling "$work"
