"""Rows of parquet, and metrics in JSON lines and CSV: the step of each line, and its numbers."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo_lab.imports.found import Row, Values
from rlzoo_lab.strict import csv_lines, damaged, json_lines

# Trainers' names for the number of a step; the first that a line has counts.
STEPS = ("train/global_step", "training/global_step", "trainer/global_step", "global_step", "step",
         "rollout/step", "train/step", "eval/step", "_step", "Step")  # fmt: skip


def step_of(values: Mapping[str, Any], path: Path, line: int) -> int:
    """The step number of a line; raises DataError if there is none."""
    for name in STEPS:
        if name in values:
            step = values[name]
            whole = isinstance(step, int | float) and not isinstance(step, bool)
            if not whole or step != step or abs(step) > 1e15 or step != int(step) or step < 0:
                raise damaged(path, line, f"a whole number of at least 0 as {name!r}")
            return int(step)
    raise damaged(path, line, f"a step ({', '.join(STEPS[3:5])}, ... )")


def metric_rows(path: Path) -> Iterator[Row]:
    """Lines of metrics: {"step": 1, "data": {...}} as written by verl, or flat objects."""
    for number, line in json_lines(path):
        values = line.get("data", line)
        if not isinstance(values, dict):
            raise damaged(path, number, 'an object as "data"')
        step = step_of(line if "data" in line else values, path, number)
        yield Row(step, without_steps(values))


def without_steps(values: Mapping[str, Any]) -> Values:
    """The metrics among the values of a line: numbers, NaN and infinities included."""
    return {k: v for k, v in values.items()
            if type(v) in (int, float) and k not in STEPS and k[:1] != "_"}  # fmt: skip


def table_rows(path: Path) -> Iterator[Row]:
    """A CSV file with a column of steps, also as wandb exports one: `Step`, `NAME - metric`."""
    for number, line in csv_lines(path):
        values: dict[str, float] = {}
        for name, text in line.items():
            if name.endswith(("__MIN", "__MAX")) or text.strip() == "":
                continue
            try:
                value: float = int(text) if text.lstrip("-").isdecimal() else float(text)
            except ValueError:
                if name in STEPS:
                    raise damaged(path, number, f"a number as {name!r}") from None
                continue  # a column of texts
            values[name.rpartition(" - ")[2]] = value
        yield Row(step_of(values, path, number), without_steps(values))


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    """Raises DataError; RlzooError without pyarrow."""
    try:
        from pyarrow import ArrowException, ArrowInvalid
        from pyarrow.parquet import read_table
    except ImportError:
        raise RlzooError(f"{path}: parquet needs pyarrow: pip install 'rlzoo-llm[data]'") from None
    try:
        return list(read_table(path).to_pylist())
    except (ArrowInvalid, ArrowException, OSError, ValueError):
        raise damaged(path, None, "a whole parquet file") from None
