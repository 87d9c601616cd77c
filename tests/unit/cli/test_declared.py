"""A function's signature as options of a command line, and its call as a verb's arguments."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import pytest

from rlzoo.errors import UsageError
from rlzoo_lab.api.arguments import defaults, given, place, set_option
from rlzoo_lab.view.declared import add_declared


def made(
    *runs: str,
    by: Annotated[Sequence[str], "KEY", "a column for each"] = (),
    at: Annotated[float | None, "X", "a number, 100 % or less"] = None,
    count: Annotated[int, "N", "how many"] = 3,
    sizes: Annotated[Sequence[int] | None, "several"] = (4, 16),
    brief: Annotated[bool, "less"] = False,
    kind: Annotated[Literal["a", "b"] | None, "one of two"] = None,
    in_file: Annotated[str | Path | None, "FILE", "a file"] = None,
    hidden: bool = False,
) -> None:
    """A verb. runs: what it reads. hidden: of Python only."""


def parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=float, help="its own")
    add_declared(parser, f"{__name__}:made")
    return parser


def test_types_and_defaults_are_the_signatures():
    none = parser().parse_args([])
    assert vars(none) == {"by": [], "at": None, "count": None, "sizes": "4,16", "brief": False,
                          "kind": None, "in_file": None}  # fmt: skip
    line = "--by k --by l --at .5 --sizes 1,2 --brief --kind b --in-file x --count 1.5"
    some = parser().parse_args(line.split())
    assert vars(some) == {"by": ["k", "l"], "at": 0.5, "count": 1.5, "sizes": "1,2", "brief": True,
                          "kind": "b", "in_file": "x"}  # fmt: skip


@pytest.mark.parametrize("line", ["--at x", "--kind c", "--hidden", "--brief 1"])
def test_what_does_not_fit_is_refused(line):
    with pytest.raises(SystemExit):
        parser().parse_args(line.split())


def test_the_help_is_the_annotations():
    helps = {a.dest: (a.metavar, a.help) for a in parser()._actions}
    assert helps["at"] == ("X", "a number, 100 %% or less")
    assert helps["sizes"] == (None, "several")
    assert helps["count"] == (None, "its own"), "what the verb adds itself stays"
    assert "100 % or less" in parser().format_help()


def called(**options):
    arguments = defaults(parser())
    actions = {a.dest: a for a in parser()._actions}
    for name, value in options.items():
        set_option(parser(), arguments, actions[name], value)
    return arguments


def test_a_call_and_a_command_line_give_the_same_arguments():
    values = {"runs": (), "by": ("k", "l"), "at": 0.5, "count": 1.5, "sizes": [1, 2],
              "brief": True, "kind": "b", "in_file": Path("-x"), "hidden": True}  # fmt: skip
    options = given(made, values)
    assert list(options) == [n for n in values if n not in ("runs", "hidden")]
    line = "--by k --by l --at .5 --sizes 1,2 --brief --kind b --in-file=-x --count 1.5"
    assert called(**options) == parser().parse_args(line.split())
    assert called() == parser().parse_args([])
    assert called(by="key").by == ["key"]


@pytest.mark.parametrize(
    ("name", "value"), [("at", "x"), ("at", True), ("kind", "c"), ("brief", 1), ("count", [1, 2])]
)
def test_a_value_that_does_not_fit_is_an_error_that_names_the_option(name, value):
    with pytest.raises(UsageError, match=f"^{name}: "):
        called(**{name: value})


@pytest.mark.parametrize(
    ("shape", "words", "found"),
    [
        ([None, None], "a b", ["a", "b"]),
        ([None, "?"], "a", ["a", None]),
        (["?", "*"], "a b c", ["a", ["b", "c"]]),
        (["?", None], "a", [None, "a"]),
        (["+", None], "a b c", [["a", "b"], "c"]),
        (["*"], "", [[]]),
        ([None], "a b", None),
        (["+"], "", None),
    ],
)
def test_words_go_to_positionals_as_on_a_command_line(shape, words, found):
    parser = argparse.ArgumentParser(exit_on_error=False)
    for i, nargs in enumerate(shape):
        parser.add_argument(f"p{i}", nargs=nargs, metavar=f"P{i}")
    arguments = defaults(parser)
    if found is None:
        with pytest.raises(UsageError):
            place(parser, arguments, words.split())
        return
    place(parser, arguments, words.split())
    assert list(vars(arguments).values()) == found
    typed = vars(parser.parse_args(words.split()))
    assert {k: v or None for k, v in typed.items()} == {
        k: v or None for k, v in vars(arguments).items()
    }
