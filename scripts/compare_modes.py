"""The table and the picture of scripts/compare_modes.sh, from the folders of its runs.
usage: compare_modes.py DIR
"""

import csv
import json
import os
import sys
from xml.sax.saxutils import escape

COLOURS = ("#1f77b4", "#aec7e8", "#9467bd", "#2ca02c", "#ff7f0e", "#d62728", "#8c564b", "#e377c2")
WIDTH, HEIGHT, LEFT, TOP, GAP = 380, 260, 60, 40, 90


def read(folder):
    """The run's events by their kind."""
    events = {}
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        for event in map(json.loads, file):
            events.setdefault(event["event"], []).append(event)
    return events


def row_of(name, events):
    steps, stale = events["step"], events.get("staleness", [None])[-1]
    last = steps[-1]
    at, sent = 0, 0
    for step in steps:
        sent += step["sent_bytes"] * (step["step"] - at)
        at = step["step"]
    seconds = sum(step["step_s"] * (step["step"] - before) for step, before in zip(steps, [0] + [s["step"] for s in steps]))
    return {
        "mode": name,
        "top1": events["eval"][-1]["top1"],
        "loss": last["loss"],
        "images_per_s": events["run_start"][0]["global_batch_size"] * at / seconds,
        "sent_bytes_per_step": round(sent / at),
        "staleness_mean": stale["mean"] if stale else "",
        "staleness_max": stale["max"] if stale else "",
        "staleness_histogram": " ".join(map(str, stale["histogram"])) if stale else "",
    }


def print_table(rows):
    print(f"{'mode':16} {'top-1 %':>8} {'loss':>8} {'images/s':>9} {'bytes/step':>11} {'of allreduce':>13}  staleness")
    for row in rows:
        share = row["sent_bytes_per_step"] / rows[0]["sent_bytes_per_step"]
        stale = f"mean {row['staleness_mean']:.2f}, max {row['staleness_max']}" if row["staleness_max"] != "" else "0"
        print(
            f"{row['mode']:16} {row['top1']:8.2f} {row['loss']:8.4f} {row['images_per_s']:9.0f} "
            f"{row['sent_bytes_per_step']:11} {share:13.3f}  {stale}"
        )
    for row in rows:
        if row["staleness_histogram"]:
            print(f"updates of {row['mode']} with staleness 0, 1, ...: {row['staleness_histogram']}")


def curves(runs, axis):
    """By mode: top-1 after each evaluation, with the megabytes sent per rank, or the seconds, until then."""
    for name, events in runs:
        points = [(0.0, 0.0)]
        for result in events["eval"]:
            sent = seconds = before = 0
            for step in events["step"]:
                if step["step"] <= result["step"]:
                    sent += step["sent_bytes"] * (step["step"] - before)
                    seconds += step["step_s"] * (step["step"] - before)
                    before = step["step"]
            points.append(((sent / 1e6, seconds)[axis], result["top1"]))
        yield name, points


def short(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def draw(title, lines, left):
    most = max(x for _, points in lines for x, _ in points) or 1
    top = max(y for _, points in lines for _, y in points) or 1
    x = [left + LEFT, left + LEFT + WIDTH]
    y = [TOP + HEIGHT, TOP]
    out = [f'<path d="M{x[0]} {y[1]}V{y[0]}H{x[1]}" fill="none" stroke="#444"/>']
    out.append(f'<text x="{x[0]}" y="{TOP - 14}">{escape(title)}</text>')
    for i in range(5):
        out.append(f'<text x="{x[0] + i * WIDTH / 4:.0f}" y="{y[0] + 18}" text-anchor="middle">{short(most * i / 4)}</text>')
        out.append(f'<text x="{x[0] - 8}" y="{y[0] - i * HEIGHT / 4 + 4:.0f}" text-anchor="end">{short(top * i / 4)}</text>')
    for (_, points), colour in zip(lines, COLOURS):
        path = " ".join(f"{x[0] + p[0] / most * WIDTH:.1f},{y[0] - p[1] / top * HEIGHT:.1f}" for p in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return "\n".join(out)


def picture(charts):
    """Charts side by side, each a title and the same lines: names, and points from (0, 0) on."""
    right = WIDTH + GAP
    legend = [
        f'<text x="{len(charts) * right + 30}" y="{TOP + 20 + 22 * i}" fill="{colour}">{escape(name)}</text>'
        for i, ((name, _), colour) in enumerate(zip(charts[0][1], COLOURS))
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{len(charts) * right + 200}" height="{HEIGHT + TOP + 50}" '
            'font-family="sans-serif" font-size="13">',
            '<rect width="100%" height="100%" fill="white"/>',
            *(draw(title, lines, i * right) for i, (title, lines) in enumerate(charts)),
            *legend,
            "</svg>\n",
        ]
    )


def main(folder):
    names = [name for name in os.listdir(folder) if os.path.exists(os.path.join(folder, name, "metrics.jsonl"))]
    names.sort(key=lambda name: os.path.getmtime(os.path.join(folder, name, "config.json")))
    runs = [(name, read(os.path.join(folder, name))) for name in names]
    rows = [row_of(name, events) for name, events in runs]
    print_table(rows)
    with open(os.path.join(folder, "modes.csv"), "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, rows[0].keys())
        table.writeheader()
        table.writerows(rows)
    with open(os.path.join(folder, "modes.svg"), "w", encoding="utf-8") as file:
        axes = ("megabytes sent per rank", "seconds of training")
        file.write(picture([(f"top-1 in % over {axis}", list(curves(runs, i))) for i, axis in enumerate(axes)]))
    print(f"{folder}/modes.csv, {folder}/modes.svg")


if __name__ == "__main__":
    main(sys.argv[1])
