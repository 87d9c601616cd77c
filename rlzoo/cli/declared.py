"""The options of a verb, as declared by the Python function of the same name.

A function's signature has each option's name, type and default. A block of its docstring has one
line of help per option, with a placeholder if the option takes a value:

    Options:
        threshold X: count the steps to this score; default: halfway to the best
        details: show every pair

`Verb.function` names the function. A verb's `add_arguments` may add some of these options itself,
with settings that only argparse has; these stay unchanged.
"""

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import getdoc, signature
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin


class Declared(NamedTuple):
    """An option: its type and default in Python, and its help."""

    name: str
    type: Any
    default: Any
    metavar: str | None
    help: str

    @property
    def again(self) -> bool:
        """Whether it may be given several times: `by: Sequence[str] = ()`."""
        return self.type == Sequence[str] and self.default == ()


def declared(function: Callable[..., Any]) -> Iterator[Declared]:
    """The options in the order of the docstring's block; raises KeyError at one that the signature
    does not have."""
    _, _, block = (getdoc(function) or "").partition("\nOptions:\n")
    parameters = signature(function).parameters
    for text in re.split(r"\n {4}(?! )", "\n" + block.partition("\n\n")[0])[1:]:
        head, _, help = " ".join(text.split()).partition(": ")
        name, _, metavar = head.partition(" ")
        p = parameters[name]
        yield Declared(name, p.annotation, p.default, metavar or None, help)


def add_declared(parser: argparse.ArgumentParser, function: Callable[..., Any]) -> None:
    """Add the options that the parser does not have yet."""
    has = {action.dest for action in parser._actions}
    for option in declared(function):
        if option.name not in has:
            flag = "--" + option.name.replace("_", "-")
            parser.add_argument(flag, help=option.help.replace("%", "%%"), **_settings(option))


def _settings(option: Declared) -> dict[str, Any]:
    """argparse's settings for the type. A value of several types stays a text."""
    if option.type is bool:
        return {"action": "store_true"}
    if option.again:
        return {"action": "append", "default": [], "metavar": option.metavar}
    kinds = [kind for kind in get_args(option.type) or (option.type,) if kind is not NoneType]
    if get_origin(kinds[0]) is Literal:
        return {"choices": get_args(kinds[0]), "default": option.default}
    if len(kinds) == 1 and kinds[0] in (int, float):
        return {"type": kinds[0], "default": option.default, "metavar": option.metavar}
    default = None if option.default is None else as_text(option.default)
    return {"default": default, "metavar": option.metavar}


def as_text(value: Any) -> str:
    """The value as on a command line: lists with commas, lists of lists also with semicolons."""
    if isinstance(value, list | tuple):
        between = ";" if any(isinstance(v, list | tuple) for v in value) else ","
        return between.join(map(as_text, value))
    return str(value.__fspath__() if hasattr(value, "__fspath__") else value)


def given(function: Callable[..., Any], values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """(name, value) of each option of a call, whose values `values` has among others."""
    return [
        (option.name, value)
        for option in declared(function)
        for value in (values[option.name] if option.again else [values[option.name]])
    ]
