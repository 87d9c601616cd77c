"""The structure of a rule.

A rule is a cause, a symptom or an aside. Symptoms follow from any fault that keeps a policy from
learning, so they are listed under the cause, if a rule finds one. An aside is a fault of what is
measured: it is reported, and explains nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rlzoo_lab.data.record import Record
from rlzoo_lab.doctor.series import Finding

SHORTEST_TREND = 6  # steps; below, thirds are too short to compare

Judge = Callable[[Record], Finding | None]
Kind = Literal["cause", "symptom", "aside"]


@dataclass(frozen=True)
class Rule:
    """A check, the metrics it reads, and the number of steps that it requires."""

    name: str
    judge: Judge
    metrics: tuple[str, ...]
    least: int
    kind: Kind


RULES: list[Rule] = []


def _kind(kind: Kind) -> Callable[..., Callable[[Judge], Judge]]:
    def rule(*metrics: str, least: int = 1) -> Callable[[Judge], Judge]:
        """Register a rule; it runs only where each of `metrics` has at least `least` values."""

        def add(judge: Judge) -> Judge:
            RULES.append(Rule(judge.__name__, judge, metrics, least, kind))
            return judge

        return add

    return rule


cause, symptom, aside = _kind("cause"), _kind("symptom"), _kind("aside")
