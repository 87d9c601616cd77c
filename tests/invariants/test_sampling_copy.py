"""A copy of the policy that samples: another dtype, adapters merged, never behind its weights."""

import pytest
import torch

from helpers.architectures import LORA
from helpers.odd_models import save_odd
from helpers.worlds import rolled, step
from rlzoo.accel.decode import Decoding
from rlzoo.accel.sampling_copy import SamplingCopy


def nudge(model):
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight += 0.05 * torch.randn(weight.shape, generator=torch.manual_seed(weight.ndim))


@pytest.mark.parametrize(
    "name", ["gpt2", pytest.param("qwen2", marks=pytest.mark.study)]
)  # GPT-2's linear layers lie the other way
def test_merged_adapters_sample_what_they_sampled_apart(make, name):
    world = make(name, *LORA)
    policy = world.policy
    assert policy.decoder.copy is None
    policy.decoder.copy = SamplingCopy(policy.model, torch.float32)
    assert not any("lora" in n for n, _ in policy.decoder.copy.model.named_modules())
    start = rolled(world)
    nudge(policy.model)
    found, policy.decoder.copy = rolled(world), None
    want = rolled(world)
    assert not torch.equal(want["response_ids"], start["response_ids"])
    assert torch.equal(found["response_ids"], want["response_ids"])
    for key in ("sampler_log_probs", "old_log_probs"):
        torch.testing.assert_close(found[key], want[key], atol=1e-5, rtol=0)


def test_adapters_of_experts_are_merged_too(make, tmp_path):
    """They adapt weights of no linear layer, several of one layer one around the other."""
    world = make(save_odd(tmp_path, "mixtral"), *LORA)
    policy = world.policy
    assert any("experts.base_layer.lora_A" in n for n, _ in policy.model.named_parameters())
    policy.decoder.copy = SamplingCopy(policy.model, torch.float32)
    nudge(policy.model)
    found, policy.decoder.copy = rolled(world), None
    want = rolled(world)
    assert torch.equal(found["response_ids"], want["response_ids"])
    torch.testing.assert_close(
        found["sampler_log_probs"], want["sampler_log_probs"], atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("words", [[], LORA], ids=["weights", "lora"])
def test_a_copy_in_half_precision_follows_each_update(make, words):
    world = make("llama", *words, "rollout.dtype=bfloat16", "actor.lr=0.01")
    policy, copied = world.policy, world.policy.decoder.copy
    weights = [w.clone() for w in copied.model.parameters()]
    assert {w.dtype for w in weights} == {torch.bfloat16}
    assert {w.dtype for w in policy.model.parameters()} == {torch.float32}
    batch, _ = step(world)
    assert batch["sampler_log_probs"].dtype == torch.float32
    rolled(world, 1)
    moved = [
        n for (n, w), old in zip(copied.model.named_parameters(), weights, strict=True)
        if not torch.equal(w, old)
    ]  # fmt: skip
    assert moved
    fresh = SamplingCopy(policy.model, torch.bfloat16)
    fresh.follow()
    for w, now in zip(fresh.model.parameters(), copied.model.parameters(), strict=True):
        assert torch.equal(w, now)


def test_a_copy_is_made_where_it_would_differ(make, monkeypatch):
    world = make("gemma2", "rollout.dtype=bfloat16", "rollout.cache=static")
    policy, seen, plain = world.policy, set(), Decoding.step
    model = policy.decoder.copy.model
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert world.engine.reference.decoder.copy is None
    assert world.contract["static cache"].startswith("equal to a growing cache")

    def watched(self):
        plain(self)
        seen.update(x.dtype for c in self.cache.cache.layers for x in (c.keys, c.values))

    monkeypatch.setattr(Decoding, "step", watched)
    batch = rolled(world)
    assert seen == {torch.bfloat16}
    # Updates divide by what the policy says, not its copy.
    own = policy.log_probs(batch) * batch["response_mask"]
    torch.testing.assert_close(batch["old_log_probs"], own, atol=1e-6, rtol=0)
    assert (batch["sampler_log_probs"] - own).abs().max() > 1e-4


def test_no_copy_is_made_of_what_would_be_the_same(make):
    assert make("llama", "rollout.dtype=float32").policy.decoder.copy is None
