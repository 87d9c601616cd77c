"""The zoo: discovers plugins through entry points, keeps broken ones apart and says why.

Every plugin, the shipped zoo included, comes the same way: an entry point of the group `rlzoo`
that names a module, or a package in which each module is a plugin of its own. A plugin that fails
is left out whole and listed in `Zoo.broken`; the rest works.
"""

import contextlib
import hashlib
import importlib.util
import inspect
import os
import pkgutil
import sys
import traceback
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pluggy

from rlzoo.errors import ComponentError, RlzooError, UnknownName, nearest
from rlzoo.plugin import hookspecs
from rlzoo.plugin.columns import COLUMNS, RESOURCES, STAGE_OF_KIND, STAGES
from rlzoo.plugin.component import KINDS, Component, read_component

GROUP = "rlzoo"


class PluginWarning(UserWarning):
    """A plugin was left out."""


@dataclass(frozen=True)
class Broken:
    """A plugin that was left out: where it came from, and why."""

    origin: str
    reason: str

    def __str__(self) -> str:
        return f"plugin {self.origin} left out: {self.reason}"


def left_out(name: str, broken: Iterable[Broken]) -> str:
    """Those of the plugins left out that speak of a name that is missed, each in brackets."""
    return "".join(f" ({b})" for b in broken if name in b.origin + b.reason)


class Shelf(Mapping[str, Component]):
    """The components of one kind, by name. A name that two plugins claim belongs to neither."""

    def __init__(self, kind: str, broken: list[Broken]):
        self.kind = kind
        self._broken = broken
        self._components: dict[str, Component] = {}
        self._clashes: dict[str, list[str]] = {}

    def add(self, component: Component) -> None:
        name = component.name
        if name in self._clashes:
            self._clashes[name].append(component.origin)
        elif name in self._components:
            self._clashes[name] = [self._components.pop(name).origin, component.origin]
        else:
            self._components[name] = component

    def remove(self, component: Component) -> None:
        if self._components.get(component.name) is component:
            del self._components[component.name]

    @property
    def clashes(self) -> dict[str, str]:
        """name -> an error that names the plugins that claim it."""
        singular = KINDS[self.kind].singular
        return {
            name: f"{singular} {name!r} is claimed by {' and by '.join(sorted(origins))}; "
            "uninstall or rename one"
            for name, origins in self._clashes.items()
        }

    def __getitem__(self, name: str) -> Component:
        if name in self._clashes:
            raise UnknownName(self.clashes[name])
        if name not in self._components:
            singular = KINDS[self.kind].singular
            hint = nearest(name, self._components) + left_out(name, self._broken)
            raise UnknownName(f"no {singular} {name!r}{hint}")
        return self._components[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._components))

    def __len__(self) -> int:
        return len(self._components)

    def __contains__(self, name: object) -> bool:
        return name in self._components


@dataclass
class Zoo:
    """All components, by kind (`zoo.estimators["gae"]`), and the plugins that were left out."""

    broken: list[Broken] = field(default_factory=list)
    shelves: dict[str, Shelf] = field(init=False)

    def __post_init__(self) -> None:
        self.shelves = {kind: Shelf(kind, self.broken) for kind in KINDS}

    def __getattr__(self, kind: str) -> Shelf:
        shelves = self.__dict__.get("shelves", {})
        if kind in shelves:
            return shelves[kind]
        raise AttributeError(f"a zoo has no {kind!r}{nearest(kind, KINDS)}")

    def __iter__(self) -> Iterator[Component]:
        for shelf in self.shelves.values():
            yield from shelf.values()

    def code_digest(self) -> str:
        """SHA-256 of the source of rlzoo and of every package that a component comes from."""
        tops = {"rlzoo"} | {c.function.__module__.partition(".")[0] for c in self}
        digest = hashlib.sha256()
        for top in sorted(tops):
            file = getattr(sys.modules.get(top), "__file__", None)
            if file is None:
                continue
            path = Path(file)
            for one in sorted(path.parent.rglob("*.py")) if path.stem == "__init__" else [path]:
                digest.update(one.read_bytes())
        return digest.hexdigest()


def load_zoo(plugins: tuple[Any, ...] | list[Any] = ()) -> Zoo:
    """Discover every plugin and return the zoo.

    plugins: further ones beside the installed: modules, module names or paths of `.py` files.
        The environment variable `RLZOO_PLUGINS` (separated by commas) adds to them.
    Warns (`PluginWarning`) of each plugin that is left out; never raises because of one.
    """
    with contextlib.redirect_stdout(sys.stderr):  # a plugin that prints must not spoil --json
        return _load(plugins)


def _load(plugins: Any) -> Zoo:
    zoo = Zoo()
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    for origin, plugin in _discover(plugins, zoo.broken):
        try:
            for component in _components(manager, plugin, origin):
                zoo.shelves[component.kind].add(component)
        except _BORDER as error:
            zoo.broken.append(Broken(origin, _reason(error, plugin)))
    _drop_unmet_needs(zoo)
    for shelf in zoo.shelves.values():
        zoo.broken.extend(
            Broken(" and ".join(sorted(shelf._clashes[n])), text)
            for n, text in shelf.clashes.items()
        )
    for broken in zoo.broken:
        warnings.warn(str(broken), PluginWarning, stacklevel=3)
    return zoo


