"""Statistics against rliable's numbers, against scipy, and against what they promise: coverage."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student
from scipy.stats import trim_mean, wilcoxon

from helpers import ROOT
from rlzoo_lab import stats

CASES = json.loads((ROOT / "tests" / "reference" / "rliable.json").read_text())["cases"]
numbers = st.lists(st.floats(-5, 5).map(lambda v: round(v, 3)), min_size=1, max_size=9)
quick = settings(derandomize=True, deadline=None, max_examples=60)


# ---------------------------------------------------------------- rliable


@pytest.mark.parametrize("case", CASES, ids=lambda c: "x".join(map(str, np.shape(c["x"]))))
def test_points_and_intervals_are_rliables(case):
    """Points to rounding; intervals to what 50,000 against 10,000 repetitions leave open."""
    for i, side in enumerate("xy"):
        assert stats.iqm(case[side]) == pytest.approx(case["iqm"][i], abs=1e-12)
        low, high = case["iqm_interval"][i]
        found = stats.iqm_interval(case[side])
        assert found == pytest.approx((low, high), abs=0.04 * (high - low))
    better = stats.improvement(case["x"], case["y"])
    assert better == pytest.approx(case["improvement"], abs=1e-12)
    low, high = case["improvement_interval"]
    found = stats.improvement_interval(case["x"], case["y"])
    assert found == pytest.approx((low, high), abs=0.06 * (high - low))


@quick
@given(numbers, numbers)
def test_identities_of_iqm_and_improvement(x, y):
    assert stats.iqm(x) == pytest.approx(trim_mean(x, 0.25), abs=1e-9)
    assert stats.iqm(x) == pytest.approx(stats.iqm(x[::-1]), abs=1e-9)
    assert stats.improvement(x, y) + stats.improvement(y, x) == pytest.approx(1)
    assert stats.improvement(x, x) == 0.5


def test_one_seed_has_no_interval():
    assert stats.iqm_interval([0.3]) is None
    assert stats.improvement_interval([0.3], [0.2, 0.4]) is None


# ---------------------------------------------------------------- paired differences


def by_hand(d):
    """p by the definition: all sign patterns."""
    d = np.asarray(d)
    means = [np.dot(s, d) for s in itertools.product((1, -1), repeat=len(d))]
    return np.mean(np.abs(means) >= abs(d.sum()) - 1e-9)


@quick
@given(numbers)
def test_p_is_the_share_of_sign_patterns(d):
    found = stats.paired(d)
    assert found.p == pytest.approx(by_hand(d))
    assert stats.paired([-v for v in d]).p == found.p


def test_ranks_give_wilcoxons_test():
    """On ranks the sign-flip test is Wilcoxon's signed-rank test."""
    d = np.array([0.1, 0.5, -0.2, 0.9, 1.3, 0.7, -0.3, 1.1])
    ranks = np.sign(d) * (np.argsort(np.argsort(np.abs(d))) + 1)
    assert stats.paired(ranks).p == pytest.approx(wilcoxon(d, mode="exact").pvalue)


def test_the_least_p_of_few_pairs():
    for n in range(7):
        found = stats.paired(np.linspace(1, 2, n))
        assert found.p == (2 / 2**n if n else 1.0)
        assert stats.smallest_p(n) == pytest.approx(found.p)
    assert stats.smallest_p(6) <= 0.05 < stats.smallest_p(5)


def test_equal_runs_are_no_difference():
    found = stats.paired([0.0] * 20)
    assert (found.p, found.widest) == (1.0, (0.0, 0.0))


def test_sampled_patterns_agree_with_all_of_them():
    d = np.random.default_rng(5).normal(0.4, 1, 16)
    sums = np.zeros(1)
    for v in d:
        sums = np.concatenate([sums, sums + v])
    exact = np.mean(np.abs(d.sum() - 2 * sums) >= abs(d.sum()) - 1e-9)
    assert stats.paired(d).p == pytest.approx(exact, abs=0.008)
    assert stats.paired(d) == stats.paired(d)


# ---------------------------------------------------------------- many pairs


def test_holm_by_hand():
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert stats.holm([0.5, 0.9]) == [1.0, 1.0]
    assert stats.holm([]) == []


def test_holm_keeps_the_family_error():
    """Five configurations that do not differ: some pair is called different in at most 6 %."""
    rng = np.random.default_rng(4)
    false = 0
    for _ in range(400):
        runs = rng.normal(size=(5, 12))
        ps = [stats.paired(a - b).p for a, b in itertools.combinations(runs, 2)]
        false += min(stats.holm(ps)) <= 0.05
    assert false / 400 <= 0.06


@pytest.mark.parametrize("freedom", [5, 7, 19, 60])
@pytest.mark.parametrize("p", [0.8, 0.975, 0.995, 0.999])
def test_students_quantile_is_scipys(p, freedom):
    assert stats.critical(2 * p - 1, freedom) == pytest.approx(student.ppf(p, freedom), rel=1e-5)


# ---------------------------------------------------------------- curves


def test_area_is_the_mean_height():
    assert stats.area([0, 10], [0.2, 0.4]) == pytest.approx(0.3)
    assert stats.area([0, 1, 10], [0.5, 0.5, 0.5]) == pytest.approx(0.5)
    assert stats.area([0, 1, 3], [0, 1, 1]) == pytest.approx(2.5 / 3)
    assert stats.area([5], [0.7]) == 0.7


def test_censored_times_stay_censored():
    assert stats.reached([0, 20, 40], [0.1, 0.5, 0.9], 0.5) == 20
    assert stats.reached([0, 20, 40], [0.1, 0.5, 0.9], 0.95) is None
    assert stats.censored_median([20, 40, None]) == 40
    assert stats.censored_median([20, None, None]) is None
    assert stats.censored_median([20, 40, None, None]) is None  # half is not enough
    assert stats.censored_median([20, 40, 60, None]) == 50
    assert stats.censored_median([]) is None
