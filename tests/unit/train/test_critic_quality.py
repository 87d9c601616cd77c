"""How good a critic is: identities on made-up numbers, and against the exact oracle."""

import pytest
import torch

from helpers.rewards_for_tests import LETTERS
from helpers.worlds import rolled, world_of
from rlzoo.step import metrics as quality
from rlzoo.step.metrics import batch_metrics, critic_metrics
from rlzoo_lab.diagnose.critic_cells import cells, slope, value_bins
from rlzoo_lab.kit.oracle.episodes import enumerate_episodes
from rlzoo_lab.kit.oracle.tree import make_tree
from rlzoo_lab.kit.oracle.worlds import WORLDS, make_world


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
    assert slope(g, g, w) == pytest.approx(1)
    assert slope(2 * g, g, w) == pytest.approx(0.5)
    assert slope(torch.ones_like(g), g, w) is None
    # Of all multiples of V, that of the slope explains most.
    best = slope(v, g, w)
    most = quality.explained(best * v, g, w)
    assert most > max(quality.explained(x * v, g, w) for x in (best - 0.1, best + 0.1))


def test_cells_add_up_and_bins_are_equally_heavy():
    v, g, w = draw()
    bins = value_bins(v, w)
    lines = cells(v, g, w, bins)
    assert [line["cell"] for line in lines] == [0, 1, 2, 3, 4]
    assert all(line["share"] == pytest.approx(0.2, abs=0.01) for line in lines)
    assert [line["value"] for line in lines] == sorted(line["value"] for line in lines)
    for key, x in (("value", v), ("return", g)):
        total = sum(line["share"] * line[key] for line in lines)
        assert total == pytest.approx(quality.mean(x, w))
    assert not value_bins(torch.ones(7), torch.ones(7)).any()
    twice = value_bins(torch.tensor([0.0, 0, 0, 1]), torch.ones(4))
    assert twice[:3].unique().numel() == 1  # equal V, one bin
    assert twice[3] != twice[0]


@pytest.mark.parametrize("world", WORLDS)
def test_the_ceiling_is_what_all_episodes_say(world):
    """Var(G | s) by recursion against the spread of every episode's return from every state."""
    oracle = make_world(world, make_tree(4, 3, prompts=2), seed=3)
    episodes = enumerate_episodes(oracle)
    rewards = torch.where(
        episodes.mask, oracle.rewards[episodes.states, episodes.actions.clamp(min=0)], 0
    )
    to_go = rewards.flip(1).cumsum(1).flip(1)[episodes.mask]
    coins = torch.where(
        episodes.mask, oracle.coin[episodes.states, episodes.actions.clamp(min=0)] ** 2, 0
    )
    luck = coins.flip(1).cumsum(1).flip(1)[episodes.mask]
    states = episodes.states[episodes.mask]
    chance = episodes.probability[:, None].expand_as(episodes.mask)[episodes.mask]
    for s in range(oracle.tree.states):
        here = states == s
        mean = quality.mean(to_go[here], chance[here])
        assert mean == pytest.approx(float(oracle.v[s]), abs=1e-12)
        spread = quality.variance(to_go[here], chance[here]) + quality.mean(
            luck[here], chance[here]
        )
        assert spread == pytest.approx(float(oracle.return_variance[s]), abs=1e-12)


def test_a_step_reports_its_critic_by_place(zoo, words):
    world = world_of(zoo, [*words, *LETTERS, "kl.place=none", "critic.init=actor"])
    with torch.no_grad():
        world.engine.critic.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    batch = rolled(world)
    mask = batch["response_mask"].bool()
    to_go = batch["rewards"].flip(1).cumsum(1).flip(1)
    found = batch_metrics(world.plan, batch)
    v, g = batch["values"][mask].double(), to_go[mask].double()
    assert found["critic/vf_bias"] == pytest.approx(float((v - g).mean()), abs=1e-5)
    # At the prompt: between-group variance is all that V could know.
    first = torch.where(batch["group_ids"] % 2 == 0, 1.0, 0.0)
    rewards = torch.zeros_like(batch["rewards"])
    rewards[:, 0] = first
    known = critic_metrics(world.plan, {**batch, "rewards": rewards})
    assert known["critic/vf_ceiling/prompt"] == pytest.approx(1, abs=1e-6)
