"""The tab of the whole run: the doctor's findings, and metrics as curves."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from html import escape
from typing import Any

from rlzoo.runs import metrics as names
from rlzoo_lab.data.columns import Columns
from rlzoo_lab.data.metrics import metrics
from rlzoo_lab.data.record import Record
from rlzoo_lab.doctor.series import Finding
from rlzoo_lab.stats import smoothed
from rlzoo_lab.view.blocks import Curve, Series
from rlzoo_lab.view.chart import draw, tint
from rlzoo_lab.view.numbers import brief
from rlzoo_lab.view.page import folded, tag

SMOOTH = 40  # steps from which on a curve is smoothed

# heading -> title, metrics of one chart; those that a run does not have are left out
SHOWN: dict[str, dict[str, tuple[str, ...]]] = {
    "Does it learn?": {
        "held-out": (),  # of the evaluations
        "reward": (names.REWARD,),
        "response length": (names.LENGTH,),
        "groups without signal": (names.NO_SIGNAL,),
        "truncated at the length limit": (names.TRUNCATED,),
    },
    "How far does the policy move?": {
        "entropy, nats per token": (names.ENTROPY,),
        "KL to the reference, per response": (names.REF_KL_PER_RESPONSE,),
        "KL within the update": (names.PPO_KL,),
        "share of tokens clipped": ("actor/pg_clipfrac",),
        "sampler minus policy, nats": (names.LOG_PROB_GAP,),
        "actor gradient norm": ("actor/grad_norm",),
    },
    "How good is the critic?": {
        "explained variance": (names.EXPLAINED_VARIANCE,),
        "explained at the prompt, and its maximum": (names.PROMPT_EXPLAINED, names.PROMPT_CEILING),
        "bias of the values": (names.VALUE_BIAS,),
        "value loss": ("critic/vf_loss",),
        "critic gradient norm": ("critic/grad_norm",),
    },
    "How fast is it?": {"tokens per second": ("perf/tokens_per_second",)},
}  # fmt: skip

LEGEND = {names.ANSWER_PROB: "P(answer), not sampled"}  # where a name does not explain itself

HELD_OUT = (names.ACCURACY, names.GREEDY, names.ANSWER_PROB, names.SCORE)


class Trend:
    """The tab's HTML, and the numbers that its script shows."""

    def __init__(self, record: Record, findings: Sequence[Finding], planned: int | None):
        self.record = record
        self.end = float(planned or 0)
        self.data: dict[str, Any] = {}
        self.drawn: set[str] = set()
        blocks = []
        for heading, charts in SHOWN.items():
            cards = [self.card(title, keys) for title, keys in charts.items()]
            if any(cards):
                blocks.append(tag("h2", heading) + _grid(cards))
        # Notes can wait until the first charts have been seen.
        wait = blocks and findings and all(f.severity == "note" for f in findings)
        blocks.insert(1 if wait else 0, findings_block(findings, len(record.steps)))
        others = sorted(record.steps.names() - self.drawn - {"step"})
        there = set(others)
        means = dict.fromkeys(_mean_of(name, there) for name in others)
        cards = [card for name in means if (card := self.card("", (name,)))]
        if cards:
            blocks.append(folded(f"<h2>All other metrics ({len(cards)})</h2>", _grid(cards)))
        if len(record.steps) >= SMOOTH:
            steps = 2 * _reach(len(record.steps)) + 1
            told = f"Thin line: each step. Thick line: mean over {steps}."
            blocks.append(tag("p", told, "muted"))
        self.html = "".join(blocks)

    def card(self, title: str, keys: tuple[str, ...]) -> str:
        """A chart under its title; empty if the run has none of the metrics."""
        lines = self._of_steps(keys) if keys else self._held_out()
        if not lines:
            return ""
        first = next((k for k in keys if self.record.has(k)), f"eval/{lines[0].name}")
        title = title or first
        self.drawn |= {*keys, *_ends(first)}
        svg, numbers = draw(Curve(first, lines, y=title, end=self.end))
        place = f"m{len(self.data)}"
        self.data[place] = numbers
        now = brief(next(line.y[-1] for line in lines if line.name is not None))
        legend = "".join(_key(line, "" if keys else "eval/") for line in lines if line.name)
        told = meaning(first)
        return (
            f'<div class="chart" id="{place}" tabindex="0" role="group" '
            f'aria-label="{escape(title)}; use the arrow keys to move between steps">'
            '<div class="head">'
            f'<span class="title" title="{escape(told)}">{escape(title)}</span>'
            f'<output aria-live="off" data-now="{now}">{now}</output></div>{svg}'
            f'<div class="foot">{legend or tag("code", first)}</div></div>'
        )

    def _of_steps(self, keys: tuple[str, ...]) -> list[Series]:
        found = [_series(self.record.steps, key, key, i) for i, key in enumerate(keys)]
        lines = [line for line in found if line is not None]
        if len(lines) == 1:
            [line] = lines = [replace(lines[0], name="")]
            if len(line.y) >= SMOOTH:
                mean = Series(None, line.x, smoothed(line.y, _reach(len(line.y))))
                lines = [mean, replace(line, form="thin")]
        return lines

    def _held_out(self) -> list[Series]:
        """The metric of the headline with its interval, and others without."""
        there = self.record.evaluations
        keys = [k for k in HELD_OUT if there.column(k)[1]]
        if names.SCORE in keys:  # the headline where there is no accuracy, which is the same
            keys.remove(names.SCORE)
            if names.ACCURACY not in keys:
                keys.insert(0, names.SCORE)
        found = [_series(there, k, k.removeprefix("eval/"), i) for i, k in enumerate(keys)]
        lines = [line for line in found if line is not None]
        return [*lines[:1], *(replace(line, low=None, high=None) for line in lines[1:])]


