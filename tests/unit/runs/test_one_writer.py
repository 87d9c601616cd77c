"""One writer per folder, lines that cost only themselves, and what an overwrite may delete."""

import os
import signal
import warnings
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from helpers.made_up_runs import made_up_run
from rlzoo.errors import RunError, UsageError
from rlzoo.recipe.compose import Recipe
from rlzoo.runs.folder import RunFolder, create_folder
from rlzoo.runs.lock import locked
from rlzoo_lab.data.columns import Columns
from rlzoo_lab.data.record import read_record
from rlzoo_lab.data.staged import staged


def recipe_for(path, overwrite=False):
    config = {"run": {"dir": None if path is None else str(path), "overwrite": overwrite}}
    return Recipe("made_up", OmegaConf.create({**config, "task": {"name": "addition"}}), {})


def begin(path, **options):
    with create_folder(recipe_for(path, **options)) as folder:
        return folder


def forked(work):
    """Its exit status; what it did stays."""
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# ---------------------------------------------------------------- the lock


def test_the_second_writer_is_told_who_the_first_is(tmp_path):
    with (
        locked(tmp_path),
        pytest.raises(RunError, match=rf"is using it \(process {os.getpid()} on .+ since"),
        locked(tmp_path),
    ):
        pass
    with locked(tmp_path):
        assert [p.name for p in tmp_path.iterdir()] == [".lock"]
    assert not list(tmp_path.iterdir())


def test_a_lock_dies_with_its_holder(tmp_path):
    def work():
        with locked(tmp_path):
            os.kill(os.getpid(), signal.SIGKILL)

    assert forked(work) == -signal.SIGKILL
    assert (tmp_path / ".lock").exists()
    with locked(tmp_path):
        pass


