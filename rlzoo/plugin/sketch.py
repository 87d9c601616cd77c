"""The zoo as its source declares it, without running it: names, texts and options, but no types.

This suffices to list components, to report a misspelt name or key before torch is imported, and
for shell completion. It requires literal `@component` lines: what a hook registers, only an import
shows.
"""

import ast
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlzoo.plugin.component import Component, name_of, path_below_root
from rlzoo.plugin.hookspecs import PLURALS
from rlzoo.plugin.installed import OWN, plugins
from rlzoo.plugin.options import Option
from rlzoo.plugin.registry import Zoo, load_zoo


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
    marks = re.findall(r"\b(?:component\(|register_\w+)", source)
    if not marks:
        return
    nodes: list[Any] = ast.parse(source).body
    pairs = [(kind, node) for node in nodes for kind in _declared(node)]
    if len(marks) != len(pairs):
        raise ValueError("it has a hook, or a component that is not at its top")
    for kind, what in pairs:
        init = what
        if isinstance(what, ast.ClassDef):
            init = next((n for n in what.body if getattr(n, "name", "") == "__init__"), what)
        if not isinstance(init, ast.FunctionDef):
            raise ValueError("it takes the options of a base class")
        line = min(node.lineno for node in (what, *what.decorator_list))
        yield Component(
            kind, name_of(what.name), lambda: None, (),
            {o.arg: Option(o.arg, Any, None) for o in init.args.kwonlyargs},
            ast.get_docstring(what) or "", origin, f"{path_below_root(str(file))}:{line}",
            "row", distribution=distribution,
        )  # fmt: skip


def _declared(node: Any) -> Iterator[str]:
    """The kinds of the `@component(KIND, ...)` above a function or class."""
    for decorator in getattr(node, "decorator_list", ()):
        match decorator:
            case ast.Call(
                ast.Name("component") | ast.Attribute(attr="component"), [ast.Constant(kind)]
            ) if kind in PLURALS:
                yield PLURALS[kind]
