"""docs/studies/grpo_outdated.py: its rows can run, all are tuned alike, no seed is used twice."""

import pytest

from helpers.scripts import script
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.stats import Contrast, Interval


@pytest.fixture(scope="module")
def study():
    return script("grpo_outdated")


def test_every_row_can_run_with_the_same_responses_per_step(study, zoo):
    for reward in study.REWARDS:
        for method in study.METHODS:
            plan = make_plan(compose(study.words_of(reward, method, 1e-3, 0), zoo), zoo)
            config = plan.recipe.config
            assert config.rollout.prompts * config.rollout.samples == 64
            assert plan.critic == (method in ("PPO", "PPO, shared trunk", "SAO"))
            assert plan.kl is None
    assert not set(study.SEARCH) & set(study.SEEDS)


@pytest.mark.parametrize(("peak", "tried"), [(1e-3, 5), (1.6e-2, 8), (1e-4, 7)])
def test_rates_go_on_where_the_best_is_at_an_end(study, peak, tried):
    class Made(study.Kept):
        def run(self, reward, method, rate, seed):
            seen.add(rate)
            return [-abs(rate - peak), 0.0, 0.0]

    seen: set[float] = set()
    best = Made().best_rate("late", "GRPO")
    assert abs(best - peak) == min(abs(rate - peak) for rate in seen)
    assert len(seen) == tried


def test_no_difference_has_the_one_that_would_have_shown(study):
    low = Contrast(10, 0.01, 0.05, 0.9, Interval(-0.03, 0.05))
    high = Contrast(10, 0.2, 0.05, 0.001, Interval(0.1, 0.3))
    assert "could show" in study.verdict(low, 5)
    assert study.verdict(high, 5) == "+0.200±0.100"
