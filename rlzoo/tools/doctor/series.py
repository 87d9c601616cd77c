"""What the doctor's rules share: a finding, thirds and trends, a run's folder."""

import itertools
import math
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rlzoo.runs.folder import RunFolder
from rlzoo.runs.record import Record, read_record


@dataclass
class Finding:
    """What is wrong, the numbers it rests on, and what to try."""

    severity: str
    what: str
    advice: str
    evidence: dict[str, Any]
    rule: str = ""


def first(items: list) -> list:
    """The first third, at least one."""
    return items[: max(1, len(items) // 3)]


def last(items: list) -> list:
    """The last third, at least one."""
    return items[-max(1, len(items) // 3) :]


def trend(values: list[float]) -> tuple[float, float]:
    """(last third minus first third, standard error of that), by differences between neighbours:
    a slope does not count as noise."""
    gaps = [(b - a) ** 2 for a, b in itertools.pairwise(values)]
    variance = fmean(gaps) / 2 if gaps else 0.0
    n = max(1, len(values) // 3)
    return fmean(last(values)) - fmean(first(values)), math.sqrt(2 * variance / n)


def spans(run: Record, name: str) -> tuple[str, str]:
    """`steps 1 to 20`: where the first and the last third of a metric lie."""
    numbers = [n for n, _ in run.points(name)]

    def words(part: list[int]) -> str:
        return f"steps {part[0]} to {part[-1]}" if len(part) > 1 else f"step {part[0]}"

    return words(first(numbers)), words(last(numbers))


def read(folder: RunFolder) -> tuple[Record, list[str]]:
    """A run's record, and what is wrong with its folder."""
    record = read_record(folder.path)
    troubles = list(record.troubles)
    if not record.summary:
        done = record.steps[-1]["step"] if record.steps else 0
        planned = record.key("train.steps")
        of = f" of {planned}" if planned else ""
        troubles.append(
            f"the run is not finished: step {done}{of}; it may still be going, or "
            f"`rlzoo resume {folder.path}` goes on with it"
        )
    return record, troubles
