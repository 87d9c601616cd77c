"""The zoo: discovers plugins through entry points, leaves out broken ones and reports why.

Every plugin, including the shipped zoo, is an entry point of the group `rlzoo` that names a
module, or a package in which each module is a separate plugin. A plugin that fails is left out as
a whole and listed in `Zoo.broken`; the others work.
"""

import contextlib
import dataclasses
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
import types
import warnings
from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pluggy

from rlzoo.errors import ComponentError, RlzooError, Stopped, UnknownName, nearest
from rlzoo.plugin.border import told, unchanged, watched
from rlzoo.plugin.columns import COLUMNS, RESOURCES, STAGES
from rlzoo.plugin.component import KINDS, REGISTERED, Component, read_component
from rlzoo.plugin.hookspecs import HOOKS, declared
from rlzoo.plugin.installed import GROUP, OWN, named, plugins


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
    """The broken plugins that mention a missing name, each in brackets."""
    return "".join(f" ({b})" for b in broken if name in b.origin + b.reason)


class Shelf(UserDict[str, Component]):
    """The components of one kind, by name, and by `distribution/name` if the plain name is taken
    (by the shipped zoo's component) or disputed (by several others; it then refers to none).

    claims: all components that register a plain name. clashes: for disputed names, an error that
    lists the plugins that claim it. notes: a line for each component that needs
    `distribution/name`, because the zoo uses its name.
    """

    def __init__(self, kind: str, components: Iterable[Component], broken: Sequence[Broken]):
        super().__init__()
        self.kind, self._broken = kind, broken
        self.claims: dict[str, list[Component]] = {}
        self.clashes: dict[str, str] = {}
        self.notes: list[str] = []
        for c in components:
            c = dataclasses.replace(c, peers=self) if c.parts else c
            self.claims.setdefault(c.name, []).append(c)
        for name, claims in sorted(self.claims.items()):
            owners = [c for c in claims if c.distribution == OWN] or claims
            if len(owners) == 1:
                self[name] = owners[0]
            else:
                self.clashes[name] = self._clash(name, owners)
            for c in claims:
                if c is self.get(name):
                    continue
                way = "rename the plugin"
                if [other.full_name for other in claims].count(c.full_name) == 1:
                    self[c.full_name] = c
                    way = f"use {c.full_name!r}"
                if name in self:
                    whose = f"refers to the zoo's own component ({owners[0].origin})"
                    note = f"{name!r} {whose}; {way} for that of {c.origin}"
                    self.notes.append(f"{KINDS[kind].singular} {note}")

    def _clash(self, name: str, claims: list[Component]) -> str:
        ways = dict.fromkeys(c.full_name for c in claims)
        way = "uninstall or rename one" if len(ways) == 1 else f"use {' or '.join(ways)}"
        origins = " and by ".join(sorted(c.origin for c in claims))
        return f"{KINDS[self.kind].singular} {name!r} is claimed by {origins}; {way}"

    def __missing__(self, name: str) -> Component:
        """`distribution/name` where the plain name is enough. Raises UnknownName otherwise."""
        plain = name.rpartition("/")[2]
        matching = [c for c in self.claims.get(plain, ()) if c.full_name == name]
        if len(matching) == 1:
            return matching[0]
        if matching or name in self.clashes:
            raise UnknownName(self.clashes.get(name) or self._clash(name, matching))
        hint = nearest(name, self) + left_out(name, self._broken)
        raise UnknownName(f"no {KINDS[self.kind].singular} {name!r}{hint}")

    def __contains__(self, name: object) -> bool:
        try:
            self[str(name)]
        except UnknownName:
            return False
        return True


