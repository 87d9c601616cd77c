"""Scores without runs: a CSV file or arrays, as records to compare."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlzoo.errors import UsageError
from rlzoo_lab.records.columns import Columns
from rlzoo_lab.records.comparable import ComparedRow, Gathered
from rlzoo_lab.records.record import Record
from rlzoo_lab.strict import csv_lines, damaged

NEEDED, OPTIONAL = ("name", "seed", "score"), "step"
Points = dict[tuple[str, int], dict[int, float]]


def gather_scores(paths: Iterable[str | Path]) -> Gathered | None:
    """The scores in CSV files; None where no path is one. Raises DataError, which names the line;
    UsageError where runs and scores are mixed."""
    places = [Path(path) for path in paths]
    files = [p for p in places if p.suffix == ".csv" and p.is_file()]
    if not files:
        return None
    if others := [p for p in places if p not in files]:
        raise UsageError(
            f"{others[0]} is not a CSV file of scores; compare runs or scores, not both"
        )
    points: Points = {}
    for file in files:
        _read(file, points)
    if not points:
        raise damaged(files[0], 2, "a score: a line below the header")
    return as_records(points, files[0].stem)


def _read(path: Path, points: Points) -> None:
    for number, line in csv_lines(path):
        if lacks := [name for name in NEEDED if name not in line]:
            raise damaged(path, 1, f"the columns {', '.join(NEEDED)}; {lacks[0]!r} is missing")
        seed, step = (_whole(path, number, line, name) for name in ("seed", OPTIONAL))
        try:
            score = float(line["score"])
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise damaged(path, number, f"a finite number as score. Got {line['score']!r}")
        name = line["name"].strip()
        if not name:
            raise damaged(path, number, "a name")
        curve = points.setdefault((name, seed), {})
        if step in curve:
            raise damaged(path, number, f"one score for {name}, seed {seed}, step {step}")
        curve[step] = score


def _whole(path: Path, number: int, line: Mapping[str, str], name: str) -> int:
    text = line.get(name, "0").strip()
    if not text.isdecimal() or len(text) > 15:
        raise damaged(path, number, f"a whole number of at least 0 as {name}. Got {text!r}")
    return int(text)


def as_records(points: Points, title: str) -> Gathered:
    """A record for each name and seed: its last score counts, scores at steps are its curve."""
    gathered = Gathered()
    for (name, seed), curve in points.items():
        steps = sorted(curve)
        path = Path(f"{name}-seed-{seed}")
        evaluations = Columns({"step": n, "eval/score": curve[n]} for n in steps)
        summary: dict[str, Any] = {
            "task": title, "eval_metric": "score", "eval_before": curve[steps[0]],
            "eval_after": curve[steps[-1]], "given": True,
        }  # fmt: skip
        recipe = {"recipe": name, "seed": seed, "row": name}
        gathered.records.append(Record(Columns(), evaluations, recipe, summary, path))
        gathered.rows.setdefault(name, ComparedRow(name, {"row": name}, {}))
        gathered.row_of[path] = name
    return gathered


def array_points(scores: Mapping[str, Any], paired: bool, steps: Sequence[int] | None) -> Points:
    """The points of arrays: name -> (S,) final scores over seeds, or (S, T) over seeds and steps.

    paired: whether the i-th of each name is of one seed; without, no seed is shared. Raises
    UsageError.
    """
    points: Points = {}
    seed = 0
    if not scores:
        raise UsageError("compare_scores: needs a name with scores at least")
    for name, rows in scores.items():
        seed = 0 if paired else seed
        values = [list(row) if hasattr(row, "__len__") else [row] for row in rows]
        width = len(values[0]) if values else 0
        if not width or any(len(row) != width for row in values):
            raise UsageError(f"compare_scores: {name}: needs scores (S,) or (S, T), S and T from 1")
        at = range(width) if steps is None else steps
        if len(at) != width:
            raise UsageError(f"compare_scores: {name}: {width} scores a seed and {len(at)} steps")
        for row in values:
            try:
                curve = {int(n): float(v) for n, v in zip(at, row, strict=True)}
            except (TypeError, ValueError):
                raise UsageError(f"compare_scores: {name}: {row!r} are not numbers") from None
            if not all(map(math.isfinite, curve.values())):
                raise UsageError(f"compare_scores: {name}: a score is not finite")
            points[str(name), seed] = curve
            seed += 1
    return points
