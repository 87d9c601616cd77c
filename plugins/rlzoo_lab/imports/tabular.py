"""Lines of metrics in JSON and tables, as rows: the step and the run of each line, its numbers."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo_lab.data.strict import COUNTERS, STEPS, csv_lines, damaged, json_lines
from rlzoo_lab.imports.found import Found, Row, Values, flat, per_rollout

Lines = Sequence[tuple[int, Mapping[str, Any]]]  # (number of the line, name -> value)
# Columns whose values name a run or a process, and those that name a metric.
RUNS = {"run", "run_id", "run_name", "name", "experiment", "method", "algorithm", "algo", "seed",
        "trial", "rank", "worker"}  # fmt: skip
METRICS = {"metric", "metricname", "tag", "variable", "key"}
NOT_FINITE = re.compile(r"\s*([-+]?(?:nan|inf(?:inity)?))\s*", re.IGNORECASE)
LIKE_A_NUMBER = re.compile(r"[-+$€£]?\s?\d[\d.,' ]*\s?%?")
MISSING = {"", "-", "na", "n/a", "none", "null"}
MOST_ROWS = 1_000_000  # of a parquet file


def number(value: Any) -> float | None:
    """A number, also NaN or infinity as a text, integers beyond 15 digits as floats; or None."""
    if type(value) is float:
        return value
    if type(value) is int:
        if abs(value) < 10**15:
            return value
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str) and (found := NOT_FINITE.fullmatch(value)):
        return float(found[1])
    return None


def parsed(text: str) -> float | None:
    """The number that a text is; None for any other text."""
    try:
        return number(int(text) if len(text) < 16 and text.lstrip("-").isdecimal() else float(text))
    except ValueError:
        return None


def step_of(values: Mapping[str, Any], path: Path, line: int, names: Sequence[str] = STEPS) -> int:
    """The step number of a line, by the first name that it has; raises DataError without one."""
    for name in names:
        if name in values:
            step = values[name]
            whole = isinstance(step, int | float) and not isinstance(step, bool)
            if not whole or step != step or abs(step) > 1e15 or step != int(step) or step < 0:
                raise damaged(path, line, f"a whole number of at least 0 as {name!r}")
            return int(step)
    few = ", ".join(names[3:5] or names)
    raise damaged(path, line, f"a step ({few}, ...; --step NAME names another)")


def rows_of(
    path: Path, given: Iterable[tuple[int, Mapping[str, Any]]], found: Found
) -> Iterator[Row]:
    """A file's lines as rows.

    `_step` and `Step` count the lines of a tracker. Where they differ from the trainer's own
    steps, a line that has no other belongs to the next step: a reward function that logs by
    itself comes before the trainer. transformers' summary at the end is left out.
    """
    lines = [(at, _wide({k: _told(k, v) for k, v in flat(values, split="/").items()}))
             for at, values in given if "train_runtime" not in values]  # fmt: skip
    _note_texts(path, lines, found)
    names = (found.step,) if found.step else STEPS
    own = [n for n in names if n not in COUNTERS]
    stepped = [next((n for n in own if n in values), "") for _, values in lines]
    found.stepped |= {*stepped} - {""}
    counts = any(name and any(c in v and v[c] != v[name] for c in COUNTERS)
                 for name, (_, v) in zip(stepped, lines, strict=True))  # fmt: skip
    runs, waiting, last = _runs(lines, names), list[Row](), 0
    both = {"rollout/step", "train/step"} <= {*stepped}  # as slime counts
    rollouts, optimized = set[int](), list[Row]()
    sparse, padded = _sparse(lines), _padded(lines)
    for (line, values), name, run in zip(lines, stepped, runs, strict=True):
        gaps = 2 * sum(v is None for v in values.values()) > len(values)
        kept = {k: x for k, v in values.items() if k not in STEPS and k[:1] != "_"
                and (x := number(v) if v is not None or gaps or k in sparse else math.nan)
                is not None and k != found.step and (v == v or k not in padded)}  # fmt: skip
        if counts and not name and any(c in values for c in COUNTERS):
            waiting.append(Row(0, kept, run))
            continue
        last = step_of(values, path, line, names)
        rollouts |= {last} if name == "rollout/step" else set()
        if name == "train/step" and both:
            optimized.append(Row(last, kept, run))
            continue
        yield from (Row(last, row.values, row.run) for row in [*waiting, Row(0, kept, run)])
        found.placed += len(waiting)
        waiting = []
    found.placed += len(waiting)
    yield from (Row(last, row.values, row.run) for row in waiting)
    yield from per_rollout(optimized, rollouts, found)


def _told(name: str, value: Any) -> Any:
    """A value, a number where a program wrote it as a text (`"0.5"`, or `"3/9"` for the step 3)."""
    if name in STEPS and isinstance(value, str) and re.fullmatch(r"\d{1,15}/\d{1,15}", value):
        return int(value.partition("/")[0])
    kept = name in STEPS or name.lower() in RUNS
    if kept or not isinstance(value, str) or (found := parsed(value)) is None:
        return value
    return found


def _wide(values: dict[str, Any]) -> dict[str, Any]:
    """A line of a long table, which has a metric's name and its value, as the metric."""
    named = {_letters(n): n for n in values}
    long = [n for n in values if _letters(n) in METRICS and isinstance(values[n], str)]
    value = named.get("value", named.get("metricvalue", ""))
    if len(long) == 1 and number(values.get(value)) is not None:
        values[values.pop(long[0])] = values.pop(value)
    return values


