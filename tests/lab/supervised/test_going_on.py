"""`sft` and `model reward`, cut off: the same command goes on and ends with the same model."""

import argparse
import json
import os
import signal
from types import SimpleNamespace

import pytest

from rlzoo.errors import RunError, UsageError
from rlzoo.runs.lock import locked
from rlzoo_lab.supervised import fit, reward, sft


def arguments(verb, tmp_path, model, *more):
    rows = [{"prompt": f"{c}:", "response": "ok", "chosen": "ok", "rejected": "no"}
            for c in "abcdefghijklmnopqrstuvwx"]  # fmt: skip
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    words = [data, "--model", model, "--batch", "8",
             "--lr", "0.02", "--epochs", "2", "--device", "cpu", *more]  # fmt: skip
    return parser.parse_args([str(word) for word in words])


def files(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.mark.parametrize("verb", [sft, reward])
@pytest.mark.process
def test_a_training_that_was_cut_off_goes_on(
    verb, tmp_path, model_dir, monkeypatch, capsys, golden
):
    def train(out, *more):
        asked = arguments(verb, tmp_path, model_dir, "--out", tmp_path / out, *more)
        return verb.run(asked).document

    report = train("whole")
    collate, calls = fit.fit, []

    def interrupted(model, rows, collate, loss, *rest):
        def pressed(*given):
            calls.append(1)
            if len(calls) == 3:
                os.kill(os.getpid(), signal.SIGINT)
            return loss(*given)

        return plain(model, rows, collate, pressed, *rest)

    plain = collate
    monkeypatch.setattr(fit, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt, match="stopped after step 3") as stopped:
        train("out")
    assert stopped.value.__notes__ == ["repeat the command to resume"]
    assert not (tmp_path / "out").exists()
    aside = tmp_path / ".out.partial"
    assert sorted(p.name for p in aside.iterdir()) == ["checkpoints", "command.json"]
    with golden.refuses(UsageError):
        train("out", "--lr", "0.03")
    with locked(tmp_path, tmp_path / ".out.lock"), golden.refuses(RunError):
        train("out")
    assert train("out") == report
    assert "resuming from checkpoint of step 3" in capsys.readouterr().err
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    assert not aside.exists()


@pytest.mark.parametrize(("small", "steps"), [(fit.SMALL, [1, 2, 3, 4, 5, 6]), (0, [1, 4])])
def test_checkpoints_of_a_large_model_take_a_tenth_of_its_time(
    small, steps, tmp_path, model_dir, monkeypatch
):
    saved, seconds, keep, batch_of = [], [0], fit._keep, sft.batch_of

    def slowly(checkpoints, step):
        saved.append(step)
        seconds[0] += 2  # then the next one is due after 18
        keep(checkpoints, step)

    def collated(*given):
        seconds[0] += 5
        return batch_of(*given)

    monkeypatch.setattr(fit, "_keep", slowly)
    monkeypatch.setattr(sft, "batch_of", collated)
    monkeypatch.setattr(fit, "SMALL", small)
    monkeypatch.setattr(fit, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    sft.run(arguments(sft, tmp_path, model_dir, "--out", tmp_path / "out"))
    assert saved == steps


def test_a_training_that_was_done_and_not_in_place_is_put_there(tmp_path, model_dir, monkeypatch):
    asked = arguments(sft, tmp_path, model_dir, "--out", tmp_path / "out")
    report = sft.run(asked).document
    done = files(tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / ".out.partial")
    monkeypatch.setattr(fit, "fit", None)  # nothing is trained
    assert sft.run(asked).document == report
    assert files(tmp_path / "out") == done


@pytest.mark.parametrize("verb", [sft, reward])
def test_what_is_refused_or_killed_before_a_checkpoint_leaves_nothing(
    verb, tmp_path, model_dir, golden
):
    """So that the command with the remedy is not taken for another training."""
    with golden.refuses(UsageError):
        verb.run(arguments(verb, tmp_path, model_dir, "--out", tmp_path / "o", "--max-length", 2))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rows.jsonl"]
    (tmp_path / ".o.partial/checkpoints").mkdir(parents=True)
    (tmp_path / ".o.partial/command.json").write_text('{"lr": "9"}')
    verb.run(arguments(verb, tmp_path, model_dir, "--out", tmp_path / "o", "--epochs", 0.1))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["o", "rows.jsonl"]
