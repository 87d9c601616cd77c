"""Texts of data and models meet a terminal as something to read."""

import argparse
import io
import json
import logging
import shutil
import sys
from contextlib import suppress

import pytest
import torch
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from safetensors.torch import load_file, save_file

from rlzoo.cli import main, verb
from rlzoo.errors import RlzooError
from rlzoo.format.console import SafeConsole
from rlzoo.format.text import say
from rlzoo.lm.weights import reading
from rlzoo_lab.view.display.live import Panelled

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


def test_what_a_library_logs_of_a_model_s_files(model_dir, tmp_path, capsys):
    """An unexpected weight and an unknown type are logged by transformers, with their names."""
    folder = shutil.copytree(model_dir, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {EVIL[:-1]: torch.zeros(1)}, folder / "model.safetensors", {"format": "pt"})
    for words in ([], ["type"]):
        config = json.loads((folder / "config.json").read_text())
        config |= {"model_type": EVIL} if words else {"max_length": EVIL}
        (folder / "config.json").write_text(json.dumps(config))
        heard = logging.StreamHandler(io.StringIO())
        logging.getLogger("transformers").addHandler(heard)
        try:
            main(["eval", f"model.path={folder}", "task=reverse", "eval.samples=2"])
        finally:
            logging.getLogger("transformers").removeHandler(heard)
        told = heard.stream.getvalue() + "".join(capsys.readouterr())
        assert "b\\x1b[2Jc" in told
        assert not [c for c in told if c != "\n" and not c.isprintable()]


@pytest.mark.parametrize("library", ["transformers", "anything"])
def test_what_is_logged_within_the_reading_of_a_file(library, capsys):
    heard = logging.StreamHandler(io.StringIO())
    logger = logging.getLogger(library)
    logger.addHandler(heard)
    try:
        with reading("x"):
            logger.warning("%s \x1b[1mbold\x1b[0m", EVIL)
    finally:
        logger.removeHandler(heard)
    said = heard.stream.getvalue()
    assert "bold" in said
    assert not [c for c in said if c != "\n" and not c.isprintable()]


def test_a_word_that_no_verb_takes_and_a_traceback(capsys):
    for words in (["recipes", f"--{EVIL}"], ["run", f"--{EVIL}\nx"], [EVIL], ["show", f"{EVIL}=1"]):
        with suppress(SystemExit):
            main(words)
        said = capsys.readouterr().err
        assert said.count("\n") <= 2, words  # the usage, and what is wrong
        assert not [c for c in said if c != "\n" and not c.isprintable()], words
    sys.excepthook(ValueError, ValueError(EVIL), None)
    assert "\x1b" not in capsys.readouterr().err


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

    monkeypatch.setattr("rlzoo.cli.recipes.run", run)
    assert main(["recipes"]) == 2
    said = capsys.readouterr().err
    for char in BAD:
        assert char not in said


def test_a_runs_name_is_no_markup():
    """`run.dir='a[/b]'` ended the live panel with an error of rich's."""
    panelled = Panelled(SafeConsole(file=io.StringIO(), force_terminal=True, width=60))
    panelled.title = "ppo_gae -> runs/a[/b]"
    assert "runs/a[/b]" in shown(panelled.__rich__())


def test_a_line_to_a_terminal_is_folded_between_words(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    long = "rlzoo: " + "misspelt " * 12 + "runs/a-very-long-name-that-nobody-may-break-in-two"
    say(long)
    assert capsys.readouterr().err == long + "\n"  # a log has one line
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    say(long)
    lines = capsys.readouterr().err.splitlines()
    assert " ".join(lines) == long
    assert all(len(line) <= 40 for line in lines[:-1])
