"""How good a critic is: identities on made-up numbers."""

import pytest
import torch

from helpers.rewards_for_tests import LETTERS
from helpers.worlds import rolled, world_of
from rlzoo.step.metrics import batch_metrics, critic_metrics, explained


def test_explained_knows_the_plain_cases():
    g = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert explained(g, g) == pytest.approx(1)
    assert explained(g + 3, g) == pytest.approx(1)  # a constant is bias, not variance
    assert explained(torch.zeros_like(g), g) == pytest.approx(0)
    assert explained(0.5 * g, g) == pytest.approx(0.75)
    assert explained(g, torch.ones_like(g)) == 0


def test_a_step_reports_its_critic(zoo, words):
    world = world_of(zoo, [*words, *LETTERS, "kl.place=none", "critic.init=actor"])
    with torch.no_grad():
        world.engine.critic.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    batch = rolled(world)
    mask = batch["response_mask"].bool()
    to_go = batch["rewards"].flip(1).cumsum(1).flip(1)
    found = batch_metrics(world.plan, batch)
    v, g = batch["values"][mask].double(), to_go[mask].double()
    assert found["critic/vf_bias"] == pytest.approx(float((v - g).mean()), abs=1e-5)
    assert found["critic/vf_explained_var"] == pytest.approx(explained(v, g), rel=1e-4)
    # At the prompt: between-group variance is all that V could know.
    first = torch.where(batch["group_ids"] % 2 == 0, 1.0, 0.0)
    rewards = torch.zeros_like(batch["rewards"])
    rewards[:, 0] = first
    known = critic_metrics(world.plan, {**batch, "rewards": rewards})
    assert known["critic/vf_ceiling/prompt"] == pytest.approx(1, abs=1e-6)
