"""Colors for numbers: blue above 0, orange below, stronger for larger absolute values."""

from collections.abc import Iterable

Colour = tuple[int, int, int]

BLUE, ORANGE = (86, 156, 235), (245, 150, 60)


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
