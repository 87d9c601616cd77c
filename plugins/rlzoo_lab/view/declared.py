"""The options of a verb, as declared by the signature of the Python function of the same name.

A parameter is an option if its annotation has a help text, preceded by a placeholder if one is
needed:

    threshold: Annotated[float | None, "X", "count the steps to this score"] = None,
    details: Annotated[bool, "show every pair"] = False,

A verb's `add_arguments` may first add some of these options itself, with settings that only
argparse has; these stay unchanged.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from pkgutil import resolve_name
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin


class Declared(NamedTuple):
    """An option: its type and default in Python, and its help."""

    name: str
    type: Any
    default: Any
    metavar: str | None
    help: str


def declared(function: Callable[..., Any]) -> Iterator[Declared]:
    """The options in the order of the signature."""
    for p in signature(function).parameters.values():
        if get_origin(p.annotation) is Annotated:
            kind, *texts = get_args(p.annotation)
            yield Declared(p.name, kind, p.default, texts[0] if texts[1:] else None, texts[-1])


def add_declared(parser: argparse.ArgumentParser, function: str) -> None:
    """Add the options of `module:function` that the parser does not have yet."""
    has = {action.dest for action in parser._actions}
    for option in declared(resolve_name(function)):
        if option.name not in has:
            flag = "--" + option.name.replace("_", "-")
            parser.add_argument(flag, help=option.help.replace("%", "%%"), **_settings(option))


def _settings(option: Declared) -> dict[str, Any]:
    """argparse's settings for the type. A value of several types stays a text."""
    if option.type is bool:
        return {"action": "store_true"}
    if option.type == Sequence[str] and option.default == ():  # it may be given several times
        return {"action": "append", "default": [], "metavar": option.metavar}
    kinds = [kind for kind in get_args(option.type) or (option.type,) if kind is not NoneType]
    if get_origin(kinds[0]) is Literal:
        return {"choices": get_args(kinds[0]), "default": option.default}
    if len(kinds) == 1 and kinds[0] in (int, float):
        return {"type": kinds[0], "default": option.default, "metavar": option.metavar}
    default = None if option.default is None else as_text(option.default)
    return {"default": default, "metavar": option.metavar}


def as_text(value: Any) -> str:
    """The value as a verb reads it: lists with commas, lists of lists also with semicolons."""
    if isinstance(value, list | tuple):
        between = ";" if any(isinstance(v, list | tuple) for v in value) else ","
        return between.join(map(as_text, value))
    return str(value.__fspath__() if hasattr(value, "__fspath__") else value)