@cache
def _letters(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def _sparse(lines: Lines) -> set[str]:
    """The names whose null is a value that was not recorded: as a table with gaps has them, between
    its numbers and often. Any other null is NaN, if most of its line are numbers."""
    out = set()
    for name in {k for _, values in lines for k, v in values.items() if v is None}:
        there = [number(values[name]) is not None for _, values in lines if name in values]
        between = any(after > before for before, after in itertools.pairwise(there))
        if sum(there) < 2 or (between and 10 * there.count(False) > len(there)):
            out.add(name)
    return out


def _padded(lines: Lines) -> set[str]:
    """The names whose NaN is a gap, as some programs write tables: most of its lines, and not up to
    the end, as where a run diverged."""
    out = set()
    for name in {k for _, values in lines for k, v in values.items() if v != v}:
        known = [values[name] == values[name] for _, values in lines if name in values]
        between = any(after > before for before, after in itertools.pairwise(known))
        out |= {name} if between and 2 * sum(known) < len(known) else set()
    return out


def _runs(lines: Lines, steps: Sequence[str]) -> list[str]:
    """The run of each line, empty where all are of one. A column that names runs distinguishes
    them, and so do columns without which a step would have two values of a metric: of texts, or
    one of numbers whose runs all begin at the same step (a resumed run does not). steps: the names
    of a step."""
    columns: dict[str, list[tuple[Any, Any]]] = {}  # the values of each, with their steps
    for _, values in lines:
        step = _step(values, steps)
        for name, v in values.items():
            if name not in (*STEPS, *steps) and isinstance(v, str | int | float):
                columns.setdefault(name, []).append((v, step))
    several = {name for name, found in columns.items() if len({v for v, _ in found}) > 1}
    runs = [name for name in columns if name in several and name.lower() in RUNS]
    # A column that differs in nearly every line is a time, a text or a metric.
    few = [name for name, found in columns.items() if name in several and name not in runs
           and 2 * len({v for v, _ in found}) <= len(found)]  # fmt: skip
    texts = [n for n in few if any(isinstance(v, str) for v, _ in columns[n])]

    def labels(names: Sequence[str]) -> list[str]:
        return [" ".join(str(values[n]) for n in names if n in values) for _, values in lines]

    known = labels(runs)
    if not _clash(lines, steps, known):
        return known
    if texts and not _clash(lines, steps, labels([*runs, *texts])):
        return labels([*runs, *texts])
    for name in few:
        first = dict(reversed(columns[name]))
        whole = len(columns[name]) == len(lines) and len({*first.values()}) == 1
        if whole and name not in texts and _clash(lines, steps, known, name):
            marked = [f"{run} {name}={values[name]}".strip()
                      for run, (_, values) in zip(known, lines, strict=True)]  # fmt: skip
            if not _clash(lines, steps, marked, name):
                return marked
    return known


def _step(values: Mapping[str, Any], steps: Sequence[str]) -> Any:
    return next((values[n] for n in steps if n in values), None)


def _clash(lines: Lines, steps: Sequence[str], runs: Sequence[str], besides: str = "") -> bool:
    """Whether a step of a run has two values of a metric."""
    seen: dict[tuple[Any, ...], Any] = {}
    for (_, values), run in zip(lines, runs, strict=True):
        step = _step(values, steps)
        for name, v in values.items():
            known = name not in (*STEPS, *steps, besides) and number(v) is not None
            if known and seen.setdefault((run, step, name), v) != v:
                return True
    return False


def begun_again(rows: list[Row]) -> list[Row]:
    """Rows as they are; in parts, as runs, where a metric begins again at its first step and does
    not come as far as before, so that its values would be of two runs."""
    first: dict[str, int] = {}
    last: dict[str, tuple[int, float]] = {}  # its step in the current part, and its value
    part: dict[str, int] = {}
    top: dict[str, int] = {}
    parts = []
    for row in rows:
        for name, value in row.values.items():
            begun = first.setdefault(name, row.step)
            step, before = last.get(name, (row.step, value))
            if row.step <= begun < step and value != before:
                part[name] = part.get(name, 1) + 1
            top[name] = max(top.get(name, 0), row.step)
            last[name] = row.step, value
        parts.append(max((part.get(name, 1) for name in row.values), default=1))
    short = any(last[name][0] < top[name] for name in part)
    return [replace(row, run=f"part {n}") for row, n in zip(rows, parts, strict=True)] if (
        short) else rows  # fmt: skip


def metric_rows(path: Path, found: Found) -> Iterator[Row]:
    """Lines of metrics: {"step": 1, "data": {...}} as written by verl, or flat objects."""

    def lines() -> Iterator[tuple[int, Mapping[str, Any]]]:
        for at, line in json_lines(path):
            values = line.get("data", line)
            if not isinstance(values, dict):
                raise damaged(path, at, 'an object as "data"')
            if steps := {k: line[k] for k in STEPS if k in line and "data" in line}:
                values = steps | {k: v for k, v in values.items() if k not in STEPS}
            yield at, values

    return rows_of(path, lines(), found)


def table_rows(path: Path, found: Found) -> Iterator[Row]:
    """A table with a column of steps. wandb exports a chart of runs as `Step`, `RUN - METRIC`."""
    lines, charts = list[tuple[int, dict[str, Any]]](), dict[str, list[tuple[int, Values]]]()
    for at, line in csv_lines(path):
        values, steps, curves = dict[str, Any](), Values(), dict[str, Values]()
        for name, text in line.items():
            text = text.strip()
            if name.endswith(("__MIN", "__MAX")) or text.lower() in MISSING:
                continue
            value = parsed(text)
            if name in STEPS or name == found.step:
                if value is None:
                    raise damaged(path, at, f"a number as {name!r}")
                values[name] = steps[name] = value
                continue
            run, _, metric = name.rpartition(" - ")
            if run and value is not None and metric[:1] != "_":
                curves.setdefault(run, {})[metric] = value
            elif not run:
                values[name] = text if value is None else value
        lines.append((at, values))
        for run, metrics in curves.items():
            charts.setdefault(run, []).append((at, {**steps, **metrics}))
    yield from rows_of(path, lines, found)
    for run, curve in charts.items():
        yield from (replace(row, run=run) for row in rows_of(path, curve, found))


def _note_texts(path: Path, lines: Lines, found: Found) -> None:
    """Note the texts that are left out: in columns that also have numbers, or like a number."""
    numeric = {n for _, values in lines for n, v in values.items() if isinstance(v, int | float)}
    odd = [(at, n, v) for at, values in lines for n, v in values.items()
           if isinstance(v, str) and n.lower() not in RUNS
           and (n in numeric or LIKE_A_NUMBER.fullmatch(v))]  # fmt: skip
    if odd:
        at, name, text = odd[0]
        found.notes.append(f"{path}: {len(odd)} texts are not numbers and left out (the "
                           f"first is {text[:40]!r} as {name!r} in line {at})")  # fmt: skip


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    """Raises DataError; RlzooError without pyarrow."""
    try:
        from pyarrow import ArrowException, ArrowInvalid
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise RlzooError(f"{path}: parquet needs pyarrow: pip install 'rlzoo-llm[data]'") from None
    try:
        with ParquetFile(path) as file:
            if file.metadata.num_rows > MOST_ROWS:
                raise damaged(path, None, f"at most {MOST_ROWS:,} rows")
            return list(file.read().to_pylist())
    except (ArrowInvalid, ArrowException, OSError, ValueError):
        raise damaged(path, None, "a whole parquet file") from None
