"""A run as HTML that a notebook shows: curve, numbers, samples. It has no script and no style
sheet; the contents of a run's files are escaped, and only numbers become points."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from rlzoo.cli.run.lines import cells
from rlzoo.format.text import printable
from rlzoo.runs.metrics import ACCURACY, GREEDY, SCORE
from rlzoo_lab.view.numbers import number, sample_texts

Point = tuple[float, float]
Held = tuple[float, float, float, float]  # step, score, the ends of its interval

MOST_POINTS = 150  # of a curve; more are averaged down
LONGEST = 300  # characters of a sample's text
WIDTH, HEIGHT, LEFT, BELOW = 560, 170, 44, 26  # of the curve, in pixels
LINE, DOT = "#3b87c8", "#d5702a"  # seen on white and on black
CELL = "padding:2px 14px 2px 0;text-align:left;vertical-align:top;border:none"
WORDS = f"{CELL};white-space:pre-wrap;overflow-wrap:anywhere;font-family:monospace"


def finite(value: Any) -> float | None:
    """A line's value as a finite float; None if it is not a number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def text(value: Any, longest: int = LONGEST) -> str:
    """Escaped text; control characters are written out."""
    said = str(value)
    return escape(printable(said if len(said) <= longest else f"{said[:longest]}…"))


def faint(html: str) -> str:
    return f'<span style="opacity:.65">{html}</span>'


def points(lines: Iterable[Mapping[str, Any]], name: str) -> list[Point]:
    """(step, value) of a metric if both are numbers."""
    found = [(finite(line.get("step")), finite(line.get(name))) for line in lines]
    return [(step, value) for step, value in found if step is not None and value is not None]


def held_out(evaluations: Sequence[Mapping[str, Any]]) -> tuple[str, list[Held]]:
    """The held-out metric (accuracy if available) and its value in each evaluation."""
    name = ACCURACY if any(ACCURACY in line for line in evaluations) else SCORE
    found = []
    for line in evaluations:
        step, value = finite(line.get("step")), finite(line.get(name))
        if step is None or value is None:
            continue
        low, high = (finite(line.get(f"{name}_{end}")) for end in ("low", "high"))
        found.append((step, value, value if low is None else low, value if high is None else high))
    return name.removeprefix("eval/"), found


class Thinned:
    """A curve of any length reduced to at most `MOST_POINTS` means of equally many points, plus one
    for the remainder."""

    def __init__(self, line: Iterable[Point] = ()):
        self.whole: list[Point] = []
        self.each = 1  # points that one stands for
        self.last: list[Point] = []
        for point in line:
            self.add(point)

    def add(self, point: Point) -> None:
        self.last.append(point)
        if len(self.last) == self.each:
            self.whole.append(_mean(self.last))
            self.last = []
        if len(self.whole) == MOST_POINTS + 1:
            self.last = self.each * [self.whole.pop()]  # half of what will be one
            self.whole = [_mean(self.whole[i : i + 2]) for i in range(0, MOST_POINTS, 2)]
            self.each *= 2

    @property
    def points(self) -> list[Point]:
        return [*self.whole, *([_mean(self.last)] if self.last else [])]


def _mean(points: Sequence[Point]) -> Point:
    return sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points)