class Zoo:
    """All components, by kind (`zoo.estimators["gae"]`), the plugins that were left out, and the
    notes of all shelves."""

    def __init__(self, components: Sequence[Component] = (), broken: Sequence[Broken] = ()):
        self.broken = list(broken)
        self.shelves = {
            kind: Shelf(kind, [c for c in components if c.kind == kind], self.broken)
            for kind in KINDS
        }
        self.notes = [text for shelf in self.shelves.values() for text in shelf.notes]

    def __getattr__(self, kind: str) -> Shelf:
        shelves = vars(self).get("shelves", {})  # absent while it is unpickled
        if kind not in shelves:
            raise AttributeError(f"a zoo has no {kind!r}{nearest(kind, KINDS)}")
        return shelves[kind]

    def __iter__(self) -> Iterator[Component]:
        for shelf in self.shelves.values():
            yield from shelf.values()


def load_zoo(plugins: Sequence[object] | Path = ()) -> Zoo:
    """Discover every plugin and return the zoo.

    plugins: plugins to load in addition: modules, module names or paths of `.py` files, or one.
        The environment variable `RLZOO_PLUGINS` (separated by commas) adds to them; if
        `RLZOO_DISABLE_PLUGIN_AUTOLOAD` is set, installed third-party plugins are not loaded.
    Warns (`PluginWarning`) of each plugin that is left out; never raises because of one.
    """
    # A plugin that prints must not spoil --json, and paths stay relative to the caller's folder.
    with contextlib.redirect_stdout(sys.stderr), contextlib.chdir(os.curdir):
        return _load([plugins] if isinstance(plugins, str | Path) else plugins)


def _load(plugins: Sequence[object]) -> Zoo:
    broken: list[Broken] = []
    components = _discovered(plugins, broken)
    while True:  # until no component needs a column that no component makes
        known = {**COLUMNS, **{c.name: c for c in components if c.kind == "columns"}}
        needs = ((c, _fault(c, need, known)) for c in components for need in c.needs)
        lacking, fault = next((pair for pair in needs if pair[1]), (None, ""))
        if lacking is None:
            break
        broken.append(Broken(lacking.origin, f"{lacking.label}: {fault}"))
        components = [c for c in components if c.origin != lacking.origin]  # the whole plugin
    zoo = Zoo(components, broken)
    for shelf in zoo.shelves.values():
        zoo.broken.extend(
            Broken(" and ".join(sorted(c.origin for c in shelf.claims[n])), text)
            for n, text in shelf.clashes.items()
        )
    for text in [*map(str, zoo.broken), *zoo.notes]:
        warnings.warn(text, PluginWarning, stacklevel=3)
    return zoo


def _discovered(extra: Sequence[object], broken: list[Broken]) -> list[Component]:
    """The components of each plugin that works; `broken` gains the others."""
    components: list[Component] = []
    seen = set[Any]()  # files and objects: one may be named twice, in RLZOO_PLUGINS and here
    failed: list[str] = []  # what is inside such a package needs it
    typed = [plugin for x in extra if isinstance(x, str | Path) for plugin in named(str(x))]
    for origin, distribution, name, _ in [*plugins(), *typed]:
        file = os.path.realpath(name) if name.endswith(".py") else None
        if file in seen or name.startswith(tuple(failed)):
            continue  # a second module of a file would take the first one's place
        plugin = None
        with _attempt(origin, broken):
            if not file and not re.fullmatch(r"[\w.]+(:[\w.]*)?", name):
                raise ComponentError("is neither a path that ends in .py nor the name of a module")
            name = name if file or ":" in name else f"{name}:"
            with unchanged(watch=distribution != OWN) as changed:
                module = import_file(Path(name)) if file else pkgutil.resolve_name(name)
            if changed:
                raise ComponentError(f"changes {' and '.join(changed)} for all of the process")
            plugin = module
        file = file or getattr(plugin, "__file__", None)
        one = os.path.realpath(file) if file else id(plugin)
        if plugin is None:
            failed.append(f"{name.removesuffix(':')}.")
            continue
        brings = any(declared(plugin)) or any(name.startswith("register_") for name in dir(plugin))
        if one not in seen and (brings or not hasattr(plugin, "__path__")):  # no mere package
            with _attempt(origin, broken):
                components += _components(plugin, origin, distribution)
        seen.add(one)
    for plugin in extra:
        file = getattr(plugin, "__file__", None)
        if isinstance(plugin, str | Path) or (file and os.path.realpath(file) in seen):
            continue
        origin = getattr(plugin, "__name__", repr(plugin))
        with _attempt(origin, broken):
            components += _components(plugin, origin, origin.partition(".")[0])
    return components


