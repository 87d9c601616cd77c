"""How good a critic is: identities on made-up numbers."""

import pytest
import torch

from helpers.rewards_for_tests import LETTERS
from helpers.worlds import rolled, world_of
from rlzoo.step import metrics as quality
from rlzoo.step.metrics import batch_metrics, critic_metrics


def draw(n=400, seed=0):
    g = torch.Generator().manual_seed(seed)
    v = torch.randn(n, generator=g, dtype=torch.float64)
    return v, v + torch.randn(n, generator=g, dtype=torch.float64), torch.rand(n, generator=g) + 0.1


def test_explained_and_slope_know_the_plain_cases():
    v, g, w = draw()
    assert quality.explained(g, g, w) == pytest.approx(1)
    assert quality.explained(g + 3, g, w) == pytest.approx(1)  # a constant is bias, not variance
    assert quality.explained(torch.zeros_like(g), g, w) == pytest.approx(0)
    assert quality.explained(v, torch.ones_like(v), w) == 0
    assert quality.slope(g, g, w) == pytest.approx(1)
    assert quality.slope(2 * g, g, w) == pytest.approx(0.5)
    assert quality.slope(torch.ones_like(g), g, w) is None
    # Of all multiples of V, that of the slope explains most.
    best = quality.slope(v, g, w)
    most = quality.explained(best * v, g, w)
    assert most > max(quality.explained(x * v, g, w) for x in (best - 0.1, best + 0.1))


def test_thirds_split_each_response_by_its_own_length():
    place, length = torch.tensor([0, 1, 2, 0, 0, 5]), torch.tensor([3, 3, 3, 1, 6, 6])
    assert quality.thirds(place, length).tolist() == [0, 1, 2, 0, 0, 2]


def test_a_step_reports_its_critic_by_place(zoo, words):
    world = world_of(zoo, [*words, *LETTERS, "kl.place=none", "critic.init=actor"])
    with torch.no_grad():
        world.critic.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    batch = rolled(world)
    mask = batch["response_mask"].bool()
    to_go = batch["rewards"].flip(1).cumsum(1).flip(1)
    found = batch_metrics(world.plan, batch)
    v, g = batch["values"][mask].double(), to_go[mask].double()
    assert found["critic/vf_bias"] == pytest.approx(float((v - g).mean()), abs=1e-5)
    assert found["critic/vf_slope"] == pytest.approx(
        quality.slope(v, g, torch.ones_like(v)), rel=1e-3
    )
    parts = [found[f"critic/vf_explained_var/{k}"] for k in ("first", "middle", "last")]
    assert len(set(parts)) == 3
    # At the prompt: between-group variance is all that V could know.
    first = torch.where(batch["group_ids"] % 2 == 0, 1.0, 0.0)
    rewards = torch.zeros_like(batch["rewards"])
    rewards[:, 0] = first
    known = critic_metrics(world.plan, {**batch, "rewards": rewards})
    assert known["critic/vf_ceiling/prompt"] == pytest.approx(1, abs=1e-6)
