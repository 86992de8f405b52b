"""Reading COCO's annotations beside Python's json and, where libyajl-dev is installed, yajl.

    python3 tests/perf/coco_read.py BUILD/tests/input_tool [--megabytes 450] [--rounds 5] [--json FILE]

Makes a file like instances_train2017.json (at 450 MB: 118,287 images, 860,001 boxes with polygons)
and reads it in every round with dtrain, with yajl (its callbacks only, which take no number) and,
in the first round, with Python. Printed: time by the clock and CPU time (medians), peak memory (no
less than that of this script)."""

import os
import random
import statistics
import subprocess
import sys
import tempfile

import results_file
import turns

IMAGES, BOXES, MEGABYTES = 118287, 860001, 450.0
PYTHON = """
import json, resource, sys, time
begin = time.perf_counter(), time.process_time()
found = json.load(open(sys.argv[1]))
print(json.dumps({"images": len(found["images"]), "clock_s": time.perf_counter() - begin[0],
    "cpu_s": time.process_time() - begin[1],
    "peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""
YAJL = r"""
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <yajl/yajl_parse.h>
static size_t n;
static int any(void *c) { (void)c; return 1; }
static int boolean(void *c, int value) { (void)c; (void)value; n++; return 1; }
static int text(void *c, const char *s, size_t bytes) { (void)c; (void)s; (void)bytes; n++; return 1; }
static int string(void *c, const unsigned char *s, size_t bytes) { (void)c; (void)s; (void)bytes; n++; return 1; }
static double seconds(clockid_t id) { struct timespec t; clock_gettime(id, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
int main(int argc, char **argv)
{
    static unsigned char block[1 << 18];
    yajl_callbacks calls = {any, boolean, 0, 0, text, string, any, string, any, any, any};
    yajl_handle parser = yajl_alloc(&calls, 0, 0);
    FILE *file = fopen(argv[argc - 1], "rb");
    double clock = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    struct rusage usage;
    size_t got;
    while ((got = fread(block, 1, sizeof block, file)) > 0)
        if (yajl_parse(parser, block, got) != yajl_status_ok)
            return 1;
    if (yajl_complete_parse(parser) != yajl_status_ok)
        return 1;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"clock_s\": %.6f, \"cpu_s\": %.6f, \"peak_kib\": %ld, \"values\": %zu}\n",
           seconds(CLOCK_MONOTONIC) - clock, seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu, usage.ru_maxrss, n);
}
"""


def write_list(file, key, items):
    file.write(f'"{key}": [')
    for i, item in enumerate(items):
        file.write((", " if i else "") + item)
    file.write("]")


def images(rng, ids):
    for i in ids:
        name = f"{i:012}.jpg"
        yield (
            f'{{"license": 3,"file_name": "{name}","coco_url": "http://images.cocodataset.org/train2017/{name}",'
            f'"height": {rng.randint(200, 640)},"width": {rng.randint(300, 640)},"date_captured": '
            f'"2013-11-14 11:18:45","flickr_url": "http://farm9.staticflickr.com/8186/{i}_4e622c8349_z.jpg","id": {i}}}'
        )


def boxes(rng, ids, n):
    polygons = [
        ",".join(f"{rng.randint(0, 64000) / 100:.2f}" for _ in range(2 * rng.randint(8, 44)))
        for _ in range(2000)
    ]
    for i in range(n):
        x, y, w, h = (rng.random() * 100 + 1 for _ in range(4))
        yield (
            f'{{"segmentation": [[{rng.choice(polygons)}]],"area": {w * h / 2:.5f},"iscrowd": 0,"image_id": '
            f'{rng.choice(ids)},"bbox": [{x:.2f},{y:.2f},{w:.2f},{h:.2f}],"category_id": {rng.randint(1, 80)},'
            f'"id": {100000 + 2 * i}}}'
        )


def make_file(path, megabytes):
    rng = random.Random(1)
    n_images = max(1, int(IMAGES * megabytes / MEGABYTES))
    ids = rng.sample(range(1, 581930), n_images)
    with open(path, "w") as file:
        file.write('{"info": {"year": 2017},')
        write_list(file, "images", images(rng, ids))
        file.write(",")
        write_list(file, "annotations", boxes(rng, ids, int(BOXES * megabytes / MEGABYTES)))
        file.write(",")
        write_list(file, "categories", (f'{{"id": {i},"name": "c{i}"}}' for i in range(1, 81)))
        file.write("}")


def build_yajl(folder):
    program = os.path.join(folder, "yajl")
    command = ["cc", "-O2", "-D_GNU_SOURCE", "-xc", "-", "-lyajl", "-o", program]
    built = subprocess.run(command, input=YAJL, text=True, stderr=subprocess.DEVNULL)
    return [program] if built.returncode == 0 else None


def main():
    args = turns.parser("tool", megabytes=MEGABYTES, rounds=5, json=None).parse_args()
    results = {}
    with tempfile.TemporaryDirectory(prefix="dtrain-coco-") as folder:
        path = os.path.join(folder, "instances.json")
        make_file(path, args.megabytes)
        size = os.path.getsize(path)
        commands = {
            "dtrain": [args.tool, "coco", path],
            "yajl, callbacks only": (yajl := build_yajl(folder)) and yajl + [path],
            "python json": [sys.executable, "-c", PYTHON, path],
        }
        for i in range(args.rounds):
            for name, command in commands.items():
                if command and (i == 0 or name != "python json"):
                    results.setdefault(name, []).append(turns.answer(*command))
    table = {
        name: {
            "clock_s": statistics.median(r["clock_s"] for r in rounds),
            "cpu_s": statistics.median(r["cpu_s"] for r in rounds),
            "peak_mb": max(r["peak_kib"] for r in rounds) * 1024 / 1e6,
            "rounds": len(rounds),
        }
        for name, rounds in results.items()
    }
    print(f"{size / 1e6:.0f} MB")
    for name, row in table.items():
        speed = size / 1e6 / row["cpu_s"]
        times = f"{row['clock_s']:7.2f} s, {row['cpu_s']:7.2f} s CPU ({speed:6.0f} MB/s)"
        print(f"{name:22} {times}, {row['peak_mb']:7.0f} MB")
    results_file.save(args.json, {"bytes": size, "readers": table})


main()
