"""V* of A*-PO: the formula, shared prompts, and samples that are the reference's."""

import math

import pytest
import torch

from helpers.worlds import sampled, world_of
from helpers.zoo import ZOO
from rlzoo.errors import RlzooError
from rlzoo.rollout.sample import resources


def values(scores, **options):
    """Of two prompts in rows 0, 1, 0, whose reference responses score `scores`."""
    asked = []

    def sample(prompt_ids, prompt_mask, *, of, reference):
        assert reference
        asked.append(of.tolist())
        return {"response_ids": prompt_ids}

    columns = {
        "prompt_ids": torch.tensor([[7], [8], [7]]), "prompt_mask": torch.ones(3, 1),
        "answers": ["a", "b", "a"], "sample": sample, "reference": None,
        "score": lambda other: torch.tensor(scores, dtype=torch.float64)[: len(other["rows"])],
        "response_mask": torch.ones(3, 2, dtype=torch.float64),
    }  # fmt: skip
    return ZOO.columns["optimal_values"](columns, **options), asked


def test_the_soft_maximum_of_the_references_scores():
    got, asked = values([1.0, 0, 0, 0], rollouts=2, beta=0.5)
    first = 0.5 * math.log((math.exp(2) + 1) / 2)
    assert sorted(asked[0]) == [0, 0, 1, 1]  # equal prompts share their rollouts
    assert sorted(got.tolist()) == pytest.approx([0, first, first])
    mean, _ = values([1.0, 0, 0, 0], rollouts=2, beta=1e6)
    assert mean.max().item() == pytest.approx(0.5, abs=1e-5)
    best, _ = values([1.0, 0, 0, 0], rollouts=2, beta=1e-6)
    assert best.max().item() == pytest.approx(1, abs=1e-5)


def test_it_is_the_reference_that_is_drawn_from_and_metered():
    world = world_of(ZOO, ["rollout.prompts=4", "device=cpu", "train.minibatches=1"],
                     recipe="a_star_po")  # fmt: skip
    batch = sampled(world).batch
    more = resources(world, batch, ("test",), 0)
    prompts = batch["prompt_ids"], batch["prompt_mask"]
    with torch.no_grad():  # a policy that only ever says its end
        for weight in world.policy.model.parameters():
            weight.zero_()
    before = world.engine.meter.tokens
    drawn = more["sample"](*prompts, reference=True)
    again = world.engine.reference.generate(
        *prompts, _uniforms(world, len(batch["prompt_ids"])), drawn["response_ids"].shape[1]
    )
    width = min(drawn["response_ids"].shape[1], again["response_ids"].shape[1])
    assert torch.equal(drawn["response_ids"][:, :width], again["response_ids"][:, :width])
    assert world.engine.meter.tokens == before + int(drawn["response_mask"].sum())


def _uniforms(world, rows):
    from rlzoo.mdp import noise

    limit = world.plan.recipe.config.rollout.max_new_tokens
    return noise.uniforms(world.seed, "sample/test", 0, torch.arange(rows), limit)


def test_a_sampler_that_knows_one_policy_alone_is_refused(monkeypatch, golden):
    world = world_of(ZOO, ["rollout.prompts=2", "device=cpu"], recipe="a_star_po")
    batch = sampled(world).batch
    more = resources(world, batch, ("test",), 0)
    sampler = world.plan.base_sampler
    monkeypatch.setitem(vars(sampler), "needs", ("prompt_ids",))
    with golden.refuses(RlzooError):
        more["sample"](batch["prompt_ids"], batch["prompt_mask"], reference=True)
