"""docs/studies/claims.py: the optimum that it compares with is one, and its numbers are shown."""

import pytest
import torch

from helpers import ROOT
from helpers.scripts import script


@pytest.fixture(scope="module")
def claims():
    return script("claims")


def test_the_soft_optimum_has_no_gradient_and_its_log_ratio_is_its_advantage(claims):
    world = claims.make_world("graded", claims.TREE, seed=3)
    best = claims.optimum(world)
    assert best.gradient().abs().max() < 1e-14
    ratio = best.log_pi - world.reference.log_softmax(-1)
    q = claims.soft_optimum(world, claims.BETA)[1]
    value = claims.BETA * (world.reference.log_softmax(-1) + q / claims.BETA).logsumexp(-1)
    torch.testing.assert_close(claims.BETA * ratio, q - value[:, None], rtol=1e-12, atol=1e-12)


def test_a_few_steps_of_ascent_gain_and_stay_below_the_optimum(claims):
    world = claims.make_world("graded", claims.TREE, seed=3)
    start = claims.Oracle(claims.TREE, world.reference, world.rewards, world.coin,
                          world.reference, kl_coef=claims.BETA)  # fmt: skip
    gains = [start.improvement(claims.trained(world, claims.BETA, n).logits) for n in (5, 50)]
    best = start.improvement(claims.optimum(world).logits)
    assert 0 < gains[0] < gains[1] < best


def test_the_page_shows_what_the_script_finds(claims):
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    text = " ".join(text.split())
    for cell in claims.cancelled_table().splitlines()[2].strip("|").split("|")[1:]:
        assert cell in text
    first = claims.spread([claims.progress(seed, claims.optimum)[1] for seed in claims.SEEDS])
    assert first in text
    assert claims.passed_table().splitlines()[3].split("|")[3] in text
    assert all(x in text for x in claims.bayes_table().splitlines()[4].split("|")[2:4])


def test_credit_at_k_1_is_the_gradient_and_pass_gradient_is_autograds(claims):
    world = claims.make_world("outcome", claims.FIVE, seed=1)
    torch.testing.assert_close(claims.credit(world, 1), world.gradient(), rtol=1e-12, atol=1e-15)
    step, k = 1e-5, 4
    towards = torch.randn(world.logits.shape, generator=torch.Generator().manual_seed(0),
                          dtype=torch.float64)  # fmt: skip

    def at(x):
        moved = world.logits + x * towards
        return claims.prompts_pass(
            claims.Oracle(claims.FIVE, moved, world.rewards, world.coin, world.reference), k
        )

    slope = (at(step) - at(-step)) / (2 * step)
    # visits of a prompt start at 1 / 5, so the gradient is that of the mean over prompts
    assert slope == pytest.approx(float((claims.pass_gradient(world, k) * towards).sum()), rel=1e-6)


def test_ranks_of_known_matrices():
    ranks = script("grpo_rank").ranks
    stable, entropy, most = ranks(torch.ones(5, dtype=torch.float64))
    assert (stable, most) == (5, 5)
    assert entropy == pytest.approx(5)
    stable, entropy, most = ranks(torch.tensor([10.0, 0.1, 0.1, 0.0], dtype=torch.float64))
    assert stable == pytest.approx(1.0002)
    assert entropy == pytest.approx(1.117, abs=1e-3)
    assert most == 1


def test_a_group_is_mixed_or_left_out():
    group_of = script("grpo_rank").group_of
    assert group_of(torch.tensor([0.0, 0, 0, 1]), 2) == [0, 3]
    assert group_of(torch.tensor([0.0, 1, 0, 1]), 2) == [0, 1]
    assert group_of(torch.zeros(4), 2) is None


def test_a_mean_with_its_interval():
    assert script("grpo_rank").with_error([1.0, 2.0, 3.0]) == "2.0±2.5"
