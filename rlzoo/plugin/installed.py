"""Entry points of what is installed, quickly: `entry_points()` reads the description of every
distribution there is, some tenth of a second."""

from functools import cache
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import Any


def installed(group: str) -> list[EntryPoint]:
    """Those of a group; of a distribution that is there twice, the first on the path."""
    found: dict[str, Distribution] = {}
    for dist in distributions():
        if f"[{group}]" in (dist.read_text("entry_points.txt") or ""):
            found.setdefault(dist.name, dist)
    return [point for dist in found.values() for point in dist.entry_points.select(group=group)]


@cache
def names() -> dict[str, EntryPoint]:
    """What other packages add to `rlzoo`, by name: entry points of the group `rlzoo.names`."""
    return {point.name: point for point in installed("rlzoo.names")}


def face(name: str, attribute: str) -> Any:
    """An attribute of the module of that name. Raises ImportError where it is not installed."""
    if name not in names():
        raise ImportError(f"{attribute} comes with the lab (rlzoo_lab), which is not installed")
    return getattr(names()[name].load(), attribute)
