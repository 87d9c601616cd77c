"""The only checkpoint stays until its successor is there; one writer; Ctrl-C loses no step."""

import os
import re
import shutil
import signal
import threading

import pytest

import rlzoo
from helpers.forks import finished
from helpers.runs import StopAt, lines, untimed
from rlzoo.cli import main
from rlzoo.errors import RunError, Stopped, Unfinished
from rlzoo.runs.folder import saved_steps
from rlzoo.runs.lock import locked
from rlzoo.train import checkpoint
from rlzoo.train.interrupt import DEFAULT, TOGETHER, asked_to_stop
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
        with pytest.raises(RunError, match="another process is using it .process"):
            resume(place, zoo=zoo)
        with pytest.raises(RunError, match="another process is using it"):
            rlzoo.run("ppo_gae", [*words, f"run.dir={place}", "run.overwrite=true"], zoo=zoo)
    assert untimed(place) == before
    resume(place, zoo=zoo)
    assert not (place / ".lock").exists()


def test_a_manifest_that_vouches_for_nothing_is_damage(tmp_path):
    (tmp_path / "actor.safetensors").touch()
    for text in ("7", "{}"):
        (tmp_path / "manifest.json").write_text(text)
        assert checkpoint.damage(tmp_path)
    checkpoint.write_manifest(tmp_path)
    assert not checkpoint.damage(tmp_path)
    assert "critic.safetensors" in checkpoint.damage(tmp_path, ["critic.safetensors"])


class AskAt(StopAt):
    """A display under which somebody sends a signal, of Ctrl-C, at a step; `times` times."""

    def __init__(self, at, times=1, number=signal.SIGINT, and_from_a_thread=False):
        super().__init__(at)
        self.times, self.number, self.and_from_a_thread = times, number, and_from_a_thread

    def step(self, line, progress):
        if line["step"] == self.at:
            for _ in range(self.times):
                if self.and_from_a_thread:
                    again = os.getpid(), self.number
                    threading.Timer(TOGETHER / 4, os.kill, again).start()
                os.kill(os.getpid(), self.number)


def test_control_c_loses_no_step_and_says_how_to_go_on(zoo, words, tmp_path):
    words = [*words, "checkpoint.every=0"]
    rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'whole'}"], zoo=zoo)
    place = tmp_path / "a run"
    with pytest.raises(KeyboardInterrupt, match="stopped after step 2") as stopped:
        rlzoo.run("ppo_gae", [*words, f"run.dir={place}"], zoo=zoo, display=AskAt(2))
    assert stopped.value.__notes__ == [f"`rlzoo resume '{place}'` continues the run"]
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


SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU]


@pytest.mark.parametrize("number", SIGNALS)
def test_other_signals_stop_a_run_as_control_c_does(number, zoo, words, tmp_path):
    """Sent twice, as `timeout` and torchrun do: it is once."""
    words = [*words, "checkpoint.every=0", "eval.every=2"]
    rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'whole'}"], zoo=zoo)
    place = tmp_path / "run"
    shown = AskAt(2, number=number, and_from_a_thread=True)
    with pytest.raises(Stopped, match="stopped after step 2") as stopped:
        rlzoo.run("ppo_gae", [*words, f"run.dir={place}"], zoo=zoo, display=shown)
    assert stopped.value.status == 128 + number
    assert stopped.value.__notes__ == [f"`rlzoo resume {place}` continues the run"]
    assert all(signal.getsignal(n) is former for n, former in DEFAULT.items())
    assert [p.name for p in saved_steps(place / "checkpoints")] == ["step-00000002"]
    assert [line["step"] for line in lines(place)] == [0, 1, 2]  # not waiting for an evaluation
    resume(place, zoo=zoo)
    assert untimed(place) == untimed(tmp_path / "whole")
    assert lines(place, "samples.jsonl") == lines(tmp_path / "whole", "samples.jsonl")


def test_another_signal_does_not_cut_off_the_checkpoint(zoo, words, tmp_path, monkeypatch):
    """Ctrl-C, and SIGTERM while the checkpoint is written."""
    save = checkpoint.write_manifest

    def late(folder):
        os.kill(os.getpid(), signal.SIGTERM)
        save(folder)

    monkeypatch.setattr(checkpoint, "write_manifest", late)
    words = [*words, "checkpoint.every=0", f"run.dir={tmp_path / 'run'}"]
    with pytest.raises(Stopped) as stopped:
        rlzoo.run("ppo_gae", words, zoo=zoo, display=AskAt(2))
    assert stopped.value.status == 128 + signal.SIGINT  # what came first
    assert [p.name for p in saved_steps(tmp_path / "run" / "checkpoints")] == ["step-00000002"]


def test_signals_that_are_somebody_elses_stay_theirs():
    """As `nohup` ignores SIGHUP, and Ray and Slurm's tools handle SIGTERM; also off the main
    thread, where a notebook or a server may train."""
    heard = []
    former = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with asked_to_stop(lambda: None) as asked:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGHUP)
            assert (heard, asked.number) == ([signal.SIGTERM], 0)
            os.kill(os.getpid(), signal.SIGXCPU)
            os.kill(os.getpid(), signal.SIGXCPU)  # one a second, up to the hard limit
            assert asked.number == signal.SIGXCPU
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGXCPU) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, former)
        signal.signal(signal.SIGHUP, ignored)
    found = []

    def aside():
        with asked_to_stop(lambda: None):
            found.extend(signal.getsignal(n) for n in DEFAULT)

    thread = threading.Thread(target=aside)
    thread.start()
    thread.join()
    assert found == list(DEFAULT.values())


def _killed_twice():
    with asked_to_stop(lambda: None):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
    return 0


@pytest.mark.landing
def test_the_second_of_a_kind_ends_at_once():
    assert finished(_killed_twice).returncode == -signal.SIGTERM


def test_the_command_line_prints_what_goes_on(words, tmp_path, monkeypatch, capsys):
    from rlzoo.cli.run import command

    def stopped(*_):
        error = KeyboardInterrupt("stopped after step 2")
        error.add_note("`rlzoo resume x` continues the run")
        raise error

    monkeypatch.setattr(command, "start", stopped)
    assert main(["run", "recipe=ppo_gae", *words, f"run.dir={tmp_path / 'a'}"]) == 130
    assert (
        capsys.readouterr().err
        == "rlzoo: stopped after step 2; `rlzoo resume x` continues the run\n"
    )


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


def test_a_folder_in_the_place_of_a_saved_batch_is_one_line(zoo, words, tmp_path):
    words = [*words, "run.save_batches=2", f"run.dir={tmp_path / 'run'}"]
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", words, zoo=zoo, display=StopAt(2))
    place = tmp_path / "run" / "batches" / "step-00000003.safetensors"
    place.mkdir()
    with pytest.raises(Unfinished, match=f"^{re.escape(str(place))}: Is a directory; .*resume"):
        resume(tmp_path / "run", zoo=zoo)
