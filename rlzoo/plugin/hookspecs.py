"""How a plugin declares what it brings: `@component(KIND)` above a function or a class.

The hook `register_<plural>(register)` of a kind, an `@rlzoo.hookimpl`, does the same by calls of
`register(f)`, for components that are made in a loop or are defined elsewhere.
`rlzoo.plugin.component.KINDS` lists what each kind takes and returns.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pluggy

from rlzoo.errors import nearest
from rlzoo.plugin.component import KINDS

Register = Callable[..., None]
F = TypeVar("F", bound=Callable[..., Any])

hookimpl = pluggy.HookimplMarker("rlzoo")

HOOKS = type("Hooks", (), {})
for _kind in KINDS.values():

    def _register(register: Register) -> None: ...

    _register.__name__, _register.__doc__ = f"register_{_kind.plural}", _kind.what
    setattr(HOOKS, _register.__name__, pluggy.HookspecMarker("rlzoo")(_register))

PLURALS = {kind.singular: kind.plural for kind in KINDS.values()}
NAMED = (inspect.isroutine, inspect.isclass)  # what can be a component


def component(kind: str, **facts: Any) -> Callable[[F], F]:
    """Declare the function or class below to be a component: `@component("estimator")`.

    kind: its kind, as `rlzoo new` names it. facts: what else there is to declare, as
    `couples="batch"`. Raises ValueError for an unknown kind.
    """
    if kind not in PLURALS:
        near = nearest(str(kind), PLURALS) or f" ({', '.join(PLURALS)})"
        raise ValueError(f"@component needs a kind. Got {kind!r}{near}")

    def declare(function: F) -> F:
        if not any(has(function) for has in NAMED):
            raise ValueError(f"@component must be above a function or a class. Got {function!r}")
        function.__rlzoo__ = (PLURALS[kind], facts)  # type: ignore[attr-defined]
        return function

    return declare


def declared(plugin: Any) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(kind, function, facts) of each component that a module itself declares."""
    for value in list(vars(plugin).values()) if inspect.ismodule(plugin) else ():
        # A class does not inherit the declaration of its base; a method of C has no attributes.
        of = getattr(value, "__dict__", {}) if any(has(value) for has in NAMED) else {}
        if "__rlzoo__" in of and value.__module__ == plugin.__name__:
            yield of["__rlzoo__"][0], value, of["__rlzoo__"][1]
