#!/usr/bin/env python3
"""Sums up the measurements of scripts/scaling.sh.

usage: scaling_report.py FOLDER...

Prints a table, and saves scaling.json, scaling.csv and scaling.html in the first folder. A measurement is a file of
`dtrain bench --json` named SERIES-npRANKS-REPETITION.json; a point is the median of the repetitions of a series with a
number of ranks. Runs that were trained in a folder, each in one of its own, tell what accuracy the same network and
precision reach on as many ranks.
"""

import html
import json
import math
import os
import re
import sys
from itertools import groupby

from compare_modes import picture

HERE = os.path.dirname(os.path.realpath(__file__))
MEASURED = ("images_per_s", "step_median_s", "exposed_comm_share", "data_wait_share", "ranks_per_cpu")
COLUMNS = ("images_per_s", "images_per_s_min", "images_per_s_max", "step_median_s", "speedup", "efficiency")
COLUMNS += ("exposed_comm_share", "data_wait_share", "top1")
CHARTS = (  # title, unit, column, scale; whether it has the ideal line, and intervals of the repetitions
    ("Throughput of all ranks", "images/s", "images_per_s", 1, True, True),
    ("Efficiency against the fewest ranks", "%", "efficiency", 100, False, True),
    ("Exposed communication", "% of the step", "exposed_comm_share", 100, False, False),
)
TABLE = (  # of the page
    ("ranks", "ranks", 1, 0),
    ("images/s", "images_per_s", 1, 1),
    ("slowest", "images_per_s_min", 1, 1),
    ("fastest", "images_per_s_max", 1, 1),
    ("step, ms", "step_median_s", 1e3, 1),
    ("speedup", "speedup", 1, 2),
    ("efficiency, %", "efficiency", 100, 1),
    ("exposed communication, %", "exposed_comm_share", 100, 1),
    ("top-1, %", "top1", 1, 2),
)
FOOTER = (
    "Medians of the repetitions; a vertical line spans the slowest to the fastest of them. Efficiency is images/s per "
    "rank against that with the fewest ranks. Top-1 is the median of the best evaluations of the runs on that number "
    "of ranks."
)


def fail(code, text):
    print(f"scaling_report: {text}", file=sys.stderr)
    sys.exit(code)


def plain(text, quoted):
    """Without what HTML, CSV or a terminal would take for something else."""
    text = re.sub(f"[{quoted}\n]", "_", text)
    return re.sub("[\0-\x1f\x7f-\x9f\ud800-\udfff]", "?", text)


def number(value):
    return value if isinstance(value, (int, float)) else math.nan


def words(value):
    return value if isinstance(value, str) else "?"


