"""A function's signature and docstring as options of a command line."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from rlzoo.cli.declared import add_declared, given


def made(
    *runs: str,
    by: Sequence[str] = (),
    at: float | None = None,
    count: int = 3,
    sizes: Sequence[int] | None = (4, 16),
    brief: bool = False,
    kind: Literal["a", "b"] | None = None,
    in_file: str | Path | None = None,
    hidden: bool = False,
) -> None:
    """A verb.

    runs: what it reads. hidden: of Python only.

    Options:
        by KEY: a column for each
        at X: a number, 100 % or less; of
            two lines
        count N: how many
        sizes: several
        brief: less
        kind: one of two
        in_file FILE: a file

    Raises nothing: here.
    """


def parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=float, help="its own")
    add_declared(parser, made)
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


def test_the_help_is_the_docstrings_block():
    helps = {a.dest: (a.metavar, a.help) for a in parser()._actions}
    assert helps["at"] == ("X", "a number, 100 %% or less; of two lines")
    assert helps["count"] == (None, "its own"), "what the verb adds itself stays"
    assert helps["in_file"] == ("FILE", "a file")
    assert "100 % or less" in parser().format_help()


def test_a_call_gives_its_options_once_each_and_repeated_ones_one_by_one():
    values = {"runs": (), "by": ("k", "l"), "at": None, "count": 3, "sizes": (1,), "brief": True,
              "kind": None, "in_file": None, "hidden": True}  # fmt: skip
    assert given(made, values) == [("by", "k"), ("by", "l"), ("at", None), ("count", 3),
                                   ("sizes", (1,)), ("brief", True), ("kind", None),
                                   ("in_file", None)]  # fmt: skip
