import itertools
from collections.abc import Iterable, Sequence


def spark(values: Sequence[float], low: float, high: float, width: int) -> str:
    """A curve in blocks on a scale that all rows share."""
    if len(values) > width:
        edges = [round(i * len(values) / width) for i in range(width + 1)]
        ends = itertools.pairwise(edges)
        values = [sum(values[a:b]) / (b - a) for a, b in ends]
    scale = (len(BARS) - 1) / (high - low) if high > low else 0
    return "".join(BARS[round((v - low) * scale)] for v in values)


BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Iterable[float], width: int = 20) -> str:
    """A curve in block characters, at most `width` wide; a longer one is averaged down."""
    data = [v for v in values if v == v]
    if not data:
        return ""
    if len(data) > width:
        edges = [round(i * len(data) / width) for i in range(width + 1)]
        pairs = itertools.pairwise(edges)
        data = [sum(data[a:b]) / (b - a) for a, b in pairs]
    low, high = min(data), max(data)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0
    return "".join(BARS[round((v - low) * scale)] for v in data)