@contextlib.contextmanager
def _attempt(origin: str, broken: list[Broken]) -> Iterator[None]:
    """Leave out a plugin that raises anything except Ctrl-C or a similar signal."""
    try:
        with watched(f"plugin {origin}"):
            yield
    except (Stopped, KeyboardInterrupt):
        raise
    except BaseException as error:
        reason = str(error) if isinstance(error, RlzooError) else told(error)
        broken.append(Broken(origin, reason))


def import_file(path: Path) -> types.ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    name = f"rlzoo_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that what it defines can be pickled and traced
    spec.loader.exec_module(module)
    return module


def _components(plugin: Any, origin: str, distribution: str) -> list[Component]:
    """One plugin's components, all read and checked; raises on the first fault."""
    hooks = [f"register_{kind}" for kind in KINDS]
    members = vars(plugin) if hasattr(plugin, "__dict__") else {}
    for name in [hook for hook in hooks if hook in members]:
        value = members[name]
        value = inspect.unwrap(getattr(value, "__func__", value))  # of a staticmethod
        if callable(value) and not hasattr(value, f"{GROUP}_impl"):
            raise ComponentError(f"{name} lacks @hookimpl")
    manager = pluggy.PluginManager(GROUP)  # of only this plugin
    manager.add_hookspecs(HOOKS)
    manager.register(plugin, origin)
    components: list[Component] = []

    def register(function: Any, *, kind: str, **facts: Any) -> None:
        for word in set(facts).difference(REGISTERED):
            has = nearest(word, REGISTERED) or f" (it has: {', '.join(REGISTERED)})"
            line = f"a component has no argument {word!r}{has}"
            raise ComponentError(line)
        component = read_component(kind, function, origin, distribution=distribution, **facts)
        if kind == "columns" and component.name in {**COLUMNS, **RESOURCES}:
            raise ComponentError(f"{component.label}: the core computes that column")
        components.append(component)

    for kind, function, facts in declared(plugin):
        register(function, kind=kind, **facts)
    for caller in manager.get_hookcallers(plugin) or ():
        if not caller.has_spec():
            raise ComponentError(f"there is no hook {caller.name!r}{nearest(caller.name, hooks)}")
        caller(register=partial(register, kind=caller.name.removeprefix("register_")))
    inside_package = "." in getattr(plugin, "__name__", ".")  # a helper module of one may be silent
    if not components and not inside_package and not hasattr(plugin, "__path__"):
        raise ComponentError(
            "registers nothing: write @component(KIND) above a function or a class of this module"
        )
    return components


def _fault(component: Component, need: str, known: Mapping[str, object]) -> str:
    if need in RESOURCES:
        allowed = component.kind in ("columns", "samplers")
        return "" if allowed else f"{need!r} is a resource, which only columns and samplers may use"
    if component.kind == "loggers":
        return "" if need == "path" else f"a logger takes only 'path', not {need!r}"
    if component.kind == "executors":
        return f"an executor takes only options, not {need!r}"
    if need not in known:
        return f"there is no column {need!r}{nearest(need, known)}"
    column = COLUMNS.get(need)
    stage = KINDS[component.kind].stage
    if column and STAGES.index(column.stage) > STAGES.index(stage):
        fault = f"column {need!r} exists only from stage {column.stage!r} on, not yet at {stage!r}"
        old = COLUMNS.get(f"old_{need}")
        early = old and STAGES.index(old.stage) <= STAGES.index(stage)
        return f"{fault}; use 'old_{need}' at this stage" if early else fault
    return ""
