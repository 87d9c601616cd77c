"""A curve as SVG, drawn here: a page holds many, and matplotlib takes a second for each.

It uses the page's colours, or those of the light theme where there is no page, as in a notebook. A
long series is drawn by buckets: their means, and their range.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from rlzoo_lab.view.blocks import Curve, Series
from rlzoo_lab.view.figure import SERIES
from rlzoo_lab.view.numbers import brief

MOST = 240  # points of a series
TOP, BOTTOM, RIGHT = 10, 20, 10
ROW = 26  # height of a row, where x is rows
LETTER = 6.5  # width of a letter

Points = Sequence[float]


def draw(
    curve: Curve, width: int = 340, height: int = 136, most: int = MOST
) -> tuple[str, dict[str, Any]]:
    """(SVG, data for a script: `x`, the named series' `y`, the `span` of x). most: points of a
    series."""
    series = [one for one in curve.series if len(one.x)]
    shown = [thin(one, most) for one in series]
    axes = _Axes(curve, shown, width, height)
    marks = axes.grid()
    for one in reversed(shown):
        drawn = "".join(_series(one, axes))
        marks.append(drawn if one.row is None else f'<g data-row="{one.row}">{drawn}</g>')
    cursor = f'<path class="cursor" d="M0 {TOP}V{axes.bottom}" visibility="hidden"/>'
    label = curve.caption or f"{curve.y or curve.name} by {curve.x}"
    svg = (
        f'<svg viewBox="0 0 {width} {axes.height}" role="img" aria-label="{escape(label)}" '
        f'style="max-width:100%">{"".join(marks)}{cursor}</svg>'
    )
    told = [one for one in shown if one.name is not None and len(one.x) == len(shown[0].x)]
    return svg, {
        "span": axes.span,
        "box": [axes.left, width - RIGHT, width],
        "x": [_short(v) for v in shown[0].x],
        "y": {one.name: [_short(v) for v in one.y] for one in told},
    }


class _Axes:
    """Where a point is. `across`: x is rows from the top, and y is horizontal."""

    def __init__(self, curve: Curve, series: Sequence[Series], width: int, height: int):
        self.curve, self.width = curve, width
        self.height = ROW * len(curve.places) + TOP + BOTTOM if curve.across else height
        longest = max(map(len, curve.places), default=0)
        self.left = 12 + LETTER * longest if curve.across else 40
        self.bottom = self.height - BOTTOM
        xs = [x for one in series for x in (one.x[0], one.x[-1])]
        self.span = min(xs), max(*xs, curve.end or 0.0)
        if curve.places:
            self.span = -0.5, len(curve.places) - 0.5
        self.logs = not curve.places and _wants_logs(series)
        bands = [b for one in series for b in (one.y, one.low, one.high) if b is not None]
        values = [math.log10(v) if self.logs else v for b in bands for v in b if math.isfinite(v)]
        self.low, self.high = _room(min(values), max(values))

    def place(self, x: float, y: float) -> tuple[float, float]:
        along = (x - self.span[0]) / (self.span[1] - self.span[0]) if len({*self.span}) > 1 else 0.5
        up = ((math.log10(y) if self.logs else y) - self.low) / (self.high - self.low)
        if self.curve.across:
            along, up = up, 1 - along
        wide = self.width - RIGHT - self.left
        return self.left + wide * along, self.bottom - (self.bottom - TOP) * up

    def grid(self) -> list[str]:
        low, high = self.low, self.high
        ticks = (
            [10**t for t in _powers(low, high)]
            if self.logs
            else nice(low, high, max(4, self.height // 36))
        )
        at = [(self.place(self.span[0], tick), brief(tick)) for tick in ticks]
        if self.curve.across:
            parts = [_line(f"M{x:.1f} {TOP}V{self.bottom}") + self._under(x, text)
                     for (x, _), text in at]  # fmt: skip
            for i, name in enumerate(self.curve.places):
                _, y = self.place(i, low)
                parts.append(_text(self.left - 6, y + 3, name, "end"))
            return parts
        parts = [_line(f"M{self.left} {y:.1f}H{self.width - RIGHT}")
                 + _text(self.left - 5, y + 3, text, "end") for (_, y), text in at]  # fmt: skip
        if self.curve.places:
            named = [(float(i), name, "middle") for i, name in enumerate(self.curve.places)]
        elif self.span[1] > self.span[0]:
            one, other = self.span
            named = [(one, f"{one:,.0f}", "start"), (other, f"{other:,.0f}", "end")]
        else:
            named = [(self.span[0], f"{self.span[0]:,.0f}", "middle")]
        floor = 10**low if self.logs else low
        return parts + [self._under(self.place(x, floor)[0], text, to) for x, text, to in named]

    def _under(self, x: float, text: str, anchor: str = "middle") -> str:
        return _text(x, self.bottom + 14, text, anchor)


def _line(path: str) -> str:
    return f'<path class="grid" d="{path}" style="stroke:currentColor" stroke-opacity=".15"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="10" '
        f'style="fill:var(--muted,currentColor)">{escape(text)}</text>'
    )


def tint(colour: int) -> str:
    """A series' colour, as CSS: the page's, or the light theme's."""
    i = colour % len(SERIES)
    return f"var(--c{i},{SERIES[i][0]})"


def _series(one: Series, axes: _Axes) -> Iterable[str]:
    def points(x: Iterable[float], y: Iterable[float]) -> str:
        return " ".join("{:.1f},{:.1f}".format(*axes.place(*at)) for at in zip(x, y, strict=True))

    ink = tint(one.colour)
    banded = one.low is not None and one.high is not None
    if one.form == "dots" or len(one.x) == 1:
        ends = zip(one.x, one.low or (), one.high or (), strict=True) if banded else ()
        for x, low, high in ends:
            yield (
                f'<polyline points="{points((x, x), (low, high))}" style="stroke:{ink}" '
                'stroke-width="2.2"/>'
            )
        faint = "" if banded or len(one.x) == 1 else ' opacity=".45"'
        for at in zip(one.x, one.y, strict=True):
            x, y = axes.place(*at)
            told = f"<title>{one.name or axes.curve.y}: {at[1]:.3g}</title>"
            yield (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" style="fill:{ink}"{faint}>'
                   f"{told}</circle>")  # fmt: skip
        return
    if banded:
        around = points([*one.x, *reversed(one.x)], [*(one.high or ()), *reversed(one.low or ())])
        yield f'<polygon points="{around}" style="fill:{ink}" opacity=".14"/>'
    weight = 'stroke-width=".8" opacity=".4"' if one.form == "thin" else 'stroke-width="1.7"'
    yield (
        f'<polyline points="{points(one.x, one.y)}" style="fill:none;stroke:{ink}" {weight} '
        'stroke-linejoin="round"/>'
    )


def thin(line: Series, most: int = MOST) -> Series:
    """At most `most` points: means of neighbouring points, with their range as a band."""
    n = len(line.x)
    if n <= most:
        return line
    edges = [round(i * n / most) for i in range(most + 1)]
    cuts = [slice(a, b) for a, b in itertools.pairwise(edges)]
    low, high = (line.y if band is None else band for band in (line.low, line.high))
    return replace(
        line,
        x=[line.x[(cut.start + cut.stop - 1) // 2] for cut in cuts],
        y=[math.fsum(line.y[cut]) / (cut.stop - cut.start) for cut in cuts],
        low=[min(low[cut]) for cut in cuts],
        high=[max(high[cut]) for cut in cuts],
    )


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


def _wants_logs(lines: Sequence[Series]) -> bool:
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
