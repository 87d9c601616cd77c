"""A curve as a small SVG, drawn by hand: a page holds many, and matplotlib takes a second for each.

It uses the page's colours. A long curve is drawn by buckets: their means, and how far they range.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from rlzoo_lab.view.numbers import brief

WIDTH, HEIGHT = 340, 136
LEFT, RIGHT, TOP, BOTTOM = 40, 10, 14, 20
MOST = 240  # points of a curve

Points = Sequence[float]


@dataclass
class Line:
    """A curve by its finite points; one without a name is in no legend.

    low, high: the ends of the band, if there is one. kind: the class of its colour.
    """

    name: str | None
    x: Points
    y: Points
    low: Points | None = None
    high: Points | None = None
    kind: str = "c0"


@dataclass
class Mark:
    """A remark at x: its number, the class of its colour, and its link."""

    x: float
    number: int
    kind: str
    href: str


def draw_chart(
    lines: Sequence[Line], label: str, marks: Sequence[Mark] = (), end: float | None = None
) -> tuple[str, dict[str, Any]]:
    """(SVG, data for a script: `x`, the named curves' `y`, the `span` of x).

    end: where the axis ends, for a run that still trains.
    """
    lines = [line for line in lines if len(line.x)]
    span = min(line.x[0] for line in lines), max(*(line.x[-1] for line in lines), end or 0.0)
    lines = [thin(line) for line in lines]
    logs = _wants_logs(lines)
    bands = [band for line in lines for band in (line.y, line.low, line.high) if band is not None]
    values = [math.log10(v) if logs else v for band in bands for v in band]
    low, high = _room(min(values), max(values))

    def place(x: float, y: float | None = None) -> tuple[float, float]:
        share = (x - span[0]) / (span[1] - span[0]) if span[1] > span[0] else 0.5
        above = 0 if y is None else ((math.log10(y) if logs else y) - low) / (high - low)
        bottom = HEIGHT - BOTTOM
        return LEFT + (WIDTH - LEFT - RIGHT) * share, bottom - (bottom - TOP) * above

    parts = _axes(span, [10**t for t in _powers(low, high)] if logs else nice(low, high), place)
    for mark in marks:
        x, bottom = place(mark.x)
        parts.append(f'<path class="mark {mark.kind}" d="M{x:.1f} {TOP}V{bottom}"/>')
    for line in reversed(lines):
        parts += _curve(line, place)
    for mark in marks:
        x, _ = place(mark.x)
        parts.append(
            f'<a href="{escape(mark.href)}" class="mark {mark.kind}" aria-label="remark '
            f'{mark.number}"><circle cx="{x:.1f}" cy="{TOP - 6}" r="6.5"/>'
            f'<text x="{x:.1f}" y="{TOP - 3}" text-anchor="middle">{mark.number}</text></a>'
        )
    cursor = f'<path class="cursor" d="M0 {TOP}V{HEIGHT - BOTTOM}" visibility="hidden"/>'
    svg = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}{cursor}</svg>"
    )
    told = [line for line in lines if line.name is not None and len(line.x) == len(lines[0].x)]
    return svg, {
        "span": span,
        "box": [LEFT, WIDTH - RIGHT, WIDTH],
        "x": [_short(v) for v in lines[0].x],
        "y": {line.name: [_short(v) for v in line.y] for line in told},
    }


Place = Callable[..., tuple[float, float]]  # of (x), on the axis, or (x, y)


def _axes(span: tuple[float, float], ticks: Sequence[float], place: Place) -> list[str]:
    parts = []
    for tick in ticks:
        _, y = place(span[0], tick)
        parts.append(
            f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
            f'<text x="{LEFT - 5}" y="{y + 3:.1f}" text-anchor="end">{brief(tick)}</text>'
        )
    ends = zip(span, ("start", "end"), strict=True) if span[1] > span[0] else [(span[0], "middle")]
    for x, anchor in ends:
        left, bottom = place(x)
        parts.append(
            f'<text x="{left:.1f}" y="{bottom + 14}" text-anchor="{anchor}">{x:,.0f}</text>'
        )
    return parts


def _curve(line: Line, place: Place) -> list[str]:
    def points(x: Iterable[float], y: Iterable[float]) -> str:
        return " ".join("{:.1f},{:.1f}".format(*place(*at)) for at in zip(x, y, strict=True))

    if len(line.x) == 1:
        x, y = place(line.x[0], line.y[0])
        return [f'<circle class="dot {line.kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>']
    parts = [f'<polyline class="line {line.kind}" points="{points(line.x, line.y)}"/>']
    if line.low is not None and line.high is not None:
        around = points([*line.x, *reversed(line.x)], [*line.high, *reversed(line.low)])
        parts.insert(0, f'<polygon class="band {line.kind}" points="{around}"/>')
    return parts


def thin(line: Line, most: int = MOST) -> Line:
    """At most `most` points: means of neighbouring points, with their range as a band."""
    n = len(line.x)
    if n <= most:
        return line
    edges = [round(i * n / most) for i in range(most + 1)]
    cuts = [slice(a, b) for a, b in itertools.pairwise(edges)]
    low, high = (line.y if band is None else band for band in (line.low, line.high))
    return Line(
        line.name,
        [line.x[(cut.start + cut.stop - 1) // 2] for cut in cuts],
        [math.fsum(line.y[cut]) / (cut.stop - cut.start) for cut in cuts],
        [min(low[cut]) for cut in cuts],
        [max(high[cut]) for cut in cuts],
        line.kind,
    )


def smoothed(y: Points, reach: int) -> list[float]:
    """The mean of up to `reach` points before and after each, the nearer the heavier."""
    out = running_mean(np.asarray(y, float), reach // 2)
    return running_mean(out, reach - reach // 2).tolist()  # twice: a spike becomes a hill, no box


def running_mean(y: np.ndarray, width: int) -> np.ndarray:
    """The mean of up to `width` points before and after each, (N,) -> (N,)."""
    total = np.concatenate([[0.0], np.cumsum(y)])
    at = np.arange(len(y))
    low, high = np.maximum(at - width, 0), np.minimum(at + width + 1, len(y))
    return (total[high] - total[low]) / (high - low)


def nice(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers between two."""
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= rough * 0.999)
    start = math.ceil(low / step - 1e-9)
    ticks = [i * step for i in range(start, math.floor(high / step + 1e-9) + 1)]
    return [0.0 if abs(t) < step / 1e6 else t for t in ticks]


def _powers(low: float, high: float) -> list[float]:
    every = max(1, math.ceil((high - low) / 4))
    return [float(p) for p in range(math.ceil(low), math.floor(high) + 1, every)]


def _wants_logs(lines: Sequence[Line]) -> bool:
    """Whether a single spike would flatten the rest of the curve."""
    bands = [band for line in lines for band in (line.y, line.low) if band is not None]
    values = sorted(v for band in bands for v in band)
    middle = values[len(values) // 2]
    return values[0] > 0 and values[-1] > 100 * middle


def _room(low: float, high: float) -> tuple[float, float]:
    """The span of an axis: a constant curve is in the middle, at 0 on the floor."""
    gap = high - low
    if gap <= 1e-9 * max(abs(low), abs(high), 1e-6):
        visible = abs(high) > 1e-100  # half of the smallest number is 0
        return (low - abs(low) / 2, high + abs(high) / 2) if visible else (-0.04, 1.06)
    return low - 0.04 * gap, high + 0.06 * gap


def _short(x: float) -> float:
    return float(f"{x:.5g}")
