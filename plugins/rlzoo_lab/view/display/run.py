"""A run as blocks: its curve, held-out scores, last numbers and samples. The contents of a run's
files are texts, and only finite numbers become points."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rlzoo.cli.run.lines import cells
from rlzoo.runs.disk import is_number
from rlzoo.runs.metrics import ACCURACY, GREEDY, REWARD, SCORE
from rlzoo_lab.view.blocks import Column, Curve, Series, Table, Text, column

LONGEST = 300  # characters of a sample's text

Point = tuple[float, float]
Held = tuple[float, float, float, float]  # step, score, the ends of its interval


def finite(value: Any) -> float | None:
    """A line's value as a finite float; None if it is not a number."""
    return float(value) if is_number(value) and math.isfinite(value) else None


def held_out(evaluations: Sequence[Mapping[str, Any]]) -> tuple[str, list[Held]]:
    """The held-out metric (accuracy if available) and its value in each evaluation."""
    name = ACCURACY if any(ACCURACY in line for line in evaluations) else SCORE
    found = []
    for line in evaluations:
        step, value = finite(line.get("step")), finite(line.get(name))
        if step is None or value is None:
            continue
        low, high = (finite(line.get(f"{name}_{end}")) for end in ("low", "high"))
        found.append((step, value, value if low is None else low, value if high is None else high))
    return name.removeprefix("eval/"), found


def curve(line: Iterable[Point], evaluations: Sequence[Mapping[str, Any]] = (), name: str = REWARD
) -> Curve:  # fmt: skip
    """A metric of each step, by default the reward, and held-out scores with their intervals."""
    known = list(line)
    series = [Series(name, [x for x, _ in known], [y for _, y in known])] if known else []
    what, held = held_out(evaluations)
    if held:
        xs, ys, low, high = zip(*held, strict=True)
        series.append(Series(f"held-out {what}, 95 % interval", xs, ys, low, high, "dots", 1))
    return Curve(name, series, y=name)


def numbers(line: Mapping[str, Any]) -> Text:
    """The metrics of a step in one row."""
    known = {name: value for name, value in line.items() if finite(value) is not None}
    return Text(" · ".join(f"{name} {value}" for name, value in cells(known)), "faint")


def scores(evaluations: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Held-out before and after, with intervals; none without an evaluation."""
    what, held = held_out(evaluations)
    ends = [held[0], held[-1]] if len(held) > 1 else held
    lines = [next(e for e in evaluations if finite(e.get("step")) == step) for step, *_ in ends]
    columns = [
        column("at step", (step for step, *_ in ends), "{:.0f}".format),
        column(f"held-out {what}", (value for _, value, *_ in ends), "{:.3f}".format),
        Column("95 % interval", [f"{low:.3f} to {high:.3f}" for *_, low, high in ends]),
        column("greedy", (finite(line.get(GREEDY)) for line in lines), "{:.3f}".format),
    ]
    return [Table(columns)] if ends else []


def samples(rows: Collection[Mapping[str, Any]], title: str = "") -> Table:
    """Prompts and responses, a row each."""

    def score(row: Mapping[str, Any]) -> str:
        value = finite(row.get("score"))
        judged = "answer" in names if "step" in row else "right" in row
        cut = row.get("truncated") is True and judged
        return ("?" if value is None else f"{value:.2f}") + " cut off" * cut

    def cell(value: Any) -> str:
        said = str("-" if value is None else value)
        return said if len(said) <= LONGEST else f"{said[:LONGEST]}…"

    told = any(row.get("answer") is not None for row in rows)
    names = ["prompt", "response", *["answer"] * told]
    texts = [Column(name, [cell(row.get(name)) for row in rows], left=True) for name in names]
    steps = [Column("step", [cell(row.get("step")) for row in rows])]
    trained = any("step" in row for row in rows)
    return Table([*steps * trained, *texts, Column("score", list(map(score, rows)))], title)
