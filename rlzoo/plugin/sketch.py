"""The zoo as its source declares it, without running it: names, texts and options, but no types.

This suffices to list components, to report a misspelt name or key before torch is imported, and
for shell completion. A sketch requires literal `register` calls.
"""

import ast
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rlzoo.plugin.component import KINDS, Component, name_of, path_below_root
from rlzoo.plugin.installed import OWN, plugins
from rlzoo.plugin.options import Option
from rlzoo.plugin.registry import Zoo, load_zoo

HOOKS = {f"register_{kind}": kind for kind in KINDS}
Definition = ast.FunctionDef | ast.ClassDef


def load_zoo_after(trial: Callable[[Zoo], object]) -> Zoo:
    """The zoo, after `trial` has succeeded with its sketch, so that its errors need no torch."""
    rough = sketch()
    if rough is not None:
        trial(rough)
    return load_zoo()


def sketch(*, own: bool = False) -> Zoo | None:
    """Every component with its text and options, their values unchecked; None if the source hides
    them, or with `own` if a plugin is not rlzoo's own: only an import shows whether that one works.

    It contains everything in the zoo, and also what a broken plugin would have registered.
    """
    components: list[Component] = []
    seen = set()
    try:
        for origin, distribution, _, file in plugins():
            if file is None or (own and distribution != OWN):
                raise _Unclear
            if (real := os.path.realpath(file)) in seen:
                continue
            seen.add(real)
            about = file.stat()
            version = about.st_ino, about.st_mtime_ns, about.st_size
            in_file = _read(file, version, origin, distribution)
            if not in_file and origin.endswith(".py"):
                raise _Unclear  # the user's file registers nothing: loading reports it
            components += in_file
    except (_Unclear, OSError, SyntaxError, ValueError):
        return None
    return Zoo(components)


class _Unclear(Exception):
    """The source does not show what it registers."""


@dataclass(frozen=True)
class _Unchecked(Option):
    """An option whose type is unknown."""

    def check(self, value: object) -> object:
        return value

    def allows(self, value: object) -> bool:
        return True

    @property
    def type_text(self) -> str:
        return "?"


@cache
def _read(file: Path, _: tuple[int, ...], origin: str, distribution: str) -> list[Component]:
    """A file's components, read again only if the file changed: a notebook calls this often."""
    source = file.read_text(encoding="utf-8")
    if "register_" not in source:
        return []
    components = []
    tree = ast.parse(source)
    definitions: dict[str, Definition] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            definitions[node.name] = node
            continue
        for part in ast.walk(node):  # imported, assigned, in a branch
            names = (getattr(part, field, None) for field in ("id", "name", "asname"))
            if not HOOKS.keys().isdisjoint(names):
                raise _Unclear
    for hook, kind in HOOKS.items():
        if hook not in definitions:
            continue
        for name in _registered(definitions[hook]):
            if (what := definitions.get(name)) is None:
                raise _Unclear
            line = min(node.lineno for node in (what, *what.decorator_list))
            init: ast.stmt = what
            if isinstance(what, ast.ClassDef):
                init = next((n for n in what.body if getattr(n, "name", "") == "__init__"), what)
            if not isinstance(init, ast.FunctionDef):
                raise _Unclear  # it is a base class's or a dataclass's
            options = {o.arg: _Unchecked(o.arg, Any, None) for o in init.args.kwonlyargs}
            components.append(Component(
                kind, name_of(name), lambda: None, (), options,
                ast.get_docstring(what) or "", origin, f"{path_below_root(str(file))}:{line}",
                "row", distribution=distribution,
            ))  # fmt: skip
    return components


def _registered(hook: Definition) -> Iterator[str]:
    """The names registered by a hook that consists of `register(NAME, ...)` calls."""
    plain = [ast.unparse(d).rpartition(".")[2] == "hookimpl" for d in hook.decorator_list]
    if isinstance(hook, ast.ClassDef) or plain != [True] or len(hook.args.args) != 1:
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
