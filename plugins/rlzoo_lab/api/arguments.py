"""A verb's arguments, made from a call in Python instead of a command line; settings as words."""

import argparse
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from rlzoo.cli import described, named, parser_of, split
from rlzoo.errors import UsageError, nearest
from rlzoo_lab.data.words import quoted
from rlzoo_lab.view.declared import as_text, declared

ODD = frozenset(",:[]{}#&*!|>%@`'\"\\")  # what YAML gives a meaning
Overrides = str | Iterable[str] | Mapping[str, Any]


def given(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call, whose values `values` has among others."""
    return {option.name: values[option.name] for option in declared(function)}


def arguments_of(name: str, words: Sequence[str], options: Mapping[str, Any]) -> argparse.Namespace:
    """The arguments of a verb that Python calls, as `parse` makes them of a command line. None and
    False leave an option out. Raises UsageError."""
    name, words = split([name, *words])
    parser, module = parser_of(name), described(name).module
    is_open = bool(module) and hasattr(import_module(module), "read")
    arguments, flags = defaults(parser), []
    own = {a.dest: a for a in parser._actions if a.option_strings and a.dest != "help"}
    for option, value in options.items():
        if value is None or value is False:
            continue
        if option in own:
            set_option(parser, arguments, own[option], value)
        elif is_open:
            flags.append((option, as_text(value)))
        elif parser.takes_keys and not nearest(option, own):
            words.append(f"{option}={as_text(value)}")
        else:
            raise UsageError(f"unrecognized arguments: --{option}{nearest(option, own)}")
    if is_open:
        arguments.words, arguments.flags = words, flags
    else:
        place(parser, arguments, words)
    return named(arguments) if is_open or parser.takes_keys else arguments


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


def as_words(overrides: Overrides | None, swept: bool = False) -> list[str]:
    """Converts "lam=0.9 seed=1" and {"lam": 0.9, "seed": 1} to ["lam=0.9", "seed=1"].

    swept: a list as a value means several rows, `lam=0,1`; otherwise one value, `betas=[0.9,0.99]`.
    Raises UsageError for anything else.
    """
    if overrides is None:
        return []
    if isinstance(overrides, str):
        return shlex.split(overrides)
    if isinstance(overrides, Mapping):
        return [f"{key}={_value(value, swept)}" for key, value in _leaves(overrides)]
    words = list(overrides) if isinstance(overrides, Iterable) else [overrides]
    for word in words:
        if not isinstance(word, str):
            raise UsageError(
                f"settings must be {{'seed': 1}}, 'seed=1' or a list of those. Got {word!r}"
            )
    return words


def _leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _value(value: Any, swept: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple | range):
        inside = ",".join(_value(part, False) for part in value)
        return inside if swept else f"[{inside}]"
    text = str(value)
    # A text is one value, whatever it holds; in a sweep "0,0.5" is two rows, as on a command line.
    odd = not text or any(c in ODD or c.isspace() for c in text)
    return quoted(text) if odd and not swept else text
