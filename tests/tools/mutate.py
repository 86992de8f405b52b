#!/usr/bin/env python3
"""Planted defects: does a test find them? tests/tools/mutate.py [--list] [NAME...]

Works on a copy of the tracked files in build-mutate. First the tests named below must be green; then one
defect after the other is planted, the programs that its tests start are built, and one of the tests must
be red. The exit code is 1 if a defect survives, does not compile or no longer applies."""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree

# Per defect: its name, the file, its tests (regular expressions of ctest); then what is there exactly once
# and what is there instead.
TABLE = r"""
frozen-gradient     src/graph/autodiff.c            ^unit/graph_
    DT_PARAM && !g->tensor[i].frozen; => DT_PARAM;
fuse-shared         src/graph/fuse.c                ^unit/graph_
    f->n_readers[between] != 1 || !is_plain => !is_plain
early-reduce        src/plan/buckets.c              ^plan/
    ->last_writer[g->node[n].program] = n; => ->last_writer[g->node[n].program] = n - 1;
forgotten-pass      src/plan/actions.c              ^plan/ ^dist/plan_sync-np2
    bucket->count, w->first); => bucket->count, true);
conv-relu           src/cpu/cpu_conv.c                  ^ops/
    dt_attr_create(&attr, exec->node->activation == DT_RELU) => dt_attr_create(&attr, false)
biased-variance     src/cpu/norm_block.c            ^unit/cpu_ ^ops/
    s.variance[i] * unbiased); => s.variance[i] * (unbiased > 0));
mixed-label         src/cpu/cpu_loss.c                  ^unit/cpu_ ^ops/
    weight2 = (1 - t.share) => weight2 = t.share
bias-correction     src/cpu/cpu_update.c                ^unit/cpu_ ^ops/
    dev->n_updates + 1, => dev->n_updates + 2,
cuda-pool-pad       src/cuda/cuda_pool.c                 ^emulated/cuda_ops_fp32
    shape.pad = node->attr.pool.pad; => shape.pad = 0;
kernel-max-pool     kernels/pool.cu                 ^emulated/cuda_pool
    sum[k] += index[k] == mine ? diff[k] : 0; => sum[k] = index[k] == mine ? diff[k] : sum[k];
kernel-norm         kernels/norm.cu                 ^emulated/cuda_norm
    m2 / (n > 1 ? n - 1 : 1)); => m2 / n);
ring-wire           src/comm/mpi.c                  ^dist/comm_reduce-np[23]
    if (now->is_first) => if (!now->is_first)
shuffle             src/data/sampler.c              ^unit/data_sampler
    i > 1; i--) => i > 2; i--)
loader-position     src/data/loader.c               ^unit/data_loader
    .m = first * (uint64_t)loader->options.split.n_passes => .m = first
tar-truncated       src/data/tar_walk.c             ^unit/data_ ^fuzz/tar
    if (end + TAR_BLOCK > past) => if (end > past)
coco-crowd          src/boxes/coco_rows.c            ^unit/boxes_coco ^fuzz/coco
    read_flag, &t->is_crowd, true => read_flag, &(bool){false}, true
resize-window       src/image/resize.c              ^unit/image_
    (centre + span->stretch + 0.5) => (centre + span->stretch - 0.5)
crop-fallback       src/image/crop.c                ^unit/image_
    rint(w / RATIO_MIN) => rint(w / RATIO_MAX)
st-size             src/checkpoint/safetensors.c    ^unit/checkpoint_ ^fuzz/safetensors
    if (end != data_bytes) => if (end > data_bytes)
manifest-text       src/checkpoint/manifest.c       ^unit/checkpoint_ ^faults/checkpoint_corruption
    memcmp(w.text, text, bytes) != 0) => memcmp(w.text, text, 1) != 0)
config-range        include/dtrain/config_keys.h    ^unit/config_ ^fuzz/config
    REAL(data, max_bad_fraction, 0.001, 0, 1, => REAL(data, max_bad_fraction, 0.001, 0, 2,
warm-up             src/engine/schedule.c            ^unit/engine_schedule
    rise * (double)(step + 1) / n_steps; => rise * (double)step / n_steps;
patience            src/train/best.c                ^dist/train_best-np2
    at->goal_waits >= stop->patience => at->goal_waits > stop->patience
replica-majority    src/engine/replicas.c            ^dist/engine_replicas
    if (2 * n_same > n) => if (2 * n_same >= n)
macro-f1            src/eval/class_metrics.c               ^unit/eval_ ^interop/sklearn
    m.support > 0 || m.n_predicted > 0; => m.support > 0;
nms-class           src/boxes/nms.c                ^unit/boxes_
    better[i].label == d->label && => true &&
ap-crowd            src/boxes/average_precision.c  ^unit/boxes_
    (t->is_crowd ? area : area + t => (false ? area : area + t
csv-repeated        src/events/csv.c                ^unit/events_ ^(interop|faults)/sinks
    >= *(const int64_t *)context; => > *(const int64_t *)context;
dead-rank           src/watch/diagnosis.c               ^unit/watch_diagnosis
    shortest = fmin(shortest, => shortest = fmax(shortest,
slow-writer         src/watch/watchdog.c            ^unit/watch_watchdog
    fmin(own->main.idle_s, own->writer => fmax(own->main.idle_s, own->writer
pack-index          src/pack/shard.c                ^unit/pack_ ^e2e/shard$
    name, output->position + TAR_BLOCK, bytes) => name, output->position, bytes)
json-zero           src/base/json_token.c           ^unit/base_json
    at - first > 1 && *first == '0') => at - first > 2 && *first == '0')
file-leftover       src/base/file.c                 ^unit/base_file
    (void)CHANGE(unlink(file->temporary)); => (void)file->temporary;
jitter              src/image/colour.c              ^interop/pil$
    0x1D2Fp-16f * rgb[2] + 0.5f; => 0x1D2Fp-16f * rgb[2];
exit-code           src/main.c                      ^e2e/.*stop
    return (int)status; => return status == DT_STOPPED ? 0 : (int)status;
resume-position     src/train/trainer.c             ^e2e/resume$
    (uint32_t)r->at.epoch, (uint64_t)r->at.batch); => (uint32_t)r->at.epoch, 0);
best-checkpoint     src/train/trainer.c             ^e2e/early_stop
    (is_best && config->checkpoint.keep_best) => (is_best && !config->checkpoint.keep_best)
restore-best        src/train/run.c                 ^e2e/early_stop
    best = r->engine.config->train.restore_best => best = !r->engine.config->train.restore_best
plateau-resume      src/train/resume_load.c         ^e2e/detect_eval
    engine->schedule.plateau = state->plateau.factor; => engine->schedule.plateau = 1;
eval-ranks          src/eval/classifier.c          ^e2e/eval_ranks
    dt_comm_sum_f64(sets->ranks.comm, sums, N) => dt_comm_sum_f64(sets->ranks.comm, sums, FINITE)
report-notes        src/page/table.c                ^unit/page_ ^e2e/report$
    runs[i].n_restarts, runs[i].n_warnings => runs[i].n_warnings, runs[i].n_restarts
durable-names       src/checkpoint/checkpoint_write.c          ^faults/power$
    return dt_file_sync_folder(s->temporary); => return DT_OK;
durable-data        src/base/file.c                 ^faults/power$
    const int synced = sync_fd(*fd), => const int synced = 0,
"""
ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = ROOT / "build-mutate" / "main"
BUILD = COPY / "build-dev"
ADD_TEST = re.compile(r'^add_test\((?:\[=\[|")?(.*?)(?:\]=\]|")? (.*)\)$', re.M)


