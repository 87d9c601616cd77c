"""A curve in block characters."""

import itertools
import math
from collections.abc import Iterable

BARS = "▁▂▃▄▅▆▇█"


def sparkline(
    values: Iterable[float], width: int = 20, scale: tuple[float, float] | None = None
) -> str:
    """At most `width` characters; a longer curve is averaged down. `scale`: (low, high), where
    several curves share one; else the curve's own."""
    data = [v for v in values if math.isfinite(v)]
    if not data:
        return ""
    if len(data) > width:
        edges = [round(i * len(data) / width) for i in range(width + 1)]
        data = [sum(data[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = scale or (min(data), max(data))
    steps = (len(BARS) - 1) / (high - low) if high > low else 0
    return "".join(BARS[round((v - low) * steps)] for v in data)
