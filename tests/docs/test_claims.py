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
    text = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    assert claims.cancelled_table().splitlines()[2] in text
    first = claims.spread([claims.progress(seed, claims.optimum)[1] for seed in claims.SEEDS])
    assert first in text