def test_a_lock_that_was_removed_locks_nobody_out(tmp_path, monkeypatch):
    """Its holder ends between the opening of the file and the locking of it."""
    import fcntl

    plain, gone = fcntl.flock, []

    def flock(handle, how):
        if not gone:
            gone.append((tmp_path / ".lock").unlink())
        plain(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with locked(tmp_path), pytest.raises(RunError), locked(tmp_path):
        pass
    assert gone


def test_a_holder_that_is_about_to_go_is_waited_for(tmp_path):
    ready, told = os.pipe()

    def work():
        with locked(tmp_path):
            os.write(told, b"!")
            import time

            time.sleep(0.2)

    pid = os.fork()
    if not pid:
        work()
        os._exit(0)
    os.read(ready, 1)
    with locked(tmp_path, patience=10):
        pass
    os.waitpid(pid, 0)


# ---------------------------------------------------------------- new folders


def test_a_run_that_was_killed_before_it_began_leaves_its_place_free(tmp_path):
    place = tmp_path / "run"
    begin(place)
    assert not (place / "metrics.jsonl").read_bytes()
    (place / ".recipe.yaml.partial").write_text("half")
    begin(place)  # nothing is lost
    (place / "recipe.yaml").unlink()
    begin(place)
    (place / "metrics.jsonl").write_text('{"step": 0}\n')
    with pytest.raises(RunError, match="already exists; use `rlzoo resume"):
        begin(place)


def test_two_runs_of_one_second_get_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len({begin(None).path for _ in range(3)}) == 3


def test_overwriting_removes_what_a_run_wrote_and_nothing_else(tmp_path, monkeypatch):
    place = made_up_run(tmp_path / "run", seed=0, after=0.5)
    (place / "checkpoints").mkdir()
    (place / "precious.txt").write_text("mine")
    with pytest.warns(UserWarning, match=r"did not remove precious\.txt"):
        begin(place, overwrite=True)
    assert {p.name for p in place.iterdir()} == {"precious.txt", "recipe.yaml", "metrics.jsonl"}
    # a folder with a recipe of one's own is no run's
    mine = tmp_path / "project"
    mine.mkdir()
    (mine / "recipe.yaml").write_text("# mine\nseed: 1\n")
    with pytest.raises(RunError, match="not a run folder, so it is not overwritten"):
        begin(mine, overwrite=True)
    assert (mine / "recipe.yaml").read_text() == "# mine\nseed: 1\n"
    # nor is the current folder ever
    here = made_up_run(tmp_path / "here", seed=0, after=0.5)
    monkeypatch.chdir(here)
    for path in (".", here, ".."):
        with pytest.raises(RunError, match=r"current folder|not a run folder"):
            begin(path, overwrite=True)
    assert (here / "summary.json").exists()


def test_a_folder_that_was_overwritten_halfway_is_overwritten_again(tmp_path, monkeypatch):
    place = made_up_run(tmp_path / "run", seed=0, after=0.5)
    (place / "checkpoints" / "step-00000001").mkdir(parents=True)
    import shutil

    def killed(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            begin(place, overwrite=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        begin(place, overwrite=True)
    assert not (place / "checkpoints").exists()


# ---------------------------------------------------------------- lines

ODD = "a\u2028b\u2029c\u0085d\x0be"


def test_lines_end_at_newlines_alone(tmp_path):
    folder = RunFolder(tmp_path)
    for step in range(1, 4):
        folder.append("samples.jsonl", {"step": step, "answer": ODD})
    folder.rewind("samples.jsonl", 2)
    assert list(folder.lines("samples.jsonl")) == [{"step": n, "answer": ODD} for n in (1, 2)]


@pytest.mark.parametrize("bad", [b'{"step": 2, "re', b"\0" * 20, b"[2]", b"\xff\xfe", b"[" * 9000,
                                 b'{"step": "2"}'])  # fmt: skip
def test_a_damaged_line_costs_itself_and_a_note(tmp_path, bad):
    good = [b'{"step": %d}' % n for n in range(1, 6)]
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join([*good[:2], bad, *good[2:], b""]))
    folder, troubles = RunFolder(tmp_path), []
    assert [line["step"] for line in folder.lines("metrics.jsonl", troubles)] == [1, 2, 3, 4, 5]
    assert troubles == ["metrics.jsonl: line 3 cannot be read; ignoring 1 of 6 lines"]
    folder.rewind("metrics.jsonl", 4)
    assert [line["step"] for line in folder.lines("metrics.jsonl")] == [1, 2, 3, 4]


def test_the_line_that_a_kill_cut_off_is_forgotten(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"step": 2}\n{"step": 2')
    folder = RunFolder(tmp_path)
    folder.rewind("metrics.jsonl", 2)
    assert (tmp_path / "metrics.jsonl").read_bytes() == b'{"step": 1}\n{"step": 2}\n'
    folder.rewind("metrics.jsonl", -1)
    assert not (tmp_path / "metrics.jsonl").read_bytes()


# ---------------------------------------------------------------- columns

LINES = [
    {"step": 1, "a": 0.1, "n": 1, "text": "x"},
    {"step": 2, "b": 0.5, "n": 2**70, "a": 1e99, "flag": True},
    {"step": 3, "a": float("inf"), "n": 2.5, "list": [1]},
    {"step": 4, "b": float("nan"), "c": None},
]


def test_columns_give_back_the_lines_that_they_were_given():
    columns = Columns(LINES)
    assert list(columns)[:3] == LINES[:3]
    assert str(columns[-1]) == str(columns[3]) == str(LINES[3])  # NaN is not itself
    assert [line["step"] for line in columns[1:3]] == [2, 3]
    assert [list(x) for x in columns.column("a")] == [[1, 2], [0.1, 1e99]]
    assert [list(x) for x in columns.column("b")] == [[2], [0.5]]
    assert [list(x) for x in columns.column("nothing")] == [[], []]
    assert columns.not_finite == (3, ["a"])


def test_columns_keep_what_is_wanted_and_say_what_was_not():
    columns = Columns(LINES, lambda name: name == "b")
    assert columns[1] == {"step": 2, "b": 0.5}
    assert columns.not_finite == (3, ["a"])
    with pytest.raises(KeyError):
        columns.column("a")


def test_columns_are_small():
    import tracemalloc

    tracemalloc.start()
    lines = ({"step": n, **{f"m{i}": float(n) for i in range(20)}} for n in range(5000))
    columns = Columns(lines)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(columns) == 5000
    assert held / 5000 < 8 + 20 * 5  # a dict of them takes 2,000


def test_a_record_is_read_line_by_line(tmp_path):
    path = made_up_run(tmp_path / "run", seed=0, after=0.9)
    record = read_record(path, lambda name: name == "reward/mean")
    assert record.series("reward/mean")[0] == pytest.approx(0.35)
    assert list(record.steps_of("reward/mean")) == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in record.evaluations] == [0, 2, 4, 6]


# ---------------------------------------------------------------- staging


def test_a_staged_folder_is_whole_or_not_there(tmp_path):
    place = tmp_path / "out"

    def cut_off(**options):
        with staged(place, "--out", **options) as aside:
            (aside / "half").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cut_off()
    assert not list(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        cut_off(keep=Path.exists)
    assert not place.exists()
    with staged(place, "--out", keep=Path.exists) as aside:
        assert (aside / "half").exists()
        with pytest.raises(RunError, match="is using it"), staged(place, "--out"):
            pass
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    with pytest.raises(UsageError, match="--out: .* already exists and is not empty"):
        next(staged(place, "--out").gen)


def test_an_overwrite_leaves_what_somebody_put_among_what_a_run_wrote(tmp_path):
    place = made_up_run(tmp_path / "run", seed=0, after=0.5)
    mine = [place / "model" / "notes.txt", place / "checkpoints" / "why.md"]
    written = [place / "model" / "config.json", place / "model" / "model-00001-of-2.safetensors",
               place / "checkpoints" / "step-00000001" / "state.json",
               place / "evaluations" / "step-00000000.safetensors"]  # fmt: skip
    for file in [*mine, *written]:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    with pytest.warns(UserWarning, match=r"checkpoints/why.md, model/notes.txt"):
        begin(place, overwrite=True)
    assert [file for file in [*mine, *written] if file.exists()] == mine
    assert not (place / "evaluations").exists()


def test_whoever_holds_a_lock_is_one_line(tmp_path):
    with locked(tmp_path):
        (tmp_path / ".lock").write_text("process 1\nand more")
        with pytest.raises(RunError) as caught, locked(tmp_path):
            pass
    assert "\n" not in str(caught.value)
