"""Numbers as text."""

import math


def count(n: int) -> str:
    """`25 k`, `1.2 M`"""
    return scaled(n, 1000, (" B", " M", " k")) or str(n)


def scaled(value: float, base: int, units: tuple[str, str, str]) -> str:
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
