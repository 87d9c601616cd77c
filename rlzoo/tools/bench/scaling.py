"""How the cost of a step grows: with samples and with response length, each with its linear fit."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rlzoo.show.figure import add_axes, colour, ink, new_figure, write_figure

NEVER = 1e-9  # probability of EOS at each token: all responses take their whole length


def cases(workload: dict[str, Any]) -> Iterator[tuple[str, int, dict[str, Any], list[str]]]:
    """(axis, value, workload, words) of each point: four prompts, other things equal."""
    samples, lengths = workload["scaling"]["samples"], workload["scaling"]["length"]
    architecture = {**workload["architecture"], "max_position_embeddings": 64 + max(lengths)}
    name = f"{workload['name']}-endless"
    made = {**workload, "name": name, "ends": NEVER, "architecture": architecture}
    fixed = ["kl.place=none", "rollout.prompts=4"]
    for n in samples:
        words = [f"rollout.samples={n}", "rollout.max_new_tokens=32"]
        yield "samples", n, made, [*fixed, *words]
    for length in lengths:
        words = ["rollout.samples=8", f"rollout.max_new_tokens={length}"]
        yield "length", length, made, [*fixed, *words]


def fit(x: list[float], y: list[float]) -> dict[str, float]:
    """Least squares y = start + slope x, and R^2, the share of y's variance that it explains."""
    n = len(x)
    mean_x, mean_y = sum(x) / n, sum(y) / n
    spread = sum((a - mean_x) ** 2 for a in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    start = mean_y - slope * mean_x
    left = sum((b - start - slope * a) ** 2 for a, b in zip(x, y, strict=True))
    total = sum((b - mean_y) ** 2 for b in y)
    return {"start": start, "slope": slope, "r2": 1 - left / total if total else 1.0}


def fits(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """For each axis, the fit of CPU seconds and of peak memory."""
    for axis in dict.fromkeys(row["axis"] for row in rows if "axis" in row):
        points = [r for r in rows if r.get("axis") == axis and "cpu_seconds" in r]
        if len(points) < 3:
            continue
        x = [float(r["x"]) for r in points]
        for what in ("cpu_seconds", "peak_mb"):
            yield {"axis": axis, "what": what, **fit(x, [r[what] for r in points])}


def write_plot(rows: list[dict[str, Any]], path: Path) -> None:
    """CPU seconds and memory over samples and over length: points and their fitted lines."""
    write_figure(partial(draw, rows), path)


def draw(rows: list[dict[str, Any]]) -> Any:
    """A panel for each model and axis, one below for its memory."""
    names = {"samples": "samples per prompt", "length": "tokens per response"}
    units = {"cpu_seconds": "CPU seconds per step", "peak_mb": "peak memory, MB"}
    points = [row for row in rows if "axis" in row and "cpu_seconds" in row]
    panels = list(dict.fromkeys((row["model"], row["axis"]) for row in points))
    wide = max(1, len(panels))
    figure = new_figure(1 + 3 * wide, 5)
    for j, panel in enumerate(panels):
        mine = [row for row in points if (row["model"], row["axis"]) == panel]
        lines = {line["what"]: line for line in fits(mine)}
        x = [row["x"] for row in mine]
        for i, (what, unit) in enumerate(units.items()):
            below = names[panel[1]] if i == 1 else ""
            axes = add_axes(figure, below, "" if j else unit, (2, wide, i * wide + j + 1))
            axes.plot(x, [row[what] for row in mine], "o", color=colour(0))
            if what in lines:
                line = lines[what]
                axes.plot(x, [line["start"] + line["slope"] * a for a in x], color=ink("muted"),
                          zorder=1)  # fmt: skip
                axes.set_title(f"{panel[0]}, $R^2$ = {line['r2']:.3f}", fontsize=10)
            axes.set_ylim(bottom=0)
    return figure