def curve(rewards: Iterable[Point], evaluations: Sequence[Mapping[str, Any]]) -> str:
    """The reward of each step as a line, held-out scores as dots with their intervals: SVG."""
    what, held = held_out(evaluations)
    line = Thinned(rewards).points
    ys = [y for _, y in line] + [y for _, *ends in held for y in ends]
    if not ys:
        return ""
    low, high, end = min(ys), max(ys), max([x for x, _ in line] + [x for x, *_ in held])
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - 10) * (step / end if end else 0)

    def y(value: float) -> float:
        return 8 + (HEIGHT - BELOW - 8) * (high - value) / (high - low)

    floor = HEIGHT - BELOW
    ink = 'stroke="currentColor" stroke-opacity=".3"'
    said = 'fill="currentColor" font-size="11" font-family="sans-serif"'
    parts = [
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'style="max-width:100%"><title>reward of each step, and held-out {what}</title>',
        *(
            f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{y(v):.1f}" y2="{y(v):.1f}" {ink}/>'
            f'<text x="{LEFT - 6}" y="{y(v) + 4:.1f}" text-anchor="end" {said}>{number(v, 3)}'
            "</text>"
            for v in (low, high)
        ),
        f'<text x="{LEFT}" y="{floor + 16}" {said}>0</text>',
        f'<text x="{WIDTH - 10}" y="{floor + 16}" text-anchor="end" {said}>step {end:.0f}</text>',
        f'<text x="{WIDTH / 2}" y="{floor + 16}" text-anchor="middle" {said}>'
        f'<tspan fill="{LINE}">— reward</tspan>  <tspan fill="{DOT}">● held-out {what}, 95 % '
        "interval</tspan></text>",
    ]
    if len(line) > 1:
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="1.8" '
            'stroke-linejoin="round"/>'
        )
    else:
        parts += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="2" fill="{LINE}"/>' for a, b in line]
    for step, value, below, above in held:
        place = f"{x(step):.1f}"
        parts.append(
            f'<line x1="{place}" x2="{place}" y1="{y(below):.1f}" y2="{y(above):.1f}" '
            f'stroke="{DOT}"/><circle cx="{place}" cy="{y(value):.1f}" r="3.2" fill="{DOT}">'
            f"<title>step {step:.0f}: {number(value, 3)} [{number(below, 3)}, {number(above, 3)}]"
            "</title></circle>"
        )
    return "".join([*parts, "</svg>"])


def numbers(line: Mapping[str, Any]) -> str:
    """The metrics of a step in one row."""
    known = {name: value for name, value in line.items() if finite(value) is not None}
    row = [f'<td style="{CELL}">{faint(name)} <b>{value}</b></td>' for name, value in cells(known)]
    return table([row]) if row else ""


def scores(evaluations: Sequence[Mapping[str, Any]]) -> str:
    """Held-out before and after, with intervals."""
    what, held = held_out(evaluations)
    if not held:
        return ""
    rows = [[head(f"held-out {what}"), head("95 % interval"), head("greedy"), head("at step")]]
    for step, value, low, high in [held[0], held[-1]] if len(held) > 1 else held:
        line = next(e for e in evaluations if finite(e.get("step")) == step)
        greedy = finite(line.get(GREEDY))
        said = [f"<b>{value:.3f}</b>", f"{low:.3f} to {high:.3f}",
                "" if greedy is None else f"{greedy:.3f}", f"{step:.0f}"]  # fmt: skip
        rows.append([f'<td style="{CELL}">{cell}</td>' for cell in said])
    return table(rows)


def samples(rows: Collection[Mapping[str, Any]]) -> str:
    """Prompts and responses, a row each."""
    if not rows:
        return ""
    names = sample_texts(rows)
    out = [[*map(head, ("step", *names, "score"))]]
    for row in rows:
        score, cut = finite(row.get("score")), row.get("truncated") is True and "answer" in names
        marks = ("?" if score is None else f"{score:.2f}") + (" cut off" if cut else "")
        step = f'<td style="{CELL}">{text(row.get("step", ""))}</td>'
        texts = (f'<td style="{WORDS}"><bdi>{text(row.get(n, ""))}</bdi></td>' for n in names)
        out.append([step, *texts, f'<td style="{CELL}">{marks}</td>'])
    return table(out)


def head(name: str) -> str:
    return f'<td style="{CELL}">{faint(escape(name))}</td>'


def table(rows: Iterable[Iterable[str]]) -> str:
    """Cells are HTML."""
    inside = "".join(f"<tr style='background:none'>{''.join(cells)}</tr>" for cells in rows)
    style = "border-collapse:collapse;margin:4px 0;color:inherit;font-size:inherit"
    return f'<table style="{style}">{inside}</table>'


def bar(share: float) -> str:
    """A bar that shows how much of the budget is used."""
    inner = f"width:{100 * min(1.0, max(0.0, share)):.1f}%;height:6px;background:{LINE}"
    return (
        f'<div style="max-width:{WIDTH}px;height:6px;background:rgba(128,128,128,.25);'
        f'margin:4px 0"><div style="{inner}"></div></div>'
    )


def block(parts: Iterable[str]) -> str:
    return f'<div style="font-size:13px;line-height:1.45">{"".join(parts)}</div>'
