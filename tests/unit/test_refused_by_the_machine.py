"""A full disk, a folder that may not be written, a reader that has gone: lines, not tracebacks."""

import errno
import os
import sys
from copy import copy

import pytest
from safetensors import SafetensorError

import rlzoo
from rlzoo.cli import main
from rlzoo.errors import Unfinished, of_the_machine
from rlzoo_lab.data.staged import staged

FULL = OSError(errno.ENOSPC, "No space left on device")
READ_ONLY = OSError(errno.EROFS, "Read-only file system", "somewhere/metrics.jsonl")
TENSORS = SafetensorError("I/O error: No space left on device (os error 28)")


def refuses(error):
    def function(*arguments, **options):
        raise error

    return function


@pytest.mark.parametrize(
    ("place", "error", "said"),
    [
        ("rlzoo.runs.folder.RunFolder.append", FULL, "{dir}: no space left on device"),
        ("rlzoo.train.checkpoint.write_tensors", TENSORS, "{dir}: no space left on device"),
        ("rlzoo.train.loop.save_model", TENSORS, "{dir}: no space left on device"),
        ("rlzoo.train.loop.write_samples", READ_ONLY, "somewhere/metrics.jsonl: Read-only file"),
    ],
)
def test_a_run_ends_with_a_line_that_says_how_to_go_on(
    place, error, said, words, zoo, tmp_path, monkeypatch
):
    monkeypatch.setattr(place, refuses(error))
    path = tmp_path / "run"
    with pytest.raises(Unfinished) as caught:
        rlzoo.run("grpo", [*words, f"run.dir={path}", "train.steps=1"], zoo=zoo)
    assert str(caught.value).startswith(said.format(dir=path))
    assert str(caught.value).endswith(f"`rlzoo resume {path}` continues the run")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FULL, "rlzoo: no space left on device"),
        (READ_ONLY, "rlzoo: somewhere/metrics.jsonl: Read-only file system"),
        (PermissionError(13, "Permission denied", "x"), "rlzoo: x: Permission denied"),
        (TENSORS, "rlzoo: no space left on device"),
        (TimeoutError(), "rlzoo: TimeoutError"),
    ],
)
def test_every_verb_says_it_in_one_line(error, said, monkeypatch, capsys):
    monkeypatch.setattr("rlzoo.cli.recipes.run", refuses(error))
    assert main(["recipes"]) == 1
    assert capsys.readouterr().err == f"{said}\n"


@pytest.mark.parametrize("error", [FULL, TENSORS, MemoryError()])
def test_a_folder_that_could_not_be_written_is_named(error, tmp_path):
    with pytest.raises(type(error)) as caught, staged(tmp_path / "out", "--out"):
        raise copy(error)
    assert of_the_machine(caught.value).startswith(f"{tmp_path / 'out'}: ")
    assert list(tmp_path.iterdir()) == []


def test_a_bug_keeps_its_traceback(monkeypatch):
    assert of_the_machine(ValueError("x")) is None
    monkeypatch.setattr("rlzoo.cli.recipes.run", refuses(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["recipes"])


@pytest.mark.parametrize(("argv", "status"), [(["recipes"], 0), (["recipes", "--json"], 1)])
def test_a_reader_that_has_gone_ends_it_in_silence(argv, status):
    """`rlzoo recipes | true`: what is shown goes on unheard, as a run's display; a document that
    could not be written is a failure."""
    reading, writing = os.pipe()
    told, telling = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.dup2(writing, 1)
        os.dup2(telling, 2)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
        try:
            left = main(argv)
        except SystemExit as rich:
            left = rich.code
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(left)
    os.close(reading)
    os.close(writing)
    os.close(telling)
    with open(told) as said:
        assert said.read() == ""
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status
