"""How a run starts, or is refused: folders, models, finished runs."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import rlzoo
from helpers.runs import StopAt, untimed
from rlzoo.cli import main
from rlzoo.errors import RunError
from rlzoo.runs.metrics import is_evaluation
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


def weights(folder):
    return load_file(next((folder / "model").glob("*.safetensors")))


def test_a_finished_run_goes_on_as_if_it_had_not_ended(zoo, words, tmp_path):
    words = [*words, "actor.lr=1e-2", "eval.every=0", "kl.coef=0.1"]
    long, short = tmp_path / "long", tmp_path / "short"
    rlzoo.run("ppo_gae", [*words, "train.steps=4", f"run.dir={long}"], zoo=zoo)
    rlzoo.run("ppo_gae", [*words, "train.steps=2", f"run.dir={short}"], zoo=zoo)
    shown = StopAt(None)
    more = rlzoo.resume(short, steps=4, zoo=zoo, display=shown)
    assert "changed after step 2: train.steps: 2 -> 4" in shown.notes
    assert (more.recipe["train"]["steps"], more.summary["steps"]) == (4, 4)
    steps = [[x for x in untimed(f) if not is_evaluation(x)] for f in (long, short)]
    assert len(steps[0]) == 4
    assert steps[0] == steps[1]
    a, b = weights(long), weights(short)
    assert all(torch.equal(a[k], b[k]) for k in b)
    assert [p["from_step"] for p in json.loads((short / "provenance.json").read_text())] == [0, 2]


def test_a_run_cut_short_goes_on_to_another_end(zoo, words, tmp_path):
    words = [*words, "train.steps=3", f"run.dir={tmp_path / 'a'}", "checkpoint.every=1"]
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("grpo", [*words, "actor.lr_schedule=linear"], zoo=zoo, display=StopAt(3))
    with pytest.raises(RunError, match="has already taken 2 steps"):
        resume(tmp_path / "a", steps=2, zoo=zoo)
    with pytest.warns(UserWarning, match=r"actor.lr_schedule: depends on train.steps"):
        assert resume(tmp_path / "a", steps=5, zoo=zoo).summary["steps"] == 5


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("train.steps=1", "already taken 1 step"),
        ("train.steps=x", "train.steps: must be an integer"),
        ("train.step=3", "did you mean 'train.steps'"),
        ("actor.lr=1", "only train.steps=N may grow"),
        ("b", "accepts only one RUN"),
    ],
)
def test_what_a_finished_run_cannot_go_on_with(words, tmp_path, monkeypatch, capfd, asked, said):
    monkeypatch.chdir(tmp_path)
    if not Path("runs/a").exists():
        assert main(["run", "grpo", *words, "train.steps=1", "run.dir=runs/a"]) == 0
    before = contents(tmp_path)
    capfd.readouterr()
    assert main(["resume", "runs/a", asked]) == 2
    assert said in capfd.readouterr().err
    assert contents(tmp_path) == before


@pytest.mark.parametrize("path", ["nowhere", "empty"])
def test_a_model_folder_that_is_none(zoo, words, tmp_path, path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(rlzoo.RlzooError, match="model.path.*: .* is not a model"):
        rlzoo.run("grpo", [*words, f"model.path={tmp_path / path}", f"run.dir={tmp_path / 'a'}"],
                  zoo=zoo)  # fmt: skip
