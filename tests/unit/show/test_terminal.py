"""Texts of data and models meet a terminal as something to read."""

import argparse
import io
import json

import pytest
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rlzoo.cli import main
from rlzoo.errors import RlzooError
from rlzoo.show.console import SafeConsole
from rlzoo.tools import verb
from rlzoo.tools.run.live import Panelled

EVIL = "a\x1b]52;c;cm0gLXJm\x07b\x1b[2Jc\x9b31md\u202ee\x00f\rg\ud800"
BAD = [c for c in EVIL if not c.isprintable()]


def shown(*parts, width=60):
    file = io.StringIO()
    console = SafeConsole(file=file, force_terminal=True, width=width, color_system="standard")
    for part in parts:
        console.print(part)
    return file.getvalue()


def test_no_control_character_of_a_text_reaches_the_terminal():
    table = Table(title=Text(EVIL))
    table.add_column(Text(EVIL))
    table.add_row(Text(EVIL), style="bold")
    out = shown(table, Panel(Text(EVIL), title=Text(EVIL)), Text(EVIL, style="red"), EVIL)
    for char in set(BAD) - {"\x1b"}:
        assert char not in out, repr(char)
    assert "\x1b]" not in out  # rich's own are colours: ESC [ ... m
    assert "\x1b[2J" not in out
    assert "\x1b[1m" in out
    assert "a\u241b]52;c;" in out


def test_a_table_keeps_its_width():
    table = Table()
    table.add_row(Text(EVIL), "x")
    lines = shown(table).splitlines()
    plain = Table()
    plain.add_row("a" * len(EVIL), "x")
    assert len(lines) == len(shown(plain).splitlines())


@pytest.mark.parametrize("as_json", [True, False])
def test_what_a_verb_prints(as_json, capsys):
    class Verb:
        @staticmethod
        def run(arguments):
            return verb.Result({"text": EVIL}, lambda _: [EVIL, Text(EVIL)], notes=[EVIL])

    assert verb.perform(Verb, argparse.Namespace(json=as_json)) == 0
    said = capsys.readouterr()
    for char in BAD:
        assert char not in said.out + said.err
    if as_json:
        assert json.loads(said.out) == {"text": EVIL}  # the same text to whoever parses it


def test_an_error_and_a_warning_are_shown_not_obeyed(monkeypatch, capsys):
    def run(arguments):
        raise RlzooError(EVIL)

    monkeypatch.setattr("rlzoo.tools.catalog.recipes.run", run)
    assert main(["recipes"]) == 2
    said = capsys.readouterr().err
    for char in BAD:
        assert char not in said


def test_a_runs_name_is_no_markup():
    """`run.dir='a[/b]'` ended the live panel with an error of rich's."""
    panelled = Panelled(SafeConsole(file=io.StringIO(), force_terminal=True, width=60))
    panelled.title = "ppo_gae -> runs/a[/b]"
    assert "runs/a[/b]" in shown(panelled.__rich__())
