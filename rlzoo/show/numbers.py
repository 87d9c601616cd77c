from collections.abc import Sequence
from typing import Any

from rlzoo import stats


def chance(p: float) -> str:
    """`.99`; `> .99` where it would round to a certainty that it is not."""
    if 0.995 <= p < 1:
        return "> .99"
    if 0 < p <= 0.005:
        return "< .01"
    return f"{p:.2f}".removeprefix("0")


def score(value: float) -> str:
    """Three decimals, more where that would be nothing."""
    return f"{value:.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1g}"


def bracket(interval: stats.Interval) -> str:
    """`[.050, 1.190]`"""
    low, high = (f"{v:.3f}".replace("0.", ".", 1 if abs(v) < 1 else 0) for v in interval)
    return f"[{low}, {high}]"


def difference(d: stats.Paired) -> str:
    """`+0.120 [.050, .190]`"""
    return f"{d.mean:+.3f} {bracket(d.interval)}" if d.interval else f"{d.mean:+.3f}"


NONE = "-"


def small(p: float) -> str:
    """A p value: `.031`, `< .001`."""
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def thousands(value: float | None) -> str:
    """`25k`, `1.2M`"""
    if value is None:
        return NONE
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.0f}"


def evaluation_text(found: dict[str, Any]) -> str:
    what = "accuracy" if "eval/accuracy" in found else "score"
    low, high = found[f"eval/{what}_low"], found[f"eval/{what}_high"]
    return f"{what} {percent(found[f'eval/{what}'], low, high)}"


def _count(n: int) -> str:
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return str(n)


def show_bytes(n: int) -> str:
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n} B"


def percent(value: float, low: float, high: float) -> str:
    """`0.812 [0.787, 0.835]`"""
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


# ---------------------------------------------------------------- texts and numbers


def number(x: float | None, digits: int = 4) -> str:
    """At most `digits` decimals, no trailing zeros; tiny ones as 2e-05, none as an empty string."""
    if x is None:
        return ""
    if x != x or x in (float("inf"), float("-inf")):
        return str(x)
    if 0 < abs(x) < 0.5 * 10**-digits:
        return f"{x:.0e}"
    if abs(x) >= 1e5:
        return f"{x:.4g}"
    text = f"{x:.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


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
