"""An option that names a file to write is refused before the verb begins to work."""

import argparse
import errno
import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from helpers.made_up_runs import made_up_run
from rlzoo.cli import VERBS, brought, described, main, parser_of, split
from rlzoo.errors import UsageError
from rlzoo.runs.disk import write_atomically
from rlzoo_lab.view.written import Written, refuse_unwritable

NAMES = {"out", "html", "plot", "plots"}


def options():
    """(verb, option, its action) of every verb's options that name what is written."""
    for verb in [*VERBS, *brought()]:
        parsers = [parser_of(verb)]
        for parser in parsers:
            for action in parser._actions:
                if isinstance(action, argparse._SubParsersAction):
                    parsers += action.choices.values()
                if action.option_strings and (
                    action.dest in NAMES or str(action.metavar) == "FILE"
                ):
                    yield verb, action.option_strings[0], action


def places(root):
    """Where no file can be written: what it is -> the path."""
    (root / "mine").write_text("mine")
    (root / "folder").mkdir()
    (root / "full").mkdir()
    (root / "full" / "x").write_text("x")
    (root / "link").symlink_to("mine")
    (root / "to nothing").symlink_to("nothing")
    (root / "to a folder").symlink_to("folder")
    os.link(root / "mine", root / "second name")
    found = {
        "a link": "link", "a link to nothing": "to nothing", "a link to a folder": "to a folder",
        "a second name": "second name", "a missing folder": "no/such/x.svg",
        "below a file": "mine/x.svg", "a name with a zero byte": "\0", "a long name": "x" * 300,
    }  # fmt: skip
    return {what: root / path for what, path in found.items()} | {
        "a place that cannot be written": "/proc/x.svg"
    }


def test_every_option_that_names_what_is_written_says_so():
    found = {(verb, option): action for verb, option, action in options()}
    assert ("compare", "--plots") in found
    assert ("model sft", "--out") in found
    assert ("model reward", "--out") in found
    loose = [name for name, action in found.items() if not isinstance(action, Written)]
    assert not loose


def test_what_cannot_be_written_is_refused(tmp_path):
    bad = places(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for verb, option, action in options():
        other = {"a file": tmp_path / "mine"} if action.folder else {"folder": tmp_path / "folder"}
        for what, path in (bad | other).items():
            if action.folder and what == "a missing folder":
                continue  # it is made, with those above it
            with pytest.raises(UsageError) as error:
                action(None, argparse.Namespace(), str(path), option)
            assert "\n" not in str(error.value), (verb, option, what)
            assert error.value.key == option
            assert error.value.kind == "not-writable", (verb, option, what)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "mine").read_text() == "mine"


def test_what_can_be_written_is_taken_as_it_was_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.svg").write_text("old")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.svg")
    for verb, option, action in options():
        fine = ["new.svg"]
        fine += ["folder"] if action.folder else ["old.svg", "./old.svg", "pipe.svg", "/dev/stdout"]
        for path in fine[: 1 + 4 * (not action.suffixes)]:
            given = argparse.Namespace()
            action(None, given, path, option)
            assert getattr(given, action.dest) == path, (verb, option)
    assert (tmp_path / "old.svg").read_text() == "old"
    assert {p.name for p in tmp_path.iterdir()} == {"old.svg", "folder", "pipe.svg"}


def test_a_device_is_written_to_and_not_replaced(tmp_path):
    """A device of its own kind, so that a failure harms no /dev."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, b"page")
    assert pipe.is_fifo()
    assert os.read(reader, 9) == b"page"
    os.close(reader)
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "RUN", "--html", "LINK"],
        ["compare", "RUN", "--plots=LINK"],
        ["diagnose", "ppo_gae", "--html", "LINK", "estimator=mc"],
        ["trace", "RUN", "--html", "LINK"],
        ["report", "RUN", "--out", "LINK"],
        ["eval", "RUN", "--out", "LINK"],
        ["model", "sft", "rows.jsonl", "--model", "nano", "--out", "LINK"],
        ["model", "reward", "rows.jsonl", "--model", "nano", "--out", "LINK"],
        ["model", "base", "addition", "--out", "LINK"],
    ],
)
def test_no_verb_begins(words, tmp_path, monkeypatch, capsys):
    (tmp_path / "link.svg").symlink_to("thesis.tex")
    worked = []
    monkeypatch.setattr(import_module(described(split(words)[0]).module), "run", worked.append)
    paths = {"RUN": tmp_path, "LINK": tmp_path / "link.svg"}
    for word, path in paths.items():
        words = [w.replace(word, str(path)) for w in words]
    with suppress(SystemExit):
        assert main(words) == 2
    assert not worked
    said = capsys.readouterr().err
    assert said.startswith("rlzoo: --")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["trace", "--rewards", "0,0,1", "--values", "0.3,0.4,0.6", "--html", "OUT"], "OUT"),
        (["eval", "model.path=MODEL", "task=reverse", "eval.samples=4", "--out", "OUT"], "OUT"),
        (["diagnose", "ppo_gae", "estimator=mc", "--batches", "4", "--html", "OUT"], "OUT"),
        (["compare", "RUN", "--html", "OUT"], "OUT"),
        (["compare", "RUN", "--plots", "DIR"], "DIR/held-out.svg"),
        (["report", "RUN", "--out", "OUT"], "OUT"),
        (["play", "--out", "OUT"], "OUT"),
        (["new", "estimator", "brand_new", "--dir", "DIR"], None),
    ],
    ids=lambda words: " ".join([words[0], words[-2]]) if isinstance(words, list) else "",
)
def test_a_full_disk_leaves_the_former_file(words, place, tmp_path, model_dir, monkeypatch, capsys):
    made_up_run(tmp_path / "run", seed=0, after=0.5)
    (tmp_path / "dir").mkdir()
    paths = {"RUN": tmp_path / "run", "OUT": tmp_path / "a.svg", "DIR": tmp_path / "dir",
             "MODEL": model_dir}  # fmt: skip
    for word, path in paths.items():
        words = [w.replace(word, str(path)) for w in words]
        place = place and place.replace(word, str(path))
    if place:
        Path(place).write_text("the former")
    before = sorted(tmp_path.rglob("*"))

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert main(words) != 0
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert str(place or tmp_path / "dir") in said
    assert sorted(tmp_path.rglob("*")) == before
    assert not place or Path(place).read_text() == "the former"


def test_a_private_file_stays_private_and_a_folder_that_cannot_be_written_is_refused(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text("former")
    file.chmod(0o600)
    write_atomically(file, b"new")
    assert file.read_bytes() == b"new"
    assert file.stat().st_mode & 0o777 == 0o600
    if os.access("/proc/self/comm", os.W_OK):  # a file in a folder that takes no other
        with pytest.raises(UsageError):
            refuse_unwritable("/proc/self/comm", "--out")
