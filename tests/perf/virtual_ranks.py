"""What train.virtual_ranks costs on CPU ranks: images/s and memory against plain training with micro-batches of the
same size, in turns, for several numbers of them; the last rows with model.sync_bn.

    python3 tests/perf/virtual_ranks.py BUILD/dtrain [--batch 32] [--size 128] [--rounds 3] [--json FILE]

The ratio is the median over the rounds of one to the other. Exposed communication is in percent of the step."""

import statistics

import results_file
import turns

CASES = [(ranks, n, False) for ranks in (1, 2, 4) for n in (4, 8, 16, 32)]
CASES += [(3, 16, False), (1, 8, True), (2, 8, True), (4, 8, True)]


def bench(args, ranks, train, sync_bn=False):
    config = {
        "model": {"name": "resnet18", "num_classes": 1000, "image_size": args.size, "sync_bn": sync_bn},
        "data": {"source": "synthetic", "workers": 1},
        "train": {"global_batch_size": args.batch, **train},
        "device": {"kind": "cpu", "threads": max(1, 2 // ranks)},
        "bench": {"warmup_steps": 1, "rounds": 1, "steps_per_round": 5},
    }
    launcher = ("mpirun", "-np", ranks, "--oversubscribe", "--bind-to", "none") if ranks > 1 else ()
    return turns.bench(args.program, config, launcher)


def measure(args, ranks, n, sync_bn):
    """With batch norm over groups the plain run is without: micro-batches cannot share statistics."""
    both = {"plain": [], "virtual": []}
    for _ in range(args.rounds):
        both["plain"].append(bench(args, ranks, {"micro_batch_size": args.batch // n}))
        both["virtual"].append(bench(args, ranks, {"virtual_ranks": n}, sync_bn))
    rates = {kind: [run["images_per_s"] for run in runs] for kind, runs in both.items()}
    last = {kind: runs[-1] for kind, runs in both.items()}
    return {
        "ranks": ranks,
        "virtual_ranks": n,
        "sync_bn": sync_bn,
        **{f"{kind}_images_per_s": statistics.median(values) for kind, values in rates.items()},
        "ratio": statistics.median(b / a for a, b in zip(rates["plain"], rates["virtual"])),
        **{f"{kind}_plan_mb": round(run["plan_bytes"] / 1e6) for kind, run in last.items()},
        **{f"{kind}_comm": round(100 * run["exposed_comm_share"], 1) for kind, run in last.items()},
        "device": last["virtual"]["device"],
    }


def main():
    args = turns.parser(batch=32, size=128, rounds=3, json=None).parse_args()
    print("ranks  virtual  images/s  plain  ratio    MB  plain  exposed %  plain")
    rows = []
    for ranks, n, sync_bn in CASES:
        row = measure(args, ranks, n, sync_bn)
        print(
            f"{ranks:5d} {n:8d} {row['virtual_images_per_s']:9.1f} {row['plain_images_per_s']:6.1f} {row['ratio']:6.2f}"
            f" {row['virtual_plan_mb']:5d} {row['plain_plan_mb']:6d} {row['virtual_comm']:10.1f}"
            f" {row['plain_comm']:6.1f}{'  sync_bn' if sync_bn else ''}",
            flush=True,
        )
        rows.append(row)
    results = {"model": "resnet18", "batch": args.batch, "size": args.size, "rounds": args.rounds, "cases": rows}
    results_file.save(args.json, results)


if __name__ == "__main__":
    main()
