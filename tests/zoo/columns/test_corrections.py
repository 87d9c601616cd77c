"""Corrections for a sampler that differs from the policy, and DAPO's overlong penalty."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from helpers.zoo import ZOO
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_zoo.columns.ratios import measure

NAMES = ("tis", "icepop", "rejection")
F64 = torch.float64


def columns(gap, mask=None, old=-1.0) -> dict[str, Tensor]:
    """Columns where log pi_old - log mu is `gap` (B, T)."""
    gap = torch.as_tensor(gap, dtype=F64)
    mask = torch.ones_like(gap) if mask is None else torch.as_tensor(mask, dtype=F64)
    log_pi = torch.full_like(gap, old)
    return {"old_log_probs": log_pi, "sampler_log_probs": log_pi - gap, "response_mask": mask}


def weigh(name: str, given_columns: dict[str, Tensor], **options) -> Tensor:
    return ZOO.columns[name](given_columns, **options)


# Ratios 4, 1, .25, 1 in the first row, whose product is 1; 4, 4 and a hole of 1e9 in the second.
RATIOS = torch.tensor([[4.0, 1.0, 0.25, 1.0], [4.0, 1e9, 4.0, 1.0]], dtype=F64)
MASK = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0]], dtype=F64)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("tis", {}, [[2, 1, 0.25, 1], [2, 0, 2, 0]]),
        ("tis", {"cap": 10.0}, [[4, 1, 0.25, 1], [4, 0, 4, 0]]),
        ("tis", {"level": "sequence", "cap": 20.0}, [[1, 1, 1, 1], [16, 0, 16, 0]]),
        ("tis", {"level": "sequence"}, [[1, 1, 1, 1], [2, 0, 2, 0]]),
        # Products up to a token: 4, 4, 1, 1 and 4, 16; means of the logs: 0 and ln 4.
        ("tis", {"level": "prefix", "cap": 20.0}, [[4, 4, 1, 1], [4, 0, 16, 0]]),
        ("tis", {"level": "geometric", "cap": 20.0}, [[1, 1, 1, 1], [4, 0, 4, 0]]),
        ("tis", {"floor": 0.5}, [[2, 1, 0.5, 1], [2, 0, 2, 0]]),
        ("tis", {"reject": 1.3}, [[2, 1, 0.25, 1], [0, 0, 0, 0]]),
        # The mean of 2, 1, .25, 1, 2, 2 is 1.375.
        ("tis", {"normalize": True}, [[16 / 11, 8 / 11, 2 / 11, 8 / 11], [16 / 11, 0, 16 / 11, 0]]),
        ("icepop", {"level": "prefix"}, [[4, 4, 1, 1], [4, 0, 0, 0]]),
        ("icepop", {"level": "geometric"}, [[1, 1, 1, 1], [4, 0, 4, 0]]),
        ("rejection", {"level": "sum", "estimator": "k1", "threshold": 1.3},
         [[1, 1, 1, 1], [0, 0, 0, 0]]),
        ("rejection", {"level": "sum", "estimator": "k2", "threshold": 1.93},
         [[1, 1, 1, 1], [1, 0, 1, 0]]),
        ("rejection", {"level": "max", "estimator": "k1", "threshold": 1.3},
         [[0, 0, 0, 0], [0, 0, 0, 0]]),
        ("icepop", {}, [[4, 1, 0, 1], [4, 0, 4, 0]]),
        ("icepop", {"low": 0.2, "high": 3.0}, [[0, 1, 0.25, 1], [0, 0, 0, 0]]),
        ("icepop", {"level": "sequence"}, [[1, 1, 1, 1], [0, 0, 0, 0]]),
        ("rejection", {"level": "token", "estimator": "k1", "threshold": 1.3},
         [[0, 1, 0, 1], [0, 0, 0, 0]]),
        ("rejection", {"level": "sequence", "estimator": "k1", "threshold": 1.3},
         [[1, 1, 1, 1], [0, 0, 0, 0]]),
        # k2: ln(4)^2 / 2 = .961 at four of six; means .480 and .961.
        ("rejection", {"level": "sequence", "estimator": "k2", "threshold": 0.5},
         [[1, 1, 1, 1], [0, 0, 0, 0]]),
        ("rejection", {"level": "token", "estimator": "k2", "threshold": 0.97},
         [[1, 1, 1, 1], [1, 0, 1, 0]]),
        # k3: 4 - 1 - ln 4 = 1.614, .25 - 1 + ln 4 = .636; means .5625 and 1.614.
        ("rejection", {"level": "token", "threshold": 0.7}, [[0, 1, 1, 1], [0, 0, 0, 0]]),
        ("rejection", {"threshold": 0.57}, [[1, 1, 1, 1], [0, 0, 0, 0]]),
        ("rejection", {"threshold": 0.56}, [[0, 0, 0, 0], [0, 0, 0, 0]]),
    ],
)  # fmt: skip
def test_small_array(name, options, expected):
    got = weigh(name, columns(RATIOS.log(), MASK), **options)
    assert_close(got, torch.tensor(expected, dtype=F64))


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("name", NAMES)
def test_on_policy_every_action_counts_as_it_is(name, level):
    assert torch.equal(weigh(name, columns(torch.zeros(2, 4), MASK), level=level), MASK)


def test_uncapped_weights_have_mean_1_under_the_sampler():
    # E_mu[pi / mu] = 1, token by token: all seven tokens of five states, weighed by mu.
    draw = torch.Generator().manual_seed(0)
    pi, mu = (torch.randn(5, 7, generator=draw, dtype=F64).log_softmax(-1) for _ in range(2))
    table = {"old_log_probs": pi, "sampler_log_probs": mu, "response_mask": torch.ones_like(pi)}
    assert_close((mu.exp() * weigh("tis", table, cap=1e6)).sum(-1), torch.ones(5, dtype=F64))
    for capped in (weigh("tis", table, cap=1.5), weigh("icepop", table)):
        assert ((mu.exp() * capped).sum(-1) < 1 - 1e-6).all()


def test_prefix_weights_are_unbiased_and_vary_less_than_whole_ones():
    """By enumeration of two tokens of three: E_mu[w_t x_t] = E_pi[x_t], for x of tokens up to t."""
    draw = torch.Generator().manual_seed(0)
    pi, mu = (torch.randn(3, 3, generator=draw, dtype=F64).log_softmax(-1) for _ in range(2))
    a, b = torch.arange(9) // 3, torch.arange(9) % 3
    log_pi, log_mu = (torch.stack([p[0, a], p[1, b]], 1) for p in (pi, mu))
    table = {"old_log_probs": log_pi, "sampler_log_probs": log_mu,
             "response_mask": torch.ones_like(log_pi)}  # fmt: skip
    chance = {"pi": log_pi.sum(1).exp(), "mu": log_mu.sum(1).exp()}
    x = torch.stack([torch.randn(3, generator=draw, dtype=F64)[a],
                     torch.randn(9, generator=draw, dtype=F64)], 1)  # fmt: skip
    want = (chance["pi"][:, None] * x).sum(0)
    spread = {}
    for level in ("prefix", "sequence"):
        weighed = weigh("tis", table, level=level, cap=1e9) * x
        assert_close((chance["mu"][:, None] * weighed).sum(0), want)
        spread[level] = (chance["mu"][:, None] * (weighed - want).square()).sum(0)
    assert spread["prefix"][0] < spread["sequence"][0]
    assert_close(spread["prefix"][1], spread["sequence"][1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("gap", [-100.0, 100.0])
def test_finite_in_float32_where_the_ratio_would_overflow(name, level, gap):
    far = {n: x.float() for n, x in columns(torch.full((2, 3), gap)).items()}
    got = weigh(name, far, level=level)
    assert got.dtype == torch.float32
    assert torch.isfinite(got).all()


@pytest.mark.parametrize("name", NAMES)
def test_is_a_column_that_a_recipe_can_name(name):
    assert ZOO.columns[name].shape == "BT"
    assert ZOO.columns[name].needs == ("sampler_log_probs", "old_log_probs", "response_mask")


# ---------------------------------------------------------------- overlong


def test_overlong_falls_linearly_over_the_buffer():
    mask = (torch.arange(14) < torch.tensor([0, 5, 6, 7, 9, 10, 14])[:, None]).float()
    got = ZOO.rewards["overlong"]({"response_mask": mask}, max_length=10, buffer=4)
    assert_close(got, torch.tensor([0, 0, 0, -0.25, -0.75, -1, -1]))


def test_overlong_counts_actions_not_observations():
    mask = torch.ones(2, 10)
    mask[1, 2:6] = 0
    got = ZOO.rewards["overlong"]({"response_mask": mask}, max_length=10, buffer=4)
    assert got.tolist() == [-1, 0]


@pytest.mark.parametrize(
    ("correction", "ess", "mean", "largest"),
    [
        ("tis", 8.25**2 / (6 * 14.0625), 2.375, 4),  # weights 2, 1, .25, 1, 2, 2
        ("{name: tis, level: sequence}", 8**2 / (6 * 12), 6, 16),  # 1, 1, 1, 1, 2, 2 of 1 and 16
        ("{name: tis, level: sequence, cap: 1}", 1.0, 6, 16),
        ("{name: rejection, level: token, estimator: k1, threshold: 1.3}", 2 / 6, 2.375, 4),
    ],
)
def test_metrics_of_the_weights(correction, ess, mean, largest):
    """By hand; and nothing without a correction."""
    words = ["recipe=grpo", "model=tiny", f"correction={correction}"]
    plan = make_plan(compose(words, ZOO), ZOO)
    bound = next(column for column in plan.columns if column.name == plan.correction)
    batch = columns(RATIOS.log(), MASK)
    seen = measure(plan, batch | {plan.correction: bound(batch)})
    assert_close(
        torch.tensor([*seen.values()], dtype=F64),
        torch.tensor([ess, mean, largest], dtype=F64),
        rtol=0,
        atol=1e-12,
    )
    assert measure(make_plan(compose(words[:2], ZOO), ZOO), batch) == {}
