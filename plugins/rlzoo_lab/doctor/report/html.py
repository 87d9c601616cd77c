"""The page about a run: a description, its progress, and three tabs."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from rlzoo.runs.folder import RunFolder
from rlzoo.runs.lock import is_locked
from rlzoo.runs.metrics import GAIN, SECONDS, TOKENS, headline
from rlzoo_lab.data.record import Record, read_record
from rlzoo_lab.doctor.command import examine
from rlzoo_lab.doctor.report.batches import STEPS, read_batches, read_samples
from rlzoo_lab.doctor.report.groups import groups_tab, step_section
from rlzoo_lab.doctor.report.tokens import BUDGET, shown_tokens, tokens_tab
from rlzoo_lab.doctor.report.trend import Trend
from rlzoo_lab.doctor.series import Finding
from rlzoo_lab.view import page as html
from rlzoo_lab.view.numbers import brief, signed
from rlzoo_lab.view.page import tag


@dataclass
class Report:
    """The contents of a page.

    groups, tokens: those of each saved batch, newest first. state: finished, running or stopped.
    """

    path: Path
    record: Record
    findings: list[Finding]
    groups: dict[int, str]
    tokens: list[dict[str, Any]]
    samples: Mapping[int, list[dict[str, Any]]]
    troubles: list[str]
    state: str

    @property
    def step(self) -> int:
        """The last recorded step, of training or of an evaluation."""
        both = self.record.steps, self.record.evaluations
        return int(max((lines[-1]["step"] for lines in both if lines), default=0))


def read_report(folder: RunFolder) -> Report:
    """The readable content of a run's folder, finished or not. Raises OSError."""
    going = is_locked(folder.path)  # checked first: a run that ends meanwhile has its summary
    record = read_record(folder.path)
    troubles, groups, tokens = record.troubles, dict[int, str](), list[dict[str, Any]]()
    for batch in read_batches(folder, troubles):
        groups[batch.step] = step_section(batch)
        # The newest takes half of the room.
        tokens.append(shown_tokens(batch, BUDGET // (2 if not tokens else 2 * (STEPS - 1))))
    state = "finished" if record.summary else "running" if going else "stopped"
    found = examine(record)[0] if len(record.steps) else []
    return Report(folder.path, record, found, groups, tokens, read_samples(folder), troubles, state)


def page(report: Report, refresh: float | None = None) -> str:
    """The whole document. refresh: seconds until the browser reloads it."""
    record = report.record
    planned = record.known("train.steps")
    trend = Trend(record, report.findings, planned if isinstance(planned, int) else None)
    whose = record.summary.get("imported") if record.summary else None
    how = [f"An import of {whose['from']} has no tokens."] if whose else []
    tokens, numbers = tokens_tab(report.tokens, *how)
    blocks = [_subtitle(report), _facts(report)]
    blocks += [tag("p", trouble, "warn") for trouble in report.troubles]
    panels = [("trend", "Trend", trend.html),
              ("step", "Step", groups_tab(report.groups, report.samples, *how)),
              ("token", "Token", tokens)]  # fmt: skip
    told = {k: v for k, v in sorted(record.recipe.items()) if v not in (None, "")}
    views, tabs = html.tabs("views of the run", panels)
    blocks += [views, html.settings(told)]
    blocks.append(html.data_block("data", {"charts": trend.data, "tokens": numbers}))
    css, script = html.beside(__file__, "page.css", "page.js")
    title = report.path.resolve().name
    touch, shared = html.touch()
    scripts = "\n".join([touch, tabs, script])
    return html.page(title, blocks, shared + css, script=scripts, refresh=refresh)


def _subtitle(report: Report) -> str:
    key = report.record.known
    model = key("model.name") or key("model.path")
    told = " · ".join(
        str(word)
        for word in (key("recipe"), model and f"{model} on {key('task.name', 'an unknown task')}",
                     key("estimator.name"), f"seed {key('seed', '?')}")
        if word
    )  # fmt: skip
    steps, state = report.record.known("train.steps"), report.state
    done = f"step {report.step:,}" + (f" of {steps:,}" if isinstance(steps, int) else "")
    return (
        f'<p class="muted"><span class="state {state}">{state}</span> {done} · {escape(told)}</p>'
    )


def _facts(report: Report) -> str:
    record = report.record
    facts: list[tuple[str, str, str]] = []
    there = [line for line in record.evaluations if any(k.endswith("_low") for k in line)]
    try:
        what, after, low, high = headline(there[-1])
        facts.append((f"held-out {what}", brief(after), f"{brief(low)} to {brief(high)}"))
        before = brief(headline(there[0])[1])
        facts.append(("before training", before, f"at step {there[0]['step']}"))
        rise, *ends = (signed(there[-1][f"{GAIN}{end}"]) for end in ("", "_low", "_high"))
        facts.append(("gain, paired by prompt", rise, " to ".join(ends)))
    except (LookupError, TypeError, ValueError):
        pass  # no evaluation yet, or one of other metrics
    for title, metric in (("tokens generated", TOKENS), ("time", SECONDS)):
        values = record.series(metric)
        if values:
            facts.append((title, _time(values[-1]) if metric == SECONDS else brief(values[-1]), ""))
    cells = "".join(
        f"<div>{tag('dt', name)}<dd>{escape(value)}{tag('small', note) if note else ''}</dd></div>"
        for name, value, note in facts
    )
    return f'<dl class="facts">{cells}</dl>' if facts else ""


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
