"""The zoo as its source declares it, without running it: names, texts and options, but no types.

This suffices to list components, to report a misspelt name or key before torch is imported, and
for shell completion. A sketch requires literal `@component` lines and `register` calls.
"""

import ast
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlzoo.plugin.component import KINDS, Component, name_of, path_below_root
from rlzoo.plugin.hookspecs import PLURALS
from rlzoo.plugin.installed import OWN, plugins
from rlzoo.plugin.options import Option
from rlzoo.plugin.registry import Zoo, load_zoo

HOOKS = {f"register_{kind}": kind for kind in KINDS}


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
    components: dict[str, list[Component]] = {}  # by file
    try:
        for origin, distribution, _, file in plugins():
            if file is None or (own and distribution != OWN):
                return None
            if (real := os.path.realpath(file)) in components:
                continue
            components[real] = [*_components(file, origin, distribution)]
            if not components[real] and origin.endswith(".py"):
                return None  # the user's file registers nothing: loading reports it
    except (OSError, SyntaxError, ValueError):
        return None
    return Zoo([c for in_file in components.values() for c in in_file])


def _components(file: Path, origin: str, distribution: str) -> Iterator[Component]:
    """A file's components; raises ValueError where its text does not show what it registers."""
    source = file.read_text(encoding="utf-8")
    hooks = re.findall(r"\bregister_\w+", source)
    marks = re.findall(r"\bcomponent\(", source)
    if not hooks and not marks:
        return
    body = ast.parse(source).body
    defined = {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    pairs = [(kind, name) for name, node in defined.items() for kind in _declared(node)]
    if sorted(hooks) != sorted(HOOKS.keys() & defined.keys()) or len(marks) != len(pairs):
        raise ValueError("a hook is imported, assigned, or in a branch")
    pairs += [(HOOKS[hook], name) for hook in hooks for name in _registered(defined[hook])]
    for kind, name in pairs:
        what: Any = defined.get(name)
        init = what
        if isinstance(what, ast.ClassDef):
            init = next((n for n in what.body if getattr(n, "name", "") == "__init__"), what)
        if not isinstance(init, ast.FunctionDef):
            raise ValueError("it is not defined here, or takes the options of a base class")
        line = min(node.lineno for node in (what, *what.decorator_list))
        yield Component(
            kind, name_of(name), lambda: None, (),
            {o.arg: Option(o.arg, Any, None) for o in init.args.kwonlyargs},
            ast.get_docstring(what) or "", origin, f"{path_below_root(str(file))}:{line}",
            "row", distribution=distribution,
        )  # fmt: skip


def _declared(node: ast.FunctionDef | ast.ClassDef) -> Iterator[str]:
    """The kinds of the `@component(KIND, ...)` above a function or class."""
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(
                ast.Name("component") | ast.Attribute(attr="component"), [ast.Constant(kind)]
            ) if kind in PLURALS:
                yield PLURALS[kind]


def _registered(hook: ast.stmt) -> Iterator[str]:
    """The names registered by a hook that consists of `register(NAME, ...)` calls."""
    for statement in getattr(hook, "body", ()):
        match statement:
            case ast.Expr(ast.Call(ast.Name("register"), [ast.Name(name)])):
                yield name
            case ast.Expr(ast.Constant()):
                continue
            case _:
                raise ValueError("it registers in its own way")
