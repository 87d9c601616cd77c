"""Scaling: how the cost of a step grows with samples and with response length, with linear fits."""

import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rlzoo_lab.view.figure import add_axes, colour, ink, new_figure, write_figure

NEVER = 1e-9  # probability of EOS at each token: all responses take their whole length
AXES = {"samples": "samples per prompt", "length": "tokens per response"}
UNITS = {"cpu_seconds": "CPU seconds per step", "peak_mb": "peak memory, MB"}


def points(workload: dict[str, Any]) -> Iterator[tuple[str, int, dict[str, Any], list[str]]]:
    """(axis, value, workload, words) of each point: four prompts, all else equal."""
    samples, lengths = workload["scaling"]["samples"], workload["scaling"]["length"]
    architecture = {**workload["architecture"], "max_position_embeddings": 64 + max(lengths)}
    name = f"{workload['name']}-endless"
    made = {**workload, "name": name, "ends": NEVER, "architecture": architecture}
    sizes = [("samples", n, n, 32) for n in samples] + [("length", n, 8, n) for n in lengths]
    for axis, value, n, length in sizes:
        fixed = ["kl.place=none", "rollout.prompts=4"]
        words = [*fixed, f"rollout.samples={n}", f"rollout.max_new_tokens={length}"]
        yield axis, value, made, words


def fit(x: list[float], y: list[float]) -> dict[str, float]:
    """Least squares y = start + slope x, and R^2, the share of y's variance that it explains."""
    slope, start = statistics.linear_regression(x, y)
    r2 = statistics.correlation(x, y) ** 2 if len(set(y)) > 1 else 1.0
    return {"start": start, "slope": slope, "r2": r2}


def fits(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """For each axis, the fit of CPU seconds and of peak memory."""
    for axis in dict.fromkeys(row["axis"] for row in rows if "axis" in row):
        points = [r for r in rows if r.get("axis") == axis and "cpu_seconds" in r]
        if len(points) < 3:
            continue
        x = [float(r["x"]) for r in points]
        for what in UNITS:
            yield {"axis": axis, "what": what, **fit(x, [r[what] for r in points])}


def write_plot(rows: list[dict[str, Any]], path: Path) -> None:
    """CPU seconds and memory over samples and over length: points and their fitted lines."""
    write_figure(partial(draw, rows), path)


def draw(rows: list[dict[str, Any]]) -> Any:
    """A panel for each model and axis, with memory below."""
    points = [row for row in rows if "axis" in row and "cpu_seconds" in row]
    panels = list(dict.fromkeys((row["model"], row["axis"]) for row in points))
    wide = max(1, len(panels))
    figure = new_figure(1 + 3 * wide, 5)
    for j, panel in enumerate(panels):
        mine = [row for row in points if (row["model"], row["axis"]) == panel]
        lines = {line["what"]: line for line in fits(mine)}
        x = [row["x"] for row in mine]
        for i, (what, unit) in enumerate(UNITS.items()):
            below = AXES[panel[1]] if i == 1 else ""
            axes = add_axes(figure, below, "" if j else unit, (2, wide, i * wide + j + 1))
            axes.plot(x, [row[what] for row in mine], "o", color=colour(0))
            if what in lines:
                line = lines[what]
                axes.plot(x, [line["start"] + line["slope"] * a for a in x], color=ink("muted"),
                          zorder=1)  # fmt: skip
                axes.set_title(f"{panel[0]}, $R^2$ = {line['r2']:.3f}", fontsize=10)
            axes.set_ylim(bottom=0)
    return figure
