"""Numbers as text, one format for each kind."""

import math
from collections.abc import Sequence

from rlzoo import stats


def chance(p: float) -> str:
    """`.99`; `> .99` where it would round to a certainty that it is not."""
    if 0.995 <= p < 1:
        return "> .99"
    if 0 < p <= 0.005:
        return "< .01"
    return f"{p:.2f}".removeprefix("0")


def three_decimals(value: float) -> str:
    """Three decimals, more where that would be nothing."""
    return f"{value:.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1g}"


def signed(value: float) -> str:
    """`+0.120`; no -0.000 of nothing."""
    return f"{round(value, 3) + 0.0:+.3f}"


def bracket(interval: stats.Interval) -> str:
    """`[.050, 1.190]`"""
    low, high = (
        f"{round(v, 3) + 0.0:.3f}".replace("0.", ".", 1 if abs(v) < 1 else 0) for v in interval
    )
    return f"[{low}, {high}]"


NONE = "-"


def small(p: float) -> str:
    """A p value: `.031`, `< .001`."""
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def thousands(value: float | None) -> str:
    """`25k`, `1.2M`"""
    if value is None:
        return NONE
    return _scaled(value, 1000, ("G", "M", "k")) or f"{value:.0f}"


def count(n: int) -> str:
    """`25 k`, `1.2 M`"""
    return _scaled(n, 1000, (" B", " M", " k")) or str(n)


def show_bytes(n: int) -> str:
    """`1.5 GiB`"""
    return _scaled(n, 1024, (" GiB", " MiB", " KiB")) or f"{n} B"


def _scaled(value: float, base: int, units: tuple[str, str, str]) -> str:
    """Three digits of the largest unit that it holds; empty below the smallest."""
    for power, unit in zip((3, 2, 1), units, strict=True):
        if value >= base**power:
            return f"{value / base**power:.3g}{unit}"
    return ""


def number(x: float | None, digits: int = 4) -> str:
    """At most `digits` decimals, no trailing zeros; tiny ones as 2e-05, none as an empty string."""
    if x is None:
        return ""
    if not math.isfinite(x):
        return str(x)
    if 0 < abs(x) < 0.5 * 10**-digits:
        return f"{x:.0e}"
    if abs(x) >= 1e5:
        return f"{x:.4g}"
    decimal = f"{x:.{digits}f}"
    short = decimal.rstrip("0").rstrip(".") if "." in decimal else decimal
    return "0" if short == "-0" else short


def brief(x: float, digits: int = 3) -> str:
    """Three digits: `0.125`, `1.2k`, `3e-6`."""
    if x == 0 or not math.isfinite(x):
        return "0" if x == 0 else str(x)
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(x) < 1e12:
            return f"{x / size:.{digits}g}{unit}"
    return f"{x:.{digits}g}".replace("e-0", "e-").replace("e+0", "e+").replace("e+", "e")


def option_text(value: object) -> str:
    """An option's value as one would type it: a float without needless digits."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def aligned(texts: Sequence[str], least: int = 0) -> list[str]:
    """Padded to one width, at least `least`, decimal points below each other."""
    heads = [0 if "e" in text else len(text.partition(".")[0]) for text in texts]
    before = max(heads, default=0)
    lined = [" " * (before - h) + text if h else text for h, text in zip(heads, texts, strict=True)]
    inner = max(map(len, lined), default=0)
    return [
        (text.ljust(inner) if h else text.rjust(inner)).rjust(least)
        for h, text in zip(heads, lined, strict=True)
    ]
