"""What the doctor's rules share: a finding, thirds and trends, a run's folder."""

import itertools
import math
from collections.abc import Sequence
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


def first(items: Sequence) -> Sequence:
    """The first third, at least one."""
    return items[: max(1, len(items) // 3)]


def last(items: Sequence) -> Sequence:
    """The last third, at least one."""
    return items[-max(1, len(items) // 3) :]


def trend(values: list[float]) -> tuple[float, float]:
    """(last third minus first third, standard error of that), by differences between neighbours:
    a slope does not count as noise."""
    gaps = [(b - a) ** 2 for a, b in itertools.pairwise(values)]
    variance = fmean(gaps) / 2 if gaps else 0.0
    before, after = ends(values)
    return after - before, math.sqrt(2 * variance / len(first(values)))


def spans(run: Record, name: str) -> tuple[str, str]:
    """`steps 1 to 20`: where the first and the last third of a metric lie."""
    numbers = run.steps_of(name)

    def span(third: Sequence[int]) -> str:
        return f"steps {third[0]} to {third[-1]}" if len(third) > 1 else f"step {third[0]}"

    return span(first(numbers)), span(last(numbers))


def ends(values: list[float]) -> tuple[float, float]:
    """(mean of the first third, mean of the last)."""
    return fmean(first(values)), fmean(last(values))


def judged(metric: str) -> bool:
    """Whether a rule may rest on a metric: what no rule does is not kept in memory."""
    return not metric.startswith(("timing_s/", "tokens/")) and not metric.endswith(("/min", "/max"))


def read_run(folder: RunFolder) -> Record:
    """A run's record; its troubles say too where it is not finished."""
    record = read_record(folder.path, judged)
    if not record.summary:
        done = record.steps[-1]["step"] if record.steps else 0
        planned = record.key("train.steps")
        of = f" of {planned}" if planned else ""
        record.troubles.append(
            f"the run is not finished: step {done}{of}; it may still be going, or "
            f"`rlzoo resume {folder.path}` goes on with it"
        )
    return record