# The one place where anything may be caught: a stranger's module can raise what it likes.
_BORDER = (Exception, SystemExit)


def _discover(extra: Any, broken: list[Broken]) -> Iterator[tuple[str, Any]]:
    """(origin, module or object) of each plugin that can be imported."""
    for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
        dist = f"{point.dist.name} {point.dist.version}" if point.dist else "?"
        if ":" in point.value:
            yield from _attempt(f"{point.value} ({dist})", point.load, broken)
        else:
            yield from _modules(point.value, dist, broken)
    from_environment = [p for p in os.environ.get("RLZOO_PLUGINS", "").split(",") if p.strip()]
    for item in [*from_environment, *extra]:
        if not isinstance(item, str | Path):
            yield getattr(item, "__name__", repr(item)), item
        elif str(item).endswith(".py"):
            path = Path(item)
            yield from _attempt(str(path), lambda path=path: _import_file(path), broken)
        else:
            yield from _modules(str(item).strip(), "RLZOO_PLUGINS", broken)


def _modules(name: str, dist: str, broken: list[Broken]) -> Iterator[tuple[str, Any]]:
    """The module, or each module inside the package, as a plugin of its own."""
    for origin, module in _attempt(
        f"{name} ({dist})", lambda: importlib.import_module(name), broken
    ):
        if any(a.startswith("register_") for a in vars(module)) or not hasattr(module, "__path__"):
            yield origin, module
        for info in pkgutil.iter_modules(getattr(module, "__path__", [])):
            if info.name != "__main__":  # it is a command: importing it would run it
                yield from _modules(f"{name}.{info.name}", dist, broken)


def _attempt(origin: str, load: Any, broken: list[Broken]) -> Iterator[tuple[str, Any]]:
    try:
        plugin = load()
    except _BORDER as error:
        broken.append(Broken(origin, _reason(error, None)))
    else:
        yield origin, plugin


def _import_file(path: Path) -> types.ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    name = f"rlzoo_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that what it defines can be pickled and traced
    spec.loader.exec_module(module)
    return module


def _components(manager: pluggy.PluginManager, plugin: Any, origin: str) -> list[Component]:
    """What one plugin registers, all of it read and checked; raises on the first fault."""
    hooks = [f"register_{kind}" for kind in KINDS]
    for name, value in vars(plugin).items() if hasattr(plugin, "__dict__") else ():
        value = inspect.unwrap(getattr(value, "__func__", value))  # of a staticmethod
        unmarked = not hasattr(value, f"{GROUP}_impl") and callable(value)
        if name in hooks and unmarked:
            raise ComponentError(f"{name} lacks @hookimpl")
    manager.register(plugin, origin)
    components: list[Component] = []
    for caller in manager.get_hookcallers(plugin) or ():
        if not caller.has_spec():
            raise ComponentError(f"there is no hook {caller.name!r}{nearest(caller.name, hooks)}")
        kind = caller.name.removeprefix("register_")

        def register(function: Any, kind: str = kind, **extra: Any) -> None:
            allowed = ("couples", "shape", "example", "caution", "check", "needs_signal")
            for word in extra:
                if word not in allowed:
                    raise ComponentError(f"register() takes no {word!r}{nearest(word, allowed)}")
            component = read_component(kind, function, origin, **extra)
            if kind == "columns" and component.name in {**COLUMNS, **RESOURCES}:
                raise ComponentError(f"{component.label}: that column is made by the core")
            components.append(component)

        for impl in caller.get_hookimpls():
            if impl.plugin is plugin:
                impl.function(*(register for _ in impl.argnames))
    if not components and hasattr(plugin, "__name__") and not hasattr(plugin, "__path__"):
        inside_package = "." in plugin.__name__  # a helper module of a package may be silent
        if not inside_package:
            raise ComponentError("registers nothing")
    return components


def _drop_unmet_needs(zoo: Zoo) -> None:
    """Leave out components that ask for a column nobody makes, until all that stay are whole."""
    while True:
        known = {**COLUMNS, **dict.fromkeys(zoo.columns)}
        faults = [(c, fault) for c in zoo for n in c.needs if (fault := _fault(c, n, known))]
        if not faults:
            return
        component, fault = faults[0]
        zoo.broken.append(Broken(component.origin, f"{component.label}: {fault}"))
        for other in list(zoo):  # the plugin goes whole
            if other.origin == component.origin:
                zoo.shelves[other.kind].remove(other)


def _fault(component: Component, need: str, known: Mapping[str, Any]) -> str:
    if need in RESOURCES:
        if component.kind in ("columns", "samplers"):
            return ""
        return f"{need!r} is a resource, which only columns and samplers may ask for"
    if component.kind == "loggers":
        return "" if need == "path" else f"a logger is made with 'path' alone, not {need!r}"
    if need not in known:
        return f"no column {need!r}{nearest(need, known)}"
    column = COLUMNS.get(need)
    stage = STAGE_OF_KIND[component.kind]
    if column and STAGES.index(column.stage) > STAGES.index(stage):
        return (
            f"column {need!r} exists only from the {column.stage} stage, after this one ({stage})"
        )
    return ""


def _reason(error: BaseException, plugin: Any) -> str:
    """One line: the error, and the last place of the plugin's own that it passed through."""
    if isinstance(error, RlzooError):
        return str(error)
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {text}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "importlib" not in f.filename and f.filename != __file__]
    place = f" (at {Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {text}{place}"
