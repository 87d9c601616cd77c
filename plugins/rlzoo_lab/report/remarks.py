"""The doctor's findings on a run, and the step at which each would first have appeared."""

from dataclasses import dataclass, replace

from rlzoo_lab.data.columns import Columns
from rlzoo_lab.data.record import Record
from rlzoo_lab.doctor.command import examine
from rlzoo_lab.doctor.rules import RULES
from rlzoo_lab.doctor.series import Finding

FINENESS = 256  # of a long run the step is known to a 256th of it


@dataclass
class Remark:
    """A finding, its number on the page, the first step at which the doctor would report it if the
    run ended there, and the metrics that it uses."""

    number: int
    finding: Finding
    since: int
    metrics: tuple[str, ...]


def remarks(record: Record) -> list[Remark]:
    """The doctor's findings, the most severe first.

    The step of each is found by bisection, for which the doctor examines parts of the run.
    """
    if not len(record.steps):
        return []
    findings = examine(record)[0]
    metrics = {rule.name: rule.metrics for rule in RULES}
    said: dict[int, set[str]] = {}  # the rules that report on the first n steps

    def says(n: int, rule: str) -> bool:
        if n not in said:
            found, _ = examine(shortened(record, n))
            said[n] = {name for f in found for name in (f.rule, *f.so_too)}
        return rule in said[n]

    out = []
    for number, finding in enumerate(findings, 1):
        silent, speaks = 0, len(record.steps)
        while speaks - silent > max(1, len(record.steps) // FINENESS):
            middle = (silent + speaks) // 2
            if says(middle, finding.rule):
                speaks = middle
            else:
                silent = middle
        since = int(record.steps[speaks - 1]["step"])
        out.append(Remark(number, finding, since, metrics[finding.rule]))
    return out


def shortened(record: Record, steps: int) -> Record:
    """The run as it was after some of its steps."""
    last = record.steps[steps - 1]["step"]
    evaluations = Columns(line for line in record.evaluations if line["step"] <= last)
    return replace(record, steps=record.steps.first(steps), evaluations=evaluations)
