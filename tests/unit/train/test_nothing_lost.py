"""The only checkpoint stays until its successor is there; one writer; Ctrl-C loses no step."""

import os
import shutil
import signal

import pytest

import rlzoo
from helpers.runs import StopAt, lines, untimed
from rlzoo.cli import main
from rlzoo.errors import RunError
from rlzoo.runs.folder import saved_steps
from rlzoo.runs.lock import locked
from rlzoo.train import checkpoint
from rlzoo.train.start import resume

pytestmark = pytest.mark.process  # trainings that are cut off and go on


@pytest.mark.parametrize("more", [["checkpoint.keep=1"], ["checkpoint.every=3"]])
def test_a_checkpoint_is_removed_only_where_another_is_whole(
    zoo, words, tmp_path, monkeypatch, more
):
    removed = []

    def rmtree(path, *rest, **more):
        others = [p for p in saved_steps(path.parent) if p != path]
        if path.name.startswith("step-"):
            removed.append(path.name)
            assert any(not checkpoint.damage(p) for p in others), f"{path.name} was the only one"
        plain(path, *rest, **more)

    plain = shutil.rmtree
    monkeypatch.setattr(checkpoint.shutil, "rmtree", rmtree)
    rlzoo.run("ppo_gae", [*words, *more, f"run.dir={tmp_path / 'run'}"], zoo=zoo)
    kept = saved_steps(tmp_path / "run" / "checkpoints")
    assert [p.name for p in kept] == ["step-00000003"]
    assert removed == (["step-00000001", "step-00000002"] if more[0].endswith("keep=1") else [])


def test_the_newest_kept_checkpoints_are_whole_ones(tmp_path):
    """A damaged one that is newer than where the run went on does not count, nor `step-foo`."""
    for name in ("step-00000001", "step-00000002", "step-00000003", "step-00000009", "step-foo"):
        (tmp_path / name).mkdir()
    (tmp_path / ".step-00000004.partial").mkdir()
    checkpoint.prune(tmp_path, 3, 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000003", "step-foo"]


def test_one_process_at_a_time_goes_on_with_a_run(zoo, words, tmp_path):
    place = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", [*words, f"run.dir={place}"], zoo=zoo, display=StopAt(2))
    before = untimed(place)
    with locked(place):
        with pytest.raises(RunError, match="another process is at work there .process"):
            resume(place, zoo=zoo)
        with pytest.raises(RunError, match="another process is at work there"):
            rlzoo.run("ppo_gae", [*words, f"run.dir={place}", "run.overwrite=true"], zoo=zoo)
    assert untimed(place) == before
    resume(place, zoo=zoo)
    assert not (place / ".lock").exists()


def test_a_manifest_that_is_no_mapping_is_damage(tmp_path):
    (tmp_path / "manifest.json").write_text("7")
    assert checkpoint.damage(tmp_path) == "manifest.json holds no mapping"


class AskAt(StopAt):
    """A display under which somebody presses Ctrl-C at a step; `times` times."""

    def __init__(self, at, times=1):
        super().__init__(at)
        self.times = times

    def step(self, line, progress):
        if line["step"] == self.at:
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)


def test_control_c_loses_no_step_and_says_how_to_go_on(zoo, words, tmp_path):
    words = [*words, "checkpoint.every=0"]
    rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'whole'}"], zoo=zoo)
    place = tmp_path / "a run"
    with pytest.raises(KeyboardInterrupt, match="stopped after step 2") as stopped:
        rlzoo.run("ppo_gae", [*words, f"run.dir={place}"], zoo=zoo, display=AskAt(2))
    assert stopped.value.__notes__ == [f"`rlzoo resume '{place}'` goes on"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert [p.name for p in saved_steps(place / "checkpoints")] == ["step-00000002"]
    resume(place, zoo=zoo, display=(shown := StopAt(99)))
    assert "resumed at step 2" in shown.notes
    assert untimed(place) == untimed(tmp_path / "whole")
    assert lines(place, "samples.jsonl") == lines(tmp_path / "whole", "samples.jsonl")
    # the second stops at once
    place = tmp_path / "b"
    with pytest.raises(KeyboardInterrupt) as stopped:
        rlzoo.run("ppo_gae", [*words, f"run.dir={place}"], zoo=zoo, display=AskAt(2, times=2))
    assert not str(stopped.value)
    assert not saved_steps(place / "checkpoints")


def test_the_command_line_prints_what_goes_on(words, tmp_path, monkeypatch, capsys):
    from rlzoo.cli.run import command

    def stopped(*_):
        error = KeyboardInterrupt("stopped after step 2")
        error.add_note("`rlzoo resume x` goes on")
        raise error

    monkeypatch.setattr(command, "start", stopped)
    assert main(["run", "recipe=ppo_gae", *words, f"run.dir={tmp_path / 'a'}"]) == 1
    assert capsys.readouterr().err == "rlzoo: stopped after step 2; `rlzoo resume x` goes on\n"


def test_an_answer_with_a_line_separator_is_not_lost(zoo, words, tmp_path):
    data = tmp_path / "odd.jsonl"
    rows = [f'{{"prompt": "{n}:", "answer": "1\u2028x"}}' for n in range(9)]
    data.write_text("\n".join(rows), encoding="utf-8")
    place = tmp_path / "run"
    words = [*words, "task=dataset", f"task.path={data}", f"run.dir={place}"]
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", words, zoo=zoo, display=StopAt(3))
    whole = (place / "samples.jsonl").read_text(encoding="utf-8").split("\n")
    resume(place, zoo=zoo)
    again = (place / "samples.jsonl").read_text(encoding="utf-8").split("\n")
    assert again == whole
    assert len(whole) > 9
