"""The zoo as its source says, read without running it: names and options, no types.  No torch.

Enough to tell a misspelt component or key before torch is imported, and to complete words in a
shell. Where a plugin does not say in plain words what it registers, there is no sketch.
"""

import ast
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlzoo.plugin.component import KINDS, Component, name_of, path_below_root
from rlzoo.plugin.installed import installed
from rlzoo.plugin.options import Option
from rlzoo.plugin.registry import GROUP, OWN, Zoo, load_zoo, normal

HOOKS = {f"register_{kind}": kind for kind in KINDS}


def load_zoo_after(trial: Callable[[Zoo], Any]) -> Zoo:
    """The zoo, once `trial` has gone through with its sketch: what it raises costs no torch."""
    rough = sketch()
    if rough is not None:
        trial(rough)
    return load_zoo()


def sketch() -> Zoo | None:
    """Every component with its options, their values unchecked; None where source cannot tell.

    It holds all that a zoo would, and what a broken plugin would have registered.
    """
    zoo, seen = Zoo(), set()
    try:
        for origin, distribution, file in _files():
            if (real := os.path.realpath(file)) in seen:
                continue
            seen.add(real)
            components = list(_components(file, origin, distribution))
            if not components and origin.endswith(".py"):
                raise _Unclear  # a file of the user's that registers nothing: that is to be said
            for component in components:
                zoo.shelves[component.kind].add(component)
    except (_Unclear, OSError, SyntaxError, ValueError):
        return None
    return zoo


class _Unclear(Exception):
    """Source that does not say what it registers."""


@dataclass(frozen=True)
class _Unchecked(Option):
    """An option of which only the name is known."""

    def check(self, value: Any) -> Any:
        return value

    def allows(self, value: Any) -> bool:
        return True

    @property
    def type_text(self) -> str:
        return "?"


def _files() -> Iterator[tuple[str, str, Path]]:
    """(origin, distribution, file) of each module that `load_zoo` would import."""
    own_alone = os.environ.get("RLZOO_DISABLE_PLUGIN_AUTOLOAD")
    for point in installed(GROUP):
        # A distribution reads its file of metadata each time that it is asked.
        if ":" in point.value or (dist := point.dist) is None or not (name := dist.name):
            raise _Unclear
        if name == OWN or not own_alone:
            version = dist.version
            for module, file in _modules(point.value):
                yield f"{module} ({name} {version})", name, file
    for item in filter(str.strip, os.environ.get("RLZOO_PLUGINS", "").split(",")):
        if item.endswith(".py"):
            yield item, Path(item).stem, Path(item)
            continue
        for module, file in _modules(item.strip()):
            yield f"{module} (RLZOO_PLUGINS)", item.strip().partition(".")[0], file


def _modules(name: str) -> Iterator[tuple[str, Path]]:
    """A module and those inside, found without importing any: a spec of a.b would import a."""
    top, *rest = name.split(".")
    spec = find_spec(top)
    for part in rest:
        if spec is not None:
            spec = PathFinder.find_spec(part, spec.submodule_search_locations)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise _Unclear
    paths = spec.submodule_search_locations
    yield name, Path(spec.origin)
    yield from _inside(name, Path(spec.origin).parent) if paths else ()


def _inside(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.iterdir()):
        if (init := path / "__init__.py").is_file():
            yield f"{name}.{path.name}", init
            yield from _inside(f"{name}.{path.name}", path)
        elif path.suffix == ".py" and path.stem not in ("__init__", "__main__"):
            yield f"{name}.{path.stem}", path


def _components(file: Path, origin: str, distribution: str) -> tuple[Component, ...]:
    about = file.stat()
    return _drawn(file, (about.st_ino, about.st_mtime_ns, about.st_size), origin, distribution)


@cache
def _drawn(file: Path, _: Any, origin: str, distribution: str) -> tuple[Component, ...]:
    """What a file registers, read again once it is another: a notebook asks many times."""
    return tuple(_read(file, origin, distribution))


def _read(file: Path, origin: str, distribution: str) -> Iterator[Component]:
    source = file.read_text(encoding="utf-8")
    if "register_" not in source:
        return
    tree = ast.parse(source)
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif not HOOKS.keys().isdisjoint(_names(node)):  # imported, assigned, in a branch
            raise _Unclear
    for hook, kind in HOOKS.items():
        if hook not in found:
            continue
        for name in _registered(found[hook]):
            if (what := found.get(name)) is None:
                raise _Unclear
            place = f"{path_below_root(str(file))}:{_first_line(what)}"
            yield Component(
                kind, name_of(name), lambda: None, (), _options(what), "", "", origin, place, "row",
                distribution=normal(distribution),
            )  # fmt: skip


def _names(node: ast.stmt) -> Iterator[str]:
    """What a statement may give a name."""
    for part in ast.walk(node):
        match part:
            case ast.FunctionDef(name) | ast.alias(asname=str(name)) | ast.alias(name):
                yield name
            case ast.Name(name, ast.Store()):
                yield name


def _registered(hook: ast.FunctionDef) -> Iterator[str]:
    """What a hook that is a list of `register(NAME, ...)` registers."""
    plain = [ast.unparse(d).rpartition(".")[2] == "hookimpl" for d in hook.decorator_list]
    if plain != [True] or len(hook.args.args) != 1:
        raise _Unclear
    for statement in hook.body:
        match statement:
            case ast.Expr(ast.Constant()):
                continue
            case ast.Expr(ast.Call(ast.Name(called), [ast.Name(name)])):
                if called != hook.args.args[0].arg:
                    raise _Unclear
                yield name
            case _:
                raise _Unclear


def _options(node: Any) -> dict[str, Option]:
    if isinstance(node, ast.ClassDef):
        made = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
        node = made[0] if made else None
        if node is None:
            raise _Unclear  # a base class's, a dataclass's
    names = [argument.arg for argument in node.args.kwonlyargs]
    return {name: _Unchecked(name, Any, None) for name in names}


def _first_line(node: Any) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])
