"""A run again, and a run that was cut off and went on: the same metrics."""

import pytest

import rlzoo
from helpers.runs import StopAt, lines, untimed
from rlzoo.train.start import resume

pytestmark = pytest.mark.process  # trainings that are cut off and go on


def test_the_same_seed_twice_gives_the_same_metrics(zoo, words, tmp_path):
    for name in ("a", "b"):
        rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / name}"], zoo=zoo)
    assert untimed(tmp_path / "a") == untimed(tmp_path / "b")
    assert lines(tmp_path / "a", "samples.jsonl") == lines(tmp_path / "b", "samples.jsonl")
    rlzoo.run("ppo_gae", [*words, "seed=1", f"run.dir={tmp_path / 'c'}"], zoo=zoo)
    assert untimed(tmp_path / "a") != untimed(tmp_path / "c")


def test_a_damaged_checkpoint_falls_back_to_the_one_before(zoo, words, tmp_path):
    words = [*words, "train.steps=5"]
    rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'whole'}"], zoo=zoo)
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'cut'}"], zoo=zoo, display=StopAt(4))
    newest = tmp_path / "cut" / "checkpoints" / "step-00000003"
    data = bytearray((newest / "critic.safetensors").read_bytes())
    data[-1] ^= 1
    (newest / "critic.safetensors").write_bytes(bytes(data))
    display = StopAt(99)
    resume(tmp_path / "cut", zoo=zoo, display=display)
    assert "step-00000003 is damaged" in display.notes[0]
    assert "resumed at step 2" in display.notes[1]
    assert untimed(tmp_path / "cut") == untimed(tmp_path / "whole")


@pytest.mark.parametrize(
    "more",
    [
        ["actor.optimizer=muon", "critic.optimizer=muon", "actor.muon=[embed, mlp]"],
        ["actor.optimizer=sgd", "actor.momentum=0.9", "critic.optimizer=sgd"],
        ["kl.place=loss", "kl.reference=rollout", "kl=k3"],
        ["kl.reference=ema", "kl.sync_mix=0.3"],
        ["kl.reference=every", "kl.sync_steps=2"],
        ["rollout.top_p=0.9", "rollout.replay=kept"],
    ],
    ids=lambda words: words[-1],
)
def test_a_run_that_was_cut_off_goes_on_exactly(zoo, words, tmp_path, more):
    words = [*words, *more, "train.steps=5", "actor.lr=0.01"]
    rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'whole'}"], zoo=zoo)
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'cut'}"], zoo=zoo, display=StopAt(4))
    resume(tmp_path / "cut", zoo=zoo)
    assert untimed(tmp_path / "cut") == untimed(tmp_path / "whole")
