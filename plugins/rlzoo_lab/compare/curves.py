"""The curves of a comparison: held-out scores, training rewards, final scores, effects of a key.

Their intervals are those of the tables: Student's t over seeds.
"""

from collections.abc import Callable
from statistics import fmean
from typing import Any

import numpy as np

from rlzoo.runs.metrics import REWARD, SECONDS, TOKENS
from rlzoo_lab import stats
from rlzoo_lab.compare.comparison import Comparison
from rlzoo_lab.data.comparable import ComparedRow, as_typed, label, numeric
from rlzoo_lab.data.record import Record
from rlzoo_lab.view.blocks import Curve, Series

Points = list[tuple[float, float]]

AXES = {
    "tokens": (TOKENS, "tokens generated"),
    "seconds": (SECONDS, "seconds"),
    "steps": ("", "step"),
}
MANY = 8  # seeds from which on a band replaces a thin line for each seed


def curves(c: Comparison) -> list[Curve]:
    """Those that these runs allow; first, for a sweep of one number, the score against it."""
    runs = [run for row in c.rows for run in row.runs.values()]
    made = []
    if c.has_curves:
        made.append(_over_time(c, "held-out", c.what, _held_out))
    if any(REWARD in line for run in runs for line in run.steps[:1]):
        made.append(_over_time(c, "training", "training reward", _rewards, smooth=True))
    keys = dict.fromkeys(key for row in c.rows for key in row.values)
    # A key with at least three numbers has an effect that can be drawn as a curve.
    against = [
        response(c, key)
        for key in keys
        if len({row.values[key] for row in c.rows if numeric(row.values.get(key))}) > 2
    ]
    return [*against, *made, finals(c)] if len(keys) == 1 else [*made, finals(c), *against]


def _held_out(run: Record, axis: str) -> Points:
    return _along(run, axis, [(n, score) for n, _, score in run.learning_curve])


def _rewards(run: Record, axis: str) -> Points:
    return _along(run, axis, list(run.points(REWARD)))


def _along(run: Record, axis: str, by_step: Points) -> Points:
    """Points along an axis; along the steps where it is not recorded."""
    metric = AXES[axis][0]
    at: dict[float, float] = dict(run.points(metric)) if run.has(metric) else {}
    return [(at.get(n, 0.0), y) for n, y in by_step] if at else by_step


def _over_time(
    c: Comparison,
    name: str,
    what: str,
    points: Callable[[Record, str], Points],
    smooth: bool = False,
) -> Curve:
    """The mean over seeds. smooth: over a twentieth of the steps."""
    series: list[Series] = []
    few = max(len(row.seeds) for row in c.rows) < MANY
    for i, row in enumerate(c.rows):
        x, y = _align([curve for run in row.runs.values() if (curve := points(run, c.axis))])
        if not y.size:
            continue
        if smooth:
            y = np.stack([stats.running_mean(run, max(1, y.shape[1] // 20)) for run in y])
        grid = x.tolist()
        low = high = None
        if few and len(y) > 1:
            series += [Series(None, grid, run, None, None, "thin", i, i) for run in y.tolist()]
        elif not few:
            ends = [stats.t_interval(column) or (at, at)
                    for column, at in zip(y.T, y.mean(0), strict=True)]  # fmt: skip
            low, high = ([float(end[k]) for end in ends] for k in (0, 1))
        series.append(Series(row.label, grid, y.mean(0).tolist(), low, high, "line", i, i))
    metric, x_name = AXES[c.axis]
    recorded = all(run.has(metric) for row in c.rows for run in row.runs.values())
    around = "a thin line for each seed" if few else "its pointwise 95 % interval"
    caption = f"{what.capitalize()}{', smoothed' * smooth}: the mean over seeds, with {around}."
    return Curve(name, series, x_name if recorded else "step", what, caption)


def _align(curves: list[Points]) -> tuple[Any, Any]:
    """Curves (x, y) of different grids on one: (points,), (seeds, points), as far as all go."""
    if not curves:
        return np.zeros(0), np.zeros((0, 0))
    longest = max(curves, key=len)
    end = min(run[-1][0] for run in curves)
    grid = np.array([x for x, _ in longest if x < end] + [end])
    return grid, np.stack([np.interp(grid, *np.array(run).T) for run in curves])


EACH = "Dots are runs; a bar is the 95 % interval of the mean over seeds, as in the table."


def finals(c: Comparison) -> Curve:
    """Every run's final score, and each row's mean with its interval."""
    series = [one for i, row in enumerate(c.rows) for one in _final(row, i, i, i)]
    labels = [row.label for row in c.rows]
    return Curve("finals", series, "row", f"final {c.what}", f"Final scores. {EACH}", labels, True)


def _final(row: ComparedRow, x: float, colour: int, at: int) -> list[Series]:
    runs = Series(None, [x] * len(row.scores), row.scores, None, None, "dots", colour, at)
    if row.split or not (interval := stats.t_interval(row.scores)):
        return [runs]
    low, high = map(float, interval)
    return [Series(None, [x], [fmean(row.scores)], [low], [high], "dots", colour, at), runs]


def response(c: Comparison, key: str) -> Curve:
    """Final score against a key. Values are equally spaced, since on a linear scale the interesting
    ones (0.9, 0.95, 0.99, 1) would overlap. Rows without the key are dashes across."""
    having = [row for row in c.rows if numeric(row.values.get(key))]
    values = sorted({row.values[key] for row in having})
    lines: dict[str, list[ComparedRow]] = {}
    for row in having:
        rest = {k: v for k, v in row.values.items() if k != key}
        lines.setdefault(label(rest), []).append(row)
    series: list[Series] = []
    for i, (name, rows) in enumerate(lines.items()):
        rows.sort(key=lambda row: row.values[key])
        at = [values.index(row.values[key]) + 0.06 * (i - (len(lines) - 1) / 2) for row in rows]
        for x, row in zip(at, rows, strict=True):
            series += _final(row, x, i, c.rows.index(row))
        series.append(Series(name or key, at, [fmean(row.scores) for row in rows], colour=i))
    for j, row in enumerate(r for r in c.rows if r not in having):
        name, ends = f"{row.label} (has no such option)", [0.0, len(values) - 1.0]
        series.append(
            Series(name, ends, 2 * [fmean(row.scores)], None, None, "thin", len(lines) + j,
                   c.rows.index(row))
        )  # fmt: skip
    caption = f"Effect of {key}; its values are equally spaced. {EACH}"
    what = f"final {c.what}"
    return Curve(f"response-{key}", series, key, what, caption, [as_typed(v) for v in values])