def _series(there: Columns, key: str, name: str, colour: int) -> Series | None:
    """A metric with its band, if it has one; None if it has no value."""
    x, y = there.column(key)
    low, high = (there.column(end)[1] for end in _ends(key))
    banded = len(low) == len(high) == len(y)
    if not len(y):
        return None
    return Series(name, x, y, low if banded else None, high if banded else None, colour=colour)


def _key(line: Series, family: str) -> str:
    """A line's name in the legend, with its meaning."""
    name = f"{family}{line.name}"
    told = escape(LEGEND.get(name, str(line.name)))
    return (
        f'<span class="key" style="--tint:{tint(line.colour)}" title="{escape(meaning(name))}">'
        f"{told}</span>"
    )


def _ends(key: str) -> tuple[str, str]:
    """The ends of a metric's band: an interval, or the extremes of the values that it averages."""
    if key.startswith("eval/"):
        return f"{key}_low", f"{key}_high"
    head = key.removesuffix("/mean")
    return f"{head}/min", f"{head}/max"


def _reach(steps: int) -> int:
    return max(1, steps // 40)


def _mean_of(name: str, others: Set[str]) -> str:
    """`x/mean` for its minimum and maximum, which are its band."""
    head, _, end = name.rpartition("/")
    mean = f"{head}/mean"
    return mean if end in ("min", "max") and mean in others else name


def meaning(metric: str) -> str:
    """A metric's meaning from the table of metrics; for a plugin's metric, its name."""
    head = metric.rpartition("/")[0]
    known = {m.name: m.meaning for m in metrics()}
    return known.get(metric) or known.get(f"{head}/*") or metric


def _grid(cards: Iterable[str]) -> str:
    return f'<div class="charts">{"".join(cards)}</div>'


def findings_block(findings: Sequence[Finding], steps: int) -> str:
    """The doctor's findings, the most severe first."""
    if not findings:
        told = "The doctor found nothing wrong." if steps else "No step has finished yet."
        return tag("p", told, "muted calm")
    items = []
    for f in findings:
        follows = ", ".join(name.replace("_", " ") for name in f.so_too)
        so = f"<p><b>so</b> {escape(follows)}</p>" if follows else ""
        head = f"{tag('b', f.rule.replace('_', ' '))} {tag('span', f.severity, 'muted')}"
        said = f"<p>{escape(f.what)}</p>{so}<p><b>try</b> {escape(f.advice)}</p>"
        inside = folded(head, said, shown=f.severity != "note")
        items.append(f'<li class="{f.severity}">{inside}</li>')
    return f'<ol class="remarks" aria-label="findings of the doctor">{"".join(items)}</ol>'
