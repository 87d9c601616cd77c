"""How a run starts, or is refused: folders, models, finished runs."""

import pytest

import rlzoo
from helpers.runs import StopAt
from rlzoo.cli import main
from rlzoo.errors import RunError
from rlzoo.train.start import resume


def contents(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_an_existing_run_folder_is_refused_unless_told(zoo, words, tmp_path):
    words = [*words, f"run.dir={tmp_path / 'a'}", "train.steps=1"]
    rlzoo.run("grpo", words, zoo=zoo)
    with pytest.raises(RunError, match="already exists; use `rlzoo resume"):
        rlzoo.run("grpo", words, zoo=zoo)
    rlzoo.run("grpo", [*words, "run.overwrite=true"], zoo=zoo)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "precious").touch()
    with pytest.raises(RunError, match="not a run folder"):
        rlzoo.run("grpo", [*words, f"run.dir={tmp_path / 'b'}", "run.overwrite=true"], zoo=zoo)
    assert (tmp_path / "b" / "precious").exists()


def test_resuming_a_finished_run_says_so_and_of_none_is_refused(zoo, words, tmp_path):
    run = rlzoo.run("grpo", [*words, "train.steps=1", f"run.dir={tmp_path / 'a'}"], zoo=zoo)
    shown = StopAt(None)
    before = contents(run.path)
    assert resume(run.path, zoo=zoo, display=shown) == (run.path, run.summary)
    assert [note for note in shown.notes if "already finished" in note]
    assert contents(run.path) == before
    assert main(["resume", str(run.path)]) == 0
    with pytest.raises(RunError, match=r"is not a run folder.*runs there: .*/a"):
        resume(tmp_path / "b", zoo=zoo)


@pytest.mark.parametrize("path", ["nowhere", "empty"])
def test_a_model_folder_that_is_none(zoo, words, tmp_path, path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(rlzoo.RlzooError, match="model.path.*: .* is not a model"):
        rlzoo.run("grpo", [*words, f"model.path={tmp_path / path}", f"run.dir={tmp_path / 'a'}"],
                  zoo=zoo)  # fmt: skip
