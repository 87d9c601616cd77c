"""The tab of a step: prompts, and the responses of each group with their rewards and advantages."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rlzoo_lab.doctor.report.batches import Saved
from rlzoo_lab.view.display.run import samples as samples_of
from rlzoo_lab.view.html import table as html_table
from rlzoo_lab.view.numbers import brief
from rlzoo_lab.view.page import folded, row, table, tag

GROUPS = 64  # of a step on the page
ROWS = 16  # responses of a group
LETTERS = 400  # of a text

HOW = """No batch was saved, so this tab cannot show groups. With run.save_batches=1, rlzoo saves
the last one and shows its groups here."""


def groups_tab(
    steps: Mapping[int, str], samples: Mapping[int, Sequence[Mapping[str, Any]]], how: str = HOW
) -> str:
    """steps: the output of `step_section` for each saved batch. samples: those of the whole run.
    how: what makes such batches."""
    blocks = []
    if steps:
        options = "".join(f'<option value="{step}">{step}</option>' for step in steps)
        blocks.append(
            f'<p class="controls"><label>step <select id="step-of">{options}</select></label>'
            '<label><input type="checkbox" id="hide-flat"> only groups with signal</label></p>'
        )
        blocks += steps.values()
    else:
        blocks.append(tag("p", how, "note"))
    if samples:
        rows = [line for lines in samples.values() for line in lines]
        title = "<h2>Samples during the run</h2>"
        blocks.append(folded(title, html_table(samples_of(rows)), shown=not steps))
    return "".join(blocks)


def step_section(batch: Saved) -> str:
    """A saved batch: a line for each group, which expands to its responses."""
    groups = batch.groups()
    scores = [batch.score(row) for row in range(batch.rows)]
    advantages = [batch.advantage(row) for row in range(batch.rows)]
    flat = sum(batch.flat(rows) for rows in groups)
    facts = [f"{batch.rows} responses", f"{len(groups)} group{'s' * (len(groups) != 1)}"]
    facts[0] += f", mean reward {brief(sum(scores) / len(scores))}"
    flats = f"{flat} of them flat (all responses have the same score)"
    facts.append(flats if flat else "no group is flat")
    if len(groups) > GROUPS:
        facts.append(f"the first {GROUPS} are shown")
    head = (
        '<div class="group head" aria-hidden="true"><span class="first">prompt</span>'
        f"<span>{_range('rewards', scores)}</span><span>{_range('advantages', advantages)}</span>"
        '<span class="last"></span></div>'
    )
    far = max(map(abs, advantages))
    spans = (min(scores), max(scores)), (-far, far)
    return (
        f'<section class="step" data-step="{batch.step}"><h2>Step {batch.step}</h2>'
        f"{tag('p', '; '.join(facts) + '.', 'muted')}{head}"
        + "".join(_group(batch, rows, spans) for rows in groups[:GROUPS])
        + "</section>"
    )


Span = tuple[float, float]


def _range(what: str, values: Sequence[float]) -> str:
    if math.isnan(values[0]):
        return f"no {what}"
    return f"{what}, {brief(min(values), 2)} to {brief(max(values), 2)}"


def _cell(value: float) -> str:
    return tag("td", "" if math.isnan(value) else brief(value))


def _group(batch: Saved, rows: Sequence[int], spans: tuple[Span, Span]) -> str:
    flat = batch.flat(rows)
    prompt = batch.text("prompts", rows[0]) or f"group {batch.columns['group_ids'][rows[0]]}"
    answer = batch.text("answers", rows[0])
    scores = [batch.score(r) for r in rows]
    advantages = [batch.advantage(r) for r in rows]
    told = f"mean {brief(sum(scores) / len(scores))}"
    head = (
        f'<span class="prompt mono"><bdi>{escape(_cut(prompt, 160))}</bdi></span>'
        f"{_strip(scores, spans[0], 'rewards')}{_strip(advantages, spans[1], 'advantages')}"
        f'<span class="muted last">{told}{" <b>flat</b>" if flat else ""}</span>'
    )
    body = []
    for r in rows[:ROWS]:
        length = batch.length(r)
        ended = ", cut off" if bool(batch.columns.get("truncated", [0] * batch.rows)[r]) else ""
        to = f'<a href="#token" data-step="{batch.step}" data-row="{r}">{length} tokens</a>{ended}'
        body.append(row([_cell(batch.score(r)), _cell(batch.advantage(r)),
                         f"<td>{to}</td>", _text(batch.text("responses", r))]))  # fmt: skip
    heads = [tag("th", t) for t in ("reward", "advantage", "")] + [tag("th", "response", "left")]
    whole = (
        f'<p class="mono"><bdi>{escape(_cut(prompt, 2000))}</bdi></p>' if len(prompt) > 160 else ""
    )
    if answer is not None:
        whole += f'<p><span class="muted">answer</span> <bdi>{escape(_cut(answer))}</bdi></p>'
    left = len(rows) - ROWS
    more = tag("p", f"{left} more responses are not shown.", "muted") if left > 0 else ""
    kind = "group flat" if flat else "group"
    inside = f"{whole}{table(heads, body)}{more}"
    return f'<details class="{kind}"><summary>{head}</summary>{inside}</details>'


def _strip(values: Sequence[float], span: Span, what: str) -> str:
    """A dot for each value on one line; those of a value are a stronger dot."""
    if math.isnan(values[0]):
        return f'<span class="strip {what}"></span>'
    low, high = span
    wide = high - low

    def at(value: float) -> float:
        return 6 + 148 * ((value - low) / wide if wide > 0 else 0.5)

    places = [round(at(v)) for v in values]
    dots = "".join(
        f'<circle cx="{x}" cy="10" r="{min(7.0, 2.5 + 0.6 * places.count(x)):.1f}"/>'
        for x in dict.fromkeys(places)
    )
    zero = f'<path class="zero" d="M{at(0):.0f} 3V17"/>' if low < 0 < high else ""
    label = f"{what} {brief(min(values))} to {brief(max(values))}"
    return (
        f'<svg class="strip {what}" viewBox="0 0 160 20" role="img" aria-label="{label}">'
        f'<path class="grid" d="M6 10H154"/>{zero}{dots}</svg>'
    )


def _text(value: Any) -> str:
    """A cell with a text of data or of the model."""
    return f'<td class="text"><bdi>{escape(_cut(str("" if value is None else value)))}</bdi></td>'


def _cut(text: str, letters: int = LETTERS) -> str:
    left = len(text) - letters
    return text if left <= 0 else f"{text[:letters]} … {left:,} more characters"
