"""Tokens that a model switches off by a logit of -inf: p is 0 there, and nothing is NaN."""

import pytest
import torch
from torch import nn
from torch.distributions import Categorical

from helpers.architectures import save_model
from helpers.worlds import changed, make_world, step
from rlzoo.errors import RlzooError
from rlzoo.lm.probe import examine
from rlzoo.rollout.sample import collect, draw

OFF = list(range(40, 97, 3))


class Masked(nn.Linear):
    """A head that is more than a linear layer, as in a model's own code (Chameleon)."""

    def forward(self, x):
        out = super().forward(x)
        out[..., OFF] = -torch.inf
        return out


@pytest.fixture(params=["a bias", "its own code"])
def world(request, zoo, tmp_path):
    """A policy and its reference, which switch `OFF` off."""
    folder = save_model(tmp_path / "m", "llama", tie_word_embeddings=False)
    world = make_world(
        zoo, folder, "recipe=grpo", "kl=full", "rollout.temperature=0.6", "rollout.samples=4",
        "rollout.prompts=4", "rollout.max_new_tokens=6", "actor.entropy_coef=0.01",
        "train.minibatches=1",
    )  # fmt: skip
    for network in (world.policy.model, world.engine.reference.model):
        head = network.lm_head
        new = (Masked if request.param == "its own code" else nn.Linear)(*head.weight.T.shape)
        new.load_state_dict({"weight": head.weight, "bias": torch.zeros(len(head.weight))})
        new.bias.data[OFF] = 0 if request.param == "its own code" else -torch.inf
        network.lm_head = new
    return changed(world, traits=examine(world.policy)[1])


def test_its_numbers_are_those_of_torch(world):
    policy = world.policy
    assert policy.traits.plain_head == (type(policy.model.lm_head) is nn.Linear)
    batch = collect(world, draw(world, "train", 4, "train", 0), 4, stream="train", step=0)
    assert not torch.isin(batch["response_ids"], torch.tensor(OFF)).any()
    found = policy.log_prob_stats(batch, want=("entropy", "sum_pi_squared"), entropy_grad=True)
    logits = policy.logits(batch)[:, :-1] / policy.temperature
    mask = batch["response_mask"]
    exact = Categorical(logits=logits)
    want = {"entropy": exact.entropy(), "sum_pi_squared": exact.probs.square().sum(-1)}
    for name, x in want.items():
        torch.testing.assert_close(found[name], x * mask, atol=1e-5, rtol=1e-5)
    weights = [policy.model.lm_head.weight, *policy.model.model.parameters()]
    ours = torch.autograd.grad(found["entropy"].sum(), weights)
    theirs = torch.autograd.grad((want["entropy"] * mask).sum(), weights)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    assert not policy.full_kl(batch, world.engine.reference)["full_kl"].any()
    world.engine.reference.model.lm_head.weight.data.mul_(1.1)
    free = [i for i in range(logits.shape[-1]) if i not in OFF]
    other = world.engine.reference.logits(batch)[:, :-1, free] / policy.temperature
    log_p, log_q = logits[..., free].log_softmax(-1), other.log_softmax(-1)
    kl = policy.full_kl(batch, world.engine.reference)["full_kl"]
    torch.testing.assert_close(kl, (log_p.exp() * (log_p - log_q)).sum(-1) * mask)


def test_it_trains(world):
    """By truncated sampling, too."""
    assert {f.name: f.passed for f in examine(world.policy)[0]} == {
        "head": True, "scoring": True, "trees": True, "gradient": True, "sampling": True
    }  # fmt: skip
    before = world.policy.model.lm_head.weight.clone()
    for number, (top_k, top_p) in enumerate([(0, 1.0), (90, 1.0), (0, 0.999999), (5, 0.5)]):
        batch, metrics = step(changed(world, top_k=top_k, top_p=top_p), number)
        assert not torch.isin(batch["response_ids"], torch.tensor(OFF)).any()
        assert metrics["train/skipped"] == 0
        assert all(x == x for x in metrics.values())
        assert torch.isfinite(batch["full_kl"]).all()
    assert not torch.equal(before, world.policy.model.lm_head.weight)


@pytest.mark.parametrize("world", ["a bias"], indirect=True)
def test_a_reference_without_a_token_of_the_policy_is_reported(world):
    head = world.engine.reference.model.lm_head
    head.bias.data[: len(head.bias) // 2] = -torch.inf
    with pytest.raises(RlzooError, match="ref_log_probs is -inf for token 0"):
        step(world)
