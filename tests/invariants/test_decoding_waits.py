"""Decoding on a device: the host waits for it once in 16 tokens, and a wait that is put into the
loop is found. The device is pretended (`helpers.pretend_gpu`)."""

import pytest

from helpers.on_a_gpu import SMALL, phases, trainer_of
from rlzoo.errors import RlzooError
from rlzoo.lm import decode
from rlzoo.rollout.sample import collect, draw

FAR = ("rollout.prompts=2", "rollout.samples=2")


def waited(zoo, model_dir, *more):
    """How often the host waits in the loop for 17 and for 49 tokens of rows that do not end."""
    with phases() as gpu:
        words = (f"model.path={model_dir}", *SMALL, *FAR, *more, "device=cuda")
        trainer = trainer_of(zoo, "grpo", *words)
        models = trainer.models
        models.policy.eos_ids = []
        prompts = draw(models, "train", 2, "train", 0)
        found = []
        for limit in (17, 49):
            gpu.clear()
            batch = collect(models, prompts, 2, stream="train", step=0, limit=limit)
            assert batch.steps == limit
            found.append(gpu.waited())
    return found


def test_the_host_waits_once_in_sixteen_tokens(zoo, model_dir):
    few, many = waited(zoo, model_dir)  # rollout.cache=auto
    assert few <= many <= few + 2


def test_a_number_that_is_asked_for_in_the_loop_is_found(zoo, model_dir, monkeypatch):
    plain = decode.draw

    def asks(policy, logits, u):
        assert logits.sum().item() == logits.sum().item()
        return plain(policy, logits, u)

    monkeypatch.setattr(decode, "draw", asks)
    few, many = waited(zoo, model_dir, "rollout.cache=dynamic")  # which waits at each token
    assert many >= few + 64
    with pytest.raises(RlzooError, match="wait .*_local_scalar_dense"):
        waited(zoo, model_dir, "rollout.cache=static")
