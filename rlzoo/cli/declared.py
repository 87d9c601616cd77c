"""The options of a verb, as declared by the signature of the Python function of the same name, and
a verb's arguments made from a call of it.

A parameter is an option if its annotation has a help text, preceded by a placeholder if one is
needed:

    threshold: Annotated[float | None, "X", "count the steps to this score"] = None,
    details: Annotated[bool, "show every pair"] = False,

`Verb.function` names the function. A verb's `add_arguments` may add some of these options itself,
with settings that only argparse has; these stay unchanged.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from rlzoo.errors import UsageError


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


def given(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call, whose values `values` has among others."""
    return {option.name: values[option.name] for option in declared(function)}


def defaults(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments of a verb that is given none."""
    own = {a.dest: a.default for a in parser._actions if a.default is not argparse.SUPPRESS}
    return argparse.Namespace(**{**parser._defaults, **own})


def place(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, words: Sequence[str]
) -> None:
    """Give the words to the positionals, in order: one to each that needs one, all others to the
    first that takes more. Raises UsageError if there are too few or too many."""
    rest = list(words)
    positional = parser._get_positional_actions()
    for i, action in enumerate(positional):
        spare = max(0, len(rest) - sum(a.nargs in (None, "+") for a in positional[i + 1 :]))
        several = action.nargs in ("*", "+")
        n = spare if several else min(1, spare)
        mine, rest = rest[:n], rest[n:]
        if action.nargs in (None, "+") and not mine:
            raise UsageError(f"the following arguments are required: {action.metavar}")
        if mine or several:
            values = [_converted(parser, action, word) for word in mine]
            setattr(arguments, action.dest, values if several else values[0])
    if rest:
        raise UsageError(f"unrecognized arguments: {' '.join(rest)}")


def set_option(
    parser: argparse.ArgumentParser,
    arguments: argparse.Namespace,
    action: argparse.Action,
    value: Any,
) -> None:
    """Set an option to a value of Python; True is an option without a value. Raises UsageError
    if it takes no such value."""
    flag = action.option_strings[-1]
    if value is True:
        if action.nargs not in (0, "?"):
            raise UsageError(f"{action.dest}: needs a value")
        action(parser, arguments, [] if action.nargs == 0 else action.const, flag)
    elif action.nargs == 0:
        raise UsageError(f"{action.dest}: must be True or False. Got {value!r}")
    elif isinstance(action, argparse._AppendAction):
        for one in value if isinstance(value, list | tuple) else [value]:
            action(parser, arguments, _converted(parser, action, one), flag)
    elif action.nargs in ("*", "+"):
        several = value if isinstance(value, list | tuple) else [value]
        action(parser, arguments, [_converted(parser, action, one) for one in several], flag)
    else:
        action(parser, arguments, _converted(parser, action, value), flag)


def _converted(parser: argparse.ArgumentParser, action: argparse.Action, value: Any) -> Any:
    """The value in the argument's type; raises UsageError."""
    try:
        found = parser._get_value(action, as_text(value))
        parser._check_value(action, found)
    except argparse.ArgumentError as error:
        raise UsageError(f"{action.dest}: {error.message}") from None
    return found
