"""Speed of the input pipeline per core beside torchvision and libjpeg, alternating in one run.

    python3 tests/perf/input_vs_torchvision.py BUILD/tests/input_tool [--rounds 5] [--cifar]
        [--wall] [--json FILE]

In every round, on one core and over the same photos (../shared/data/imagenet-sample, or
DTRAIN_SHARED_DIR): torchvision (PIL decode, RandomResizedCrop 224, flip, numpy), libjpeg's decode of
whole images, decode of the crops alone, whole rows (read, decode, resize), rows with scaled decode;
then, on two cores, the loader with one worker and with two. The crops have the same distribution.
--cifar: rows and loader on CIFAR-10 with its augmentation instead, on one core.

Rates are images per second of CPU time, on a quiet machine the same as by the clock (--wall), which
is what the loader with one and two workers is always compared by. Printed: medians over the rounds,
and medians of the ratios of each round."""

import io
import os
import statistics
import time

import numpy
import results_file
import turns
from made_files import members_of

PHOTOS = os.path.join(turns.SHARED, "data", "imagenet-sample")
CIFAR = os.path.join(turns.SHARED, "data", "cifar10", "cifar10-train-{0000..0009}.tar")
N_PHOTOS, N_LOADER, N_CIFAR = 240, 480, 50000
# ratio: of what to what, of which kind of rate
RATIOS = {
    "rows / torchvision": ("rows", "torchvision", "rate"),
    "scaled rows / torchvision": ("scaled rows", "torchvision", "rate"),
    "rows / crop decode": ("rows", "crop decode", "rate"),
    "rows / full decode": ("rows", "full decode", "rate"),
    "2 workers / 1 worker": ("loader, 2 workers", "loader, 1 worker", "wall_rate"),
    "CPU time per image, 1 / 2 workers": ("loader, 2 workers", "loader, 1 worker", "cpu_rate"),
}


class Torchvision:
    """The usual transforms of training, on encoded photos in memory."""

    def __init__(self):
        import torch
        from torchvision import transforms

        torch.set_num_threads(1)
        self.transform = transforms.Compose(
            [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), numpy.asarray]
        )
        self.files = []
        for name in sorted(os.listdir(PHOTOS)):
            if name.endswith(".tar"):
                members = members_of(os.path.join(PHOTOS, name))
                self.files += [data for member, data in members if member.endswith(".jpg")]

    def run(self):
        from PIL import Image

        cpu_s, clock_s = time.process_time(), time.perf_counter()
        for data in self.files:
            self.transform(Image.open(io.BytesIO(data)).convert("RGB"))
        return {
            "images": len(self.files),
            "cpu_s": time.process_time() - cpu_s,
            "clock_s": time.perf_counter() - clock_s,
        }


def run_tool(tool, cores, *args):
    return turns.answer("taskset", "-c", ",".join(map(str, cores)), tool, *args)


def photo_cases(tool, cores):
    torchvision = Torchvision()

    def part(name, augment="imagenet"):
        return lambda r: run_tool(tool, cores[:1], name, PHOTOS, 224, augment, r, N_PHOTOS)

    def loader(workers):
        return lambda r: run_tool(
            tool, cores[:2], "loader", PHOTOS, 224, "imagenet", 10 * r, N_LOADER, workers
        )

    return {
        "torchvision": lambda r: torchvision.run(),
        "full decode": part("full"),
        "crop decode": part("crop"),
        "rows": part("row"),
        "scaled rows": part("row", "scaled"),
        "loader, 1 worker": loader(1),
        "loader, 2 workers": loader(2),
    }


def cifar_cases(tool, cores):
    def part(name, *more):
        args = (name, CIFAR, 32, "cifar")
        return lambda r: run_tool(tool, cores[:1], *args, r, N_CIFAR, *more)

    return {"rows": part("row"), "loader, 1 worker": part("loader", 1)}


def rates(result, wall):
    cpu_rate = result["images"] / result["cpu_s"]
    wall_rate = result["images"] / result["clock_s"]
    return {"cpu_rate": cpu_rate, "wall_rate": wall_rate, "rate": wall_rate if wall else cpu_rate}


def report(rounds, wall):
    kind = "the clock" if wall else "CPU time"
    result = {"rounds": len(rounds), "images_per_s": {}, "ratios": {}}
    print(f"images/s by {kind} (by CPU time, by the clock), medians of {len(rounds)} rounds")
    for case in rounds[0]:
        medians = {k: statistics.median(r[case][k] for r in rounds) for k in rounds[0][case]}
        result["images_per_s"][case] = medians
        print(
            f"  {case:<22} {medians['rate']:9.1f}"
            f"  ({medians['cpu_rate']:9.1f} {medians['wall_rate']:9.1f})"
        )
    for name, (a, b, rate) in RATIOS.items():
        if a in rounds[0] and b in rounds[0]:
            values = [r[a][rate] / r[b][rate] for r in rounds]
            result["ratios"][name] = statistics.median(values)
            print(f"  {name:<36} {turns.spread(values)}")
    return result


def main():
    parser = turns.parser("tool", rounds=5, json=None)
    parser.add_argument("--cifar", action="store_true")
    parser.add_argument("--wall", action="store_true")
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    cases = cifar_cases(args.tool, cores) if args.cifar else photo_cases(args.tool, cores)
    os.sched_setaffinity(0, cores[:1])
    rounds = [
        {case: rates(run(r), args.wall) for case, run in cases.items()} for r in range(args.rounds)
    ]
    results_file.save(args.json, report(rounds, args.wall))


main()
