"""Finds entry points and plugin modules, without importing them."""

import os
import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

GROUP = "rlzoo"
OWN = "rlzoo-llm"  # the distribution that rlzoo and its zoo come with: its names stay its own


class Plugin(NamedTuple):
    """A plugin before it is imported.

    origin: its name in errors. distribution: the package that installs it. name: a module's,
    `module:object`, or a path that ends in `.py`. file: its source; None if there is no such plain
    file.
    """

    origin: str
    distribution: str
    name: str
    file: Path | None


def plugins() -> Iterator[Plugin]:
    """The plugins of the group `rlzoo` and of `RLZOO_PLUGINS`; if `RLZOO_DISABLE_PLUGIN_AUTOLOAD`
    is set, no third-party ones. Each module inside a package is a plugin of its own."""
    own_only = os.environ.get("RLZOO_DISABLE_PLUGIN_AUTOLOAD")
    for point in sorted(installed(GROUP), key=lambda p: (p.name, p.value)):
        # A distribution reads its metadata file at each access.
        name = point.dist.name if point.dist else "?"
        if own_only and name != OWN:
            continue
        of = f"{name} {point.dist.version}" if point.dist else "?"
        if ":" in point.value:
            yield Plugin(f"{point.value} ({of})", name, point.value, None)
            continue
        for module, file in _modules(point.value):
            yield Plugin(f"{module} ({of})", name, module, file)
    for item in filter(str.strip, os.environ.get("RLZOO_PLUGINS", "").split(",")):
        yield from named(item.strip())


def named(item: str) -> Iterator[Plugin]:
    """The plugins in a module, or in a file whose path ends in `.py`."""
    if item.endswith(".py"):
        yield Plugin(item, Path(item).stem, item, Path(item))
        return
    for module, file in _modules(item):
        yield Plugin(f"{module} (RLZOO_PLUGINS)", item.partition(".")[0], module, file)


def _modules(name: str) -> Iterator[tuple[str, Path | None]]:
    """A module and those inside, with their sources; a spec of a.b would import a."""
    top, *rest = name.split(".")
    spec = None
    with suppress(ValueError):  # a module that was made in a session has none
        spec = find_spec(top)
    for part in rest:
        spec = spec and PathFinder.find_spec(part, spec.submodule_search_locations)
    left: list[tuple[str, ModuleSpec | None]] = [(name, spec)]
    while left:
        name, spec = left.pop()
        origin = str(spec and spec.origin)
        yield name, Path(origin) if origin.endswith(".py") else None
        inside = pkgutil.iter_modules((spec and spec.submodule_search_locations) or ())
        for info in reversed([*inside]):
            if info.name != "__main__":  # it is a command: importing it would run it
                finder: Any = info.module_finder
                left.append((f"{name}.{info.name}", finder.find_spec(info.name)))


def installed(group: str) -> list[EntryPoint]:
    """The entry points of a group; for a distribution found twice, the first on the path."""
    return [*entry_points(group=group)]
