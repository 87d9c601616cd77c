"""Scores without runs: CSV files or arrays, as rows to compare."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from rlzoo.errors import UsageError, in_short
from rlzoo.runs.disk import LARGEST
from rlzoo_lab.data.columns import Columns
from rlzoo_lab.data.comparable import ComparedRow
from rlzoo_lab.data.record import Record
from rlzoo_lab.data.strict import STEPS, csv_lines, damaged, refuse_losses

# A run's name with its seed at the end, as in grpo-seed-3 and grpo_s3, not epochs8.
SEEDED = re.compile(r"(.+?)(?:[-_. ]*seed|[-_. ]+s)[-_.= ]?(\d+)", re.IGNORECASE)
NAMES = ("name", "method", "algorithm", "algo", "model")  # columns of names
Points = dict[tuple[str, int], dict[int, float]]  # (name, seed) -> step -> score


def rows_of_files(paths: Sequence[str | Path], metric: str | None) -> list[ComparedRow]:
    """The scores in CSV files; empty if no path is a CSV file. metric: the column of scores.

    A line is a seed, or a step of one: the columns name, seed, `metric` and maybe step. Or a line
    is a step and a column is a run, as wandb exports a chart: Step and `NAME-seed-N - metric`.
    Raises DataError, which names the line; UsageError where runs and scores are mixed.
    """
    refuse_losses("--metric", metric or "score")
    files = [
        path for path in map(Path, paths) if path.suffix in (".csv", ".tsv") and path.is_file()
    ]
    if other := next((p for p in map(Path, paths) if p.is_file() and p not in files), None):
        raise UsageError(
            f"{other} is neither a run folder nor scores in a .csv or .tsv file (columns name, "
            "seed, score); `rlzoo import` reads a run of another trainer"
        )
    if not files:
        return []
    if len(files) < len(paths):
        raise UsageError(
            f"{files[0]} contains scores; compare either runs or files of scores, not both"
        )
    points: Points = {}
    for file in files:
        for number, line in csv_lines(file):
            found = _of_line if "seed" in map(str.lower, line) else _of_chart
            for name, seed, step, text in found(file, number, line, metric):
                curve = points.setdefault((name, seed), {})
                if step in curve:
                    raise damaged(
                        file, number, f"only one score for {name}, seed {seed}, step {step}"
                    )
                curve[step] = _score(file, number, text)
    if not points:
        raise damaged(files[0], 2, "a score")
    return rows_of(points, files[0].stem, metric or "score")


Cell = tuple[str, int, int, str]  # name, seed, step, the score's text


def _of_line(file: Path, number: int, line: Mapping[str, str], metric: str | None) -> list[Cell]:
    cells = {name.lower(): text.strip() for name, text in line.items()}
    label = next((n for n in NAMES if n in cells), "name")
    names = (label, "seed", (metric or "score").lower())
    if lacks := [name for name in names if name not in cells]:
        raise damaged(file, 1, f"a column {lacks[0]!r}; its columns are {', '.join(line)}")
    name, seed, score = (cells[n] for n in names)
    if not name:
        raise damaged(file, number, "a name")
    return [(name, _whole(file, number, seed), _whole(file, number, cells.get("step", "0")), score)]


def _of_chart(file: Path, number: int, line: Mapping[str, str], metric: str | None) -> list[Cell]:
    out = []
    for column, text in line.items():
        run, dash, what = column.rpartition(" - ")
        if not dash or what.endswith(("__MIN", "__MAX")) or what != (metric or what) or not text:
            continue
        refuse_losses(str(file), what)
        if not (parts := SEEDED.fullmatch(run.strip())):
            raise damaged(file, 1, f"a seed at the end of the run's name, such as {run}-seed-0")
        if (axis := next((line[n] for n in STEPS if n in line), None)) is None:
            raise damaged(file, 1, f"a column of steps ({', '.join(STEPS[3:5])}, Step, ...)")
        out.append((parts[1], int(parts[2]), _whole(file, number, axis), text))
    if not any(" - " in column for column in line):
        raise damaged(file, 1, "the columns name, seed and score, or Step and NAME-seed-N - metric")
    return out


def _whole(file: Path, number: int, text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise damaged(file, number, f"integers of at least 0 as seed and step. Got {text!r}")
    return int(text)


def _score(file: Path, number: int, text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not abs(score) < LARGEST:
        raise damaged(file, number, f"a number below {LARGEST:g} as score. Got {text[:40]!r}")
    return score


def rows_of(points: Points, title: str, metric: str) -> list[ComparedRow]:
    """A row for each name, with the last score of each seed; scores at steps are its curve."""
    rows: dict[str, ComparedRow] = {}
    for (name, seed), curve in points.items():
        steps = sorted(curve)
        summary: dict[str, Any] = {
            "task": title, "eval_metric": metric, "eval_before": curve[steps[0]],
            "eval_after": curve[steps[-1]], "given": True,
        }  # fmt: skip
        evaluations = Columns({"step": n, f"eval/{metric}": curve[n]} for n in steps)
        place = Path(f"{title}: {name}, seed {seed}")
        record = Record(Columns(), evaluations, {"seed": seed}, summary, place)
        row = rows.setdefault(name, ComparedRow(name, {"row": name}, {}))
        row.runs[seed] = record
    return list(rows.values())


def _rows(given: Any) -> list[Any]:
    """The scores over seeds of an array, tensor, table or list; empty for a set or a mapping."""
    given = _plain(given)
    unordered = isinstance(given, str | bytes | Mapping | Set) or not isinstance(given, Iterable)
    return [] if unordered else list(given)


def _plain(given: Any) -> Any:
    """An array or a tensor of any library, or a tuple, as a list or a number."""
    for method in ("to_numpy", "tolist"):
        if callable(convert := getattr(given, method, None)):
            given = convert()
    return list(given) if isinstance(given, tuple) else given


def rows_of_arrays(
    scores: Mapping[str, Iterable[Any]], paired: bool, steps: Sequence[int] | None
) -> list[ComparedRow]:
    """Rows of arrays: name -> (S,) final scores over seeds, or (S, T) over seeds and steps.

    paired: whether the i-th scores of all names have one seed; without, no two share a seed.
    steps: (T,), else 0, 1, ... Raises UsageError.
    """
    if not isinstance(scores, Mapping) and not hasattr(scores, "items"):
        raise UsageError("compare_scores: expected a mapping of names to scores")
    points: Points = {}
    seed = 0
    steps = None if steps is None else _plain(steps)
    for name, given in scores.items():
        seed = 0 if paired else seed
        table = [row if isinstance(row, list) else [row] for row in map(_plain, _rows(given))]
        at = range(len(table[0]) if table else 0) if steps is None else steps
        if not table or any(len(row) != len(at) or not row for row in table):
            shape = "(S,) or (S, T)" if steps is None else f"(S, {len(at)}), the length of steps"
            raise UsageError(f"compare_scores: {name}: expected scores of shape {shape}")
        for row in table:
            try:
                curve = {int(n): float(x) for n, x in zip(at, row, strict=True)}
            except (TypeError, ValueError):
                curve = {}
            if len(curve) < len(row) or not all(abs(x) < LARGEST for x in curve.values()):
                got = in_short(row)
                raise UsageError(
                    f"compare_scores: {name}: expected numbers below {LARGEST:g}. Got {got}"
                )
            points[str(name), seed] = curve
            seed += 1
    sizes = {str(name): sum(n == str(name) for n, _ in points) for name in scores}
    if paired and len(set(sizes.values())) > 1:
        told = ", ".join(f"{name} has {n}" for name, n in sizes.items())
        raise UsageError(
            f"compare_scores: paired scores need the same number of seeds: {told}. Give the scores "
            "of common seeds, or paired=False"
        )
    if not points:
        raise UsageError("compare_scores: expected a mapping of names to scores")
    return rows_of(points, "scores", "score")
