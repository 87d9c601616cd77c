"""Numbers as text in one format for each kind, curves in block characters, and colours for numbers:
blue above 0, orange below, stronger for larger absolute values."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rlzoo.format.numbers import count as count
from rlzoo.format.numbers import number as number
from rlzoo.format.numbers import scaled

if TYPE_CHECKING:  # it imports numpy
    from rlzoo.stats import Interval

NONE = "-"

BARS = "▁▂▃▄▅▆▇█"

Colour = tuple[int, int, int]
BLUE, ORANGE = (86, 156, 235), (245, 150, 60)  # of a number above 0, below 0


def chance(p: float) -> str:
    """`.99`; `> .99` if it would round to 1 without being 1."""
    if 0.995 <= p < 1:
        return "> .99"
    if 0 < p <= 0.005:
        return "< .01"
    return f"{p:.2f}".removeprefix("0")


def three_decimals(value: float) -> str:
    """Three decimals, or more if they would all be 0."""
    return f"{value:.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1g}"


def signed(value: float) -> str:
    """`+0.120`, but not `-0.000`."""
    return f"{round(value, 3) + 0.0:+.3f}"


def gain_text(rise: float, low: float, high: float) -> str:
    """`gain +0.188, 95 % interval +0.051 to +0.325, paired by prompt`"""
    ends = f"{signed(low)} to {signed(high)}"
    return f"gain {signed(rise)}, 95 % interval {ends}, paired by prompt"


def bracket(interval: "Interval") -> str:
    """`[.050, 1.190]`"""
    low, high = (
        f"{round(v, 3) + 0.0:.3f}".replace("0.", ".", 1 if abs(v) < 1 else 0) for v in interval
    )
    return f"[{low}, {high}]"


def small(p: float) -> str:
    """A p value: `.031`, `< .001`."""
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def thousands(value: float | None) -> str:
    """`25k`, `1.2M`"""
    if value is None:
        return NONE
    return scaled(value, 1000, ("G", "M", "k")) or f"{value:.0f}"


def show_bytes(n: int) -> str:
    """`1.5 GiB`"""
    return scaled(n, 1024, (" GiB", " MiB", " KiB")) or f"{n} B"


def brief(x: float, digits: int = 3) -> str:
    """Three digits: `0.125`, `1.2k`, `3e-6`."""
    if x == 0 or not math.isfinite(x):
        return "0" if x == 0 else str(x)
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(x) < 1e12:
            return f"{x / size:.{digits}g}{unit}"
    return f"{x:.{digits}g}".replace("e-0", "e-").replace("e+0", "e+").replace("e+", "e")


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def option_text(value: object) -> str:
    """An option's value as a user would type it: a float without unnecessary digits."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def aligned(texts: Sequence[str], least: int = 0) -> list[str]:
    """Texts padded to one width, at least `least`, with aligned decimal points."""
    heads = [0 if "e" in text else len(text.partition(".")[0]) for text in texts]
    before = max(heads, default=0)
    lined = [" " * (before - h) + text if h else text for h, text in zip(heads, texts, strict=True)]
    inner = max(map(len, lined), default=0)
    return [
        (text.ljust(inner) if h else text.rjust(inner)).rjust(least)
        for h, text in zip(heads, lined, strict=True)
    ]


def sparkline(
    values: Iterable[float], width: int = 20, scale: tuple[float, float] | None = None
) -> str:
    """At most `width` characters; a longer curve is averaged down. `scale`: (low, high) if several
    curves share one; otherwise the curve's own."""
    data = [v for v in values if math.isfinite(v)]
    if not data:
        return ""
    if len(data) > width:
        edges = [round(i * len(data) / width) for i in range(width + 1)]
        data = [sum(data[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = scale or (min(data), max(data))
    steps = (len(BARS) - 1) / (high - low) if high > low else 0
    return "".join(BARS[round((v - low) * steps)] for v in data)


def shade(value: float | None, largest: float) -> tuple[Colour, float] | None:
    """(colour, strength in [0, 1]): blue for encouraged tokens, orange for discouraged ones."""
    if value is None or abs(value) < 1e-6:  # rounding noise has no colour
        return None
    return (BLUE if value > 0 else ORANGE), min(1.0, abs(value) / largest)


def largest(values: Iterable[float | None]) -> float:
    return max((abs(v) for v in values if v is not None), default=0.0)


def paint(colour: Colour, strength: float) -> str:
    """The colour as translucent CSS, so that letters keep the page's colour in both themes."""
    return f"background: rgba({colour[0]},{colour[1]},{colour[2]},{0.1 + 0.55 * strength:.3f})"


def style(value: float | None, top: float) -> str:
    """The attribute of an element that stands for a value; empty if it has no colour."""
    colour = shade(value, top)
    return "" if colour is None else f' style="{paint(*colour)}"'