def parse():
    lines = [line.strip() for line in TABLE.strip().splitlines()]
    for head, change in zip(lines[::2], lines[1::2]):
        name, file, *tests = head.split()
        yield name, file, "|".join(tests), *change.split(" => ")


def make_copy():
    """Files that have not changed keep their time, so that little is built anew."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    names = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    for path in [path for path in COPY.rglob("*") if path.is_file() and BUILD not in path.parents]:
        if str(path.relative_to(COPY)) not in names:
            path.unlink()
    for source, target in [(ROOT / name, COPY / name) for name in names]:
        if not target.exists() or source.read_bytes() != target.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    shared = COPY.parent / "shared"
    if not shared.exists() and (ROOT.parent / "shared").exists():
        shared.symlink_to((ROOT.parent / "shared").resolve())
    subprocess.run(["cmake", "--preset", "dev", "-G", "Ninja"], cwd=COPY, stdout=subprocess.DEVNULL, check=True)


def programs_of(tests):
    """The programs in the commands of the tests, and the tools that their scripts name."""
    for listing in BUILD.rglob("CTestTestfile.cmake"):
        for name, command in ADD_TEST.findall(listing.read_text()):
            for word in re.findall(r'"(.*?)"', command) if re.search(tests, name) else ():
                path = pathlib.Path(word)
                if path.is_relative_to(BUILD):
                    yield str(path.relative_to(BUILD))
                elif path.suffix in (".sh", ".py"):
                    yield from re.findall(r"\w+_tool\b|\bpower_loss\b", path.read_text())


def run_tests(tests):
    """The tests that failed; None if the programs cannot be built."""
    programs = sorted(set(programs_of(tests)))
    built = subprocess.run(["ninja", *programs], cwd=BUILD, capture_output=True, text=True, check=False)
    if built.returncode != 0 or not programs:
        print(built.stdout[-2000:] if programs else f"no test {tests}", file=sys.stderr)
        return None
    report = BUILD / "mutate.xml"
    report.unlink(missing_ok=True)
    ctest = ["ctest", "-R", tests, "-j", "2", "--stop-on-failure", "--output-junit", str(report)]
    subprocess.run(ctest, cwd=BUILD, capture_output=True, check=False)
    cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
    return [case.get("name") for case in cases if case.get("status") == "fail"]


def plant(file, tests, old, new):
    """What found the defect; what is wrong begins with "!"."""
    path = COPY / file
    text = path.read_text() if path.exists() else ""
    if text.count(old) != 1:
        return f"! no longer applies: {text.count(old)} times in {file}"
    path.write_text(text.replace(old, new))
    try:
        failed = run_tests(tests)
    finally:
        path.write_text(text)
    return "! not built" if failed is None else ", ".join(failed) or "! nothing"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--list", action="store_true", help="print the table")
    parser.add_argument("names", nargs="*", help="of the defects; all by default")
    options = parser.parse_args()
    table = [row for row in parse() if row[0] in options.names or not options.names]
    if options.list:
        print(*(" | ".join(row) for row in table), sep="\n")
        return
    if len(table) < len(set(options.names)):
        sys.exit("there is no such defect, see --list")
    make_copy()
    failed = run_tests("|".join(row[2] for row in table))
    if failed != []:
        sys.exit(f"without a defect: {failed or 'not built'}")
    n_missed = 0
    print("defect | room | found by | seconds")
    for name, file, *change in table:
        begin = time.monotonic()
        found = plant(file, *change)
        n_missed += found.startswith("!")
        print(f"{name} | {pathlib.Path(file).parent.name} | {found} | {time.monotonic() - begin:.0f}", flush=True)
    print(f"{len(table) - n_missed} passed, {n_missed} failed")
    sys.exit(n_missed > 0)


if __name__ == "__main__":
    main()
