"""Plots of a comparison."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo.runs.metrics import REWARD, TOKENS
from rlzoo_lab import stats
from rlzoo_lab.compare.comparison import Comparison
from rlzoo_lab.data.comparable import ComparedRow, as_typed, label, numeric
from rlzoo_lab.data.record import Record
from rlzoo_lab.view.chart import running_mean
from rlzoo_lab.view.figure import (
    add_axes,
    add_legend,
    colour,
    ink,
    line,
    new_figure,
    of_row,
    write_figure,
)
from rlzoo_lab.view.numbers import thousands

Curve = list[tuple[float, float]]


def held_out(c: Comparison) -> Any:
    """Held-out score against tokens generated: IQM over seeds, with its pointwise 95 % band."""

    def points(run: Record) -> Curve:
        return [(tokens, score) for _, tokens, score in run.learning_curve]

    return _over_tokens(c, c.what, points, marker="o")


def training(c: Comparison) -> Any:
    """The training reward, smoothed over a twentieth of the steps."""

    def points(run: Record) -> Curve:
        tokens = dict(run.points(TOKENS)) or {n: n for n in run.steps_of(REWARD)}
        return [(tokens[n], reward) for n, reward in run.points(REWARD) if n in tokens]

    return _over_tokens(c, "training reward", points, smooth=True)


def _over_tokens(
    c: Comparison, ylabel: str, points: Callable[[Record], Curve], *, marker: str = "",
    smooth: bool = False,
) -> Any:  # fmt: skip
    figure = new_figure()
    runs = [run for row in c.rows for run in row.runs.values()]
    tokens = all(run.has(TOKENS) for run in runs)
    axes = add_axes(figure, "tokens generated" if tokens else "step", ylabel)
    for i, row in enumerate(c.rows):
        x, y = _align([curve for run in row.runs.values() if (curve := points(run))])
        if not y.size:
            continue
        if smooth:
            y = np.stack([running_mean(run, max(1, y.shape[1] // 20)) for run in y])
        middle, low, high = stats.iqm_band(y)
        drawn = axes.plot(x, middle, label=row.label, linewidth=1.8, marker=marker, markersize=3.5,
                          **line(i))  # fmt: skip
        if len(y) > 1:
            band = axes.fill_between(x, low, high, color=colour(i), alpha=_haze(c), linewidth=0)
            drawn.append(band)
        of_row(drawn, i)
    axes.xaxis.set_major_formatter(lambda x, _: thousands(x) if x else "0")
    add_legend(figure, axes)
    return figure


def _align(curves: list[Curve]) -> tuple[Any, Any]:
    """Curves (x, y) of different grids on one: (points,), (seeds, points), as far as all go."""
    if not curves:
        return np.zeros(0), np.zeros((0, 0))
    longest = max(curves, key=len)
    end = min(run[-1][0] for run in curves)
    grid = np.array([x for x, _ in longest if x < end] + [end])
    return grid, np.stack([np.interp(grid, *np.array(run).T) for run in curves])


def _haze(c: Comparison) -> float:
    """How opaque a band is: many must not bury one another."""
    return 0.15 if len(c.rows) <= 4 else 0.07


def finals(c: Comparison) -> Any:
    """Every run's final score, a line for each seed across the rows, and each row's IQM."""
    figure = new_figure(height=1.2 + 0.42 * len(c.rows))
    axes = add_axes(figure, f"final {c.what}", "")
    for seed in sorted({s for row in c.rows for s in row.runs}):
        there = [(row.runs[seed].score, i) for i, row in enumerate(c.rows) if seed in row.runs]
        axes.plot(*zip(*there, strict=True), color=ink("faint"), linewidth=0.8, zorder=1)
    for i, row in enumerate(c.rows):
        shade = colour(i)
        drawn = axes.plot(row.scores, [i] * len(row.scores), "o", color=shade, markersize=4,
                          alpha=0.45, markeredgewidth=0)  # fmt: skip
        interval = stats.iqm_interval(row.scores)
        if interval:
            drawn += axes.plot(interval, [i, i], color=shade, linewidth=2.4,
                               solid_capstyle="round")  # fmt: skip
        drawn += axes.plot([stats.iqm(row.scores)], [i], "D", color=shade, markersize=7)
        of_row(drawn, i)
    axes.set_yticks(range(len(c.rows)), [row.label for row in c.rows])
    for i, name in enumerate(axes.get_yticklabels()):
        of_row([name], i)
    axes.tick_params(axis="y", labelcolor=ink("ink"), length=0)
    axes.set_ylim(len(c.rows) - 0.5, -0.5)
    return figure


def profiles(c: Comparison) -> Any:
    """Performance profiles: the share of runs above each score, with a pointwise 95 % band."""
    figure = new_figure()
    axes = add_axes(figure, f"final {c.what}, at least", "share of runs")
    scores = [s for row in c.rows for s in row.scores]
    margin = 0.05 * (max(scores) - min(scores)) or 0.01
    taus = np.linspace(min(scores) - margin, max(scores) + margin, 201)
    rng = np.random.default_rng(0)
    for i, row in enumerate(c.rows):
        runs = np.asarray(row.scores)
        share = stats.performance_profile(runs, taus)
        curve = axes.step(taus, share, where="post", label=row.label, linewidth=1.8, **line(i))
        if len(runs) > 1:
            picks = rng.integers(len(runs), size=(1000, len(runs)))
            drawn = (runs[picks][:, :, None] > taus).mean(1)
            low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
            band = axes.fill_between(taus, low, high, step="post", color=colour(i),
                                     alpha=_haze(c), linewidth=0)  # fmt: skip
            curve.append(band)
        of_row(curve, i)
    axes.set_ylim(-0.02, 1.02)
    add_legend(figure, axes)
    return figure


def response_keys(c: Comparison) -> list[str]:
    """Keys with at least three numeric values, whose effect can be drawn as a curve."""
    keys = dict.fromkeys(k for row in c.rows for k in row.values)
    return [
        key
        for key in keys
        if len({row.values[key] for row in c.rows if numeric(row.values.get(key))}) > 2
    ]


def response(c: Comparison, key: str) -> Any:
    """Final score against a key: IQM with its interval, and each seed's runs. Values are equally
    spaced, since on a linear scale the interesting ones (0.9, 0.95, 0.99, 1) would overlap. Rows
    without the key are horizontal lines."""
    figure = new_figure()
    axes = add_axes(figure, key, f"final {c.what}")
    having = [row for row in c.rows if numeric(row.values.get(key))]
    values = sorted({row.values[key] for row in having})
    lines: dict[str, list[ComparedRow]] = {}
    for row in having:
        rest = {k: v for k, v in row.values.items() if k != key}
        lines.setdefault(label(rest), []).append(row)
    for i, (name, rows) in enumerate(lines.items()):
        rows.sort(key=lambda row: row.values[key])
        at = [values.index(row.values[key]) + 0.06 * (i - (len(lines) - 1) / 2) for row in rows]
        for x, row in zip(at, rows, strict=True):
            interval = stats.iqm_interval(row.scores)
            drawn = axes.plot([x] * len(row.scores), row.scores, "o", markersize=3, alpha=0.3,
                              color=colour(i), markeredgewidth=0)  # fmt: skip
            if interval:
                drawn += axes.plot([x, x], interval, linewidth=2.2, color=colour(i))
            of_row(drawn, c.rows.index(row))
        axes.plot(at, [stats.iqm(row.scores) for row in rows], marker="o", markersize=6,
                  linewidth=1.6, label=name or "with it", **line(i))  # fmt: skip
    for j, row in enumerate(r for r in c.rows if r not in having):
        level = axes.axhline(stats.iqm(row.scores), label=f"{row.label} (has no such option)",
                             linewidth=1.2,
                             **(line(len(lines) + j) | {"linestyle": "--"}))  # fmt: skip
        of_row([level], c.rows.index(row))
    axes.set_xticks(range(len(values)), [as_typed(v) for v in values])
    add_legend(figure, axes)
    return figure


def plots(c: Comparison) -> dict[str, tuple[str, Callable[[], Any]]]:
    """name -> (its caption, how to draw it)."""
    shown: dict[str, tuple[str, Callable[[], Any]]] = {}
    runs = [run for row in c.rows for run in row.runs.values()]
    if c.has_curves:
        caption = (
            f"{c.what.capitalize()} during training: the IQM over seeds with its pointwise 95 % "
            "bootstrap interval.")  # fmt: skip
        shown["held-out"] = caption, partial(held_out, c)
    if any(REWARD in line for run in runs for line in run.steps[:1]):
        caption = "Smoothed training reward: the IQM over seeds with its 95 % band."
        shown["training"] = caption, partial(training, c)
    caption = (
        "Final scores. Each dot is a run, each grey line connects the runs of a seed, and each "
        "diamond is an IQM with its 95 % interval.")  # fmt: skip
    shown["finals"] = caption, partial(finals, c)
    for key in response_keys(c):
        caption = (
            f"Effect of {key}. Dots are runs, the line connects IQMs, and bars are 95 % "
            "intervals; values are equally spaced.")  # fmt: skip
        shown[f"response-{key}"] = caption, partial(response, c, key)
    if max(len(row.seeds) for row in c.rows) > 1:
        caption = (
            "Performance profile: the share of runs that end above a score. A row whose curve is "
            "further right everywhere is better; if curves cross, neither row is better "
            "throughout.")  # fmt: skip
        shown["profiles"] = caption, partial(profiles, c)
    return shown


def write_plots(c: Comparison, folder: Path) -> None:
    """Each plot as NAME.svg and NAME.png, in the light theme on white."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, draw) in plots(c).items():
        write_figure(draw, folder / f"{name}.svg", folder / f"{name}.png")