def median(values):
    values = sorted(values)
    low, high = values[(len(values) - 1) // 2], values[len(values) // 2]
    return low + 0.5 * (high - low)


# --- Reading ---


def load_measurement(folder, name, series, ranks):
    path = os.path.join(folder, name)
    with open(path, encoding="utf-8", errors="replace") as file:
        try:
            result = json.load(file)
        except json.JSONDecodeError as error:
            fail(65, f"{path}:{error.lineno}:{error.colno}: {error.msg}")
    if not isinstance(result, dict) or not number(result.get("images_per_s")) > 0:
        fail(65, f"{path} is not a result of dtrain bench: it has no images_per_s")
    model, precision, device, date = (words(result.get(key)) for key in ("model", "precision", "device", "date"))
    hosts = result.get("hosts")
    hosts = hosts if isinstance(hosts, list) and hosts else ["?"]
    host = words(hosts[0]) + (" and others" if len(hosts) > 1 else "")
    facts = plain(f"{model} {precision}; {device}; {host}; {date[:10]}", "<>&")
    values = {key: number(result.get(key)) for key in MEASURED}
    return {"series": series, "ranks": ranks, "facts": facts, "folder": folder, **values}


def load_run(path):
    """(network and precision, ranks, best top-1), None of a run that has not been evaluated. A restart repeats what
    comes after its checkpoint; lines that are damaged or half are not counted."""
    start, evals = None, []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                event = json.loads(line)
                kind = event["event"]
                if kind == "run_start":
                    evals = [one for one in evals if one[0] <= event.get("start_step", 0)]
                    start = event
                elif kind == "eval" and isinstance(event.get("top1"), (int, float)):
                    evals.append((event["step"], event["top1"]))
            except (ValueError, KeyError, TypeError):
                continue
    if not start or not evals:
        return None
    config = start.get("config") or {}
    network = f"{words(config.get('model', {}).get('name'))} {words(config.get('train', {}).get('precision'))};"
    return network, start.get("ranks"), max(top1 for _, top1 in evals)


def load_folder(folder, prefix):
    """Its measurements, and what the runs in it reached."""
    measurements, trained = [], []
    try:
        names = os.listdir(folder)
    except OSError as error:
        fail(66, f"cannot open {folder}: {error.strerror}")
    for name in names:
        metrics = os.path.join(folder, name, "metrics.jsonl")
        parts = re.fullmatch(r"(.*)-np([1-9]\d*)-(\d+)\.json", name, re.S)
        if parts:
            series = plain(prefix + parts[1], "<>&\"',")
            measurements.append(load_measurement(folder, name, series, int(parts[2])))
        elif not name.startswith(".") and os.path.exists(metrics):
            trained.append(load_run(metrics))
    if not measurements:
        fail(66, f"{folder} has no measurements (NAME-np2-1.json); scripts/scaling.sh makes them")
    for one in measurements:
        of_it = [top1 for network, ranks, top1 in filter(None, trained) if ranks == one["ranks"] and one["facts"].startswith(network)]
        one["top1"] = median(of_it) if of_it else math.nan
    return measurements


def make_points(measurements):
    points = []
    measurements.sort(key=lambda one: (one["series"], one["ranks"]))
    for _, group in groupby(measurements, lambda one: (one["series"], one["ranks"])):
        group = list(group)
        speeds = [one["images_per_s"] for one in group]
        point = {**group[0], "repetitions": len(group), "images_per_s_min": min(speeds), "images_per_s_max": max(speeds)}
        point.update({key: median([one[key] for one in group]) for key in MEASURED})
        base = points[-1]["base"] if points and points[-1]["series"] == point["series"] else point
        point["base"] = base
        point["speedup"] = point["images_per_s"] / base["images_per_s"]
        point["efficiency"] = point["speedup"] * base["ranks"] / point["ranks"]
        points.append(point)
    return points


def by_series(points):
    return [(name, list(group)) for name, group in groupby(points, lambda point: point["series"])]


# --- Tables ---


def print_table(points):
    has_top1 = any(math.isfinite(p["top1"]) for p in points)
    for name, group in by_series(points):
        print(f"{name}: {group[0]['facts']}")
        print(
            f"{'ranks':>7} {'images/s':>10} {'(slowest..fastest)':>19} {'step ms':>9} {'speedup':>8} {'efficiency':>11}"
            f"{'   top-1' if has_top1 else ''} {'exposed comm':>13}"
        )
        for p in group:
            line = f"{p['ranks']:7} {p['images_per_s']:10.1f} {p['images_per_s_min']:9.1f}..{p['images_per_s_max']:<8.1f} "
            line += f"{1e3 * p['step_median_s']:9.1f} {p['speedup']:8.2f} {100 * p['efficiency']:9.1f} %"
            if has_top1:
                line += f" {p['top1']:7.2f}" if math.isfinite(p["top1"]) else " " * 8
            if math.isfinite(p["exposed_comm_share"]):
                line += f" {100 * p['exposed_comm_share']:11.1f} %"
            line += "  more ranks than CPUs" if p["ranks_per_cpu"] > 1 else ""
            line += "  above 100 %: noise, see slowest..fastest" if p["efficiency"] > 1.02 else ""
            print(line)


def as_json(points):
    def exact(value):
        return None if not math.isfinite(value) else int(value) if value == int(value) else value

    rows = [{key: p[key] for key in ("series", "ranks", "repetitions")} | {key: exact(p[key]) for key in COLUMNS} for p in points]
    return f'{{\n  "points": [{", ".join(map(json.dumps, rows))}]\n}}\n'


def as_csv(points):
    lines = [",".join(("series", "ranks", "repetitions", *COLUMNS))]
    for p in points:
        values = [f"{p[key]:.6g}" if math.isfinite(p[key]) else "" for key in COLUMNS]
        lines.append(",".join((p["series"], str(p["ranks"]), str(p["repetitions"]), *values)))
    return "\n".join(lines) + "\n"


# --- Page ---


def curves(points, chart):
    """Of every series, in its colour, its curve and the line through the origin and its first point."""
    _, _, column, scale, has_ideal, has_interval = chart
    for colour, (name, group) in enumerate(by_series(points)):
        for is_ideal in range(1 + has_ideal):
            curve = {"name": "ideal" if is_ideal else name, "run": 0, "group": 0, "colour": colour % 8, "dash": is_ideal}
            curve |= {"faint": bool(is_ideal), "dots": not is_ideal, "x": [], "y": []}
            if has_interval and not is_ideal:
                curve |= {"low": [], "high": []}
            for p in group:
                y = scale * (group[0][column] * p["ranks"] / group[0]["ranks"] if is_ideal else p[column])
                values = {"x": p["ranks"], "y": y}
                for key, end in (("low", "images_per_s_min"), ("high", "images_per_s_max")):
                    values[key] = y * p[end] / p["images_per_s"]
                for key in values.keys() & curve.keys() if math.isfinite(y) else ():
                    curve[key].append(float(f"{values[key]:.7g}"))
            yield curve


def figure(points, chart):
    series = list(curves(points, chart))
    if not any(one["x"] for one in series):
        return ""
    marks = [[p["ranks"], p["series"]] for p in points if p["ranks_per_cpu"] > 1]
    data = json.dumps({"x": "ranks", "y": chart[1], "zero": True, "series": series, "marks": marks})
    for quoted in "<>&":
        data = data.replace(quoted, f"\\u{ord(quoted):04x}")
    return f'<figure hidden=""><figcaption>{chart[0]}</figcaption>\n<script type="application/json">{data}</script>\n</figure>\n'


def static_curves(points):
    lines = [(one["name"], list(zip(one["x"], one["y"]))) for one in curves(points, CHARTS[0]) if not one["faint"]]
    drawn = picture([("images/s of all ranks over ranks", [(name, [(0, 0), *points]) for name, points in lines])])
    return f'<noscript><div class="wide">{drawn}</div></noscript>\n'


def as_page(points):
    headlines = "".join(
        f"<div><dt>{html.escape(name)}: {html.escape(group[0]['facts'])}</dt><dd>{group[-1]['images_per_s']:.1f} images/s on "
        f"{group[-1]['ranks']} ranks, efficiency {100 * group[-1]['efficiency']:.0f} %</dd></div>\n"
        for name, group in by_series(points)
    )
    rows = ""
    for p in points:
        cells = [f"{scale * p[key]:.{digits}f}" if math.isfinite(p[key]) else "" for _, key, scale, digits in TABLE]
        notes = "more ranks than CPUs" if p["ranks_per_cpu"] > 1 else ""
        cells.append(notes + (" above 100 %: noise" if p["efficiency"] > 1.02 else ""))
        rows += f'<tr><th scope="row">{html.escape(p["series"])}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"
    heads = "".join(f"<th>{title}</th>" for title in ("series", *(row[0] for row in TABLE), "notes"))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><title>Scaling</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n<link rel="icon" href="data:,"/>\n'
        f'<style>\n{part("report.css")}</style></head>\n<body><main data-live="0000000000000000">\n<h1>Scaling</h1>\n'
        f'<dl class="facts">\n{headlines}</dl>\n<h2>Curves</h2>\n{static_curves(points)}<div class="charts">\n'
        + "".join(figure(points, chart) for chart in CHARTS)
        + '</div>\n<h2>Measurements</h2>\n<div class="wide"><table id="points" class="sortable"><thead><tr>'
        f"{heads}</tr></thead><tbody>\n{rows}</tbody></table></div>\n<footer>{FOOTER}</footer>\n</main>\n"
        f'<script>//<![CDATA[\n{part("report.js")}//]]></script></body></html>\n'
    )


def part(name):
    """A part of the page of dtrain report: of the sources, or as installed."""
    folders = [os.path.join(HERE, "..", "src", "page"), os.path.join(HERE, "..", "page")]
    folder = next(filter(os.path.isdir, folders))
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()


def main(folders):
    if not folders or folders[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr if not folders else sys.stdout)
        sys.exit(0 if folders else 64)
    measurements = []
    for folder in folders:
        measurements += load_folder(folder, f"{folder}/" if len(folders) > 1 else "")
    points = make_points(measurements)
    print_table(points)
    for name, make in (("scaling.json", as_json), ("scaling.csv", as_csv), ("scaling.html", as_page)):
        with open(os.path.join(folders[0], name), "w", encoding="utf-8") as file:
            file.write(make(points))
    print(f"{folders[0]}/scaling.json, scaling.csv, scaling.html")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        fail(74, error)
