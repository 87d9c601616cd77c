"""Where the verdict distrusts the t test: skewed beside steady, and rows at a bound."""

import numpy as np
import pytest

from rlzoo_lab import stats

STEADY = np.array([0.0, 0.1, -0.1, 0.05, -0.05])


def doubts(x, y, bounds=None):
    return [bool(v) for v in stats.doubts(x, y, np.subtract(x, y), bounds)]


def test_a_ratio_of_spreads_is_in_doubt_unless_the_difference_is_far_beyond_it():
    wide = 20 * STEADY
    assert doubts(wide + 1.5, STEADY) == [True, False]
    assert doubts(STEADY, wide + 1.5) == [True, False]
    assert doubts(wide + 10, STEADY) == [False, False]
    assert doubts(4 * STEADY + 0.5, STEADY) == [False, False]


def test_skewness_counts_against_the_row_that_it_flatters():
    tail = np.array([0.0, 0.1, 0.2, 0.1, 2.0])  # upward: a row seen to lie low may have missed it
    steady = STEADY[[2, 0, 1, 3, 4]] * 3
    assert doubts(tail - 1.5, steady) == [True, False]
    assert doubts(tail + 1.0, steady) == [False, False]


def test_the_wider_row_leans_on_a_bound_only_towards_it():
    high, steady = 0.94 + 0.5 * STEADY, 0.91 + 0.1 * STEADY[::-1]
    assert doubts(high, steady, (0, 1)) == [False, True]
    assert doubts(high, steady) == [False, False]
    assert doubts(high, steady + 0.06, (0, 1)) == [False, False]  # the steady one wins
    assert doubts(1 - high, 1 - steady, (0, 1)) == [False, True]
    assert doubts(high - 0.4, steady - 0.4, (0, 1)) == [False, False]


@pytest.mark.parametrize("n", [5, 8, 20])
def test_normal_rows_are_seldom_in_doubt(n):
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(2, 4000, n))
    assert stats.doubts(x, y, x - y)[0].mean() < 0.06
    skewed = rng.exponential(size=(4000, n)) - 1
    found = stats.doubts(skewed, y / 10, skewed - y / 10)[0]
    assert found.mean() > 0.35


def test_rows_without_spread_or_pairs():
    same = np.ones(6)
    assert doubts(same, same) == [False, False]
    assert doubts(same * 0.7, same * 0.4) == [False, False]
    unpaired = stats.doubts(20 * STEADY + 1.5, STEADY, [])
    assert bool(unpaired[0])
