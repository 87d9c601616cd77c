"""Student, Tukey and Dunnett; the block model of rows paired by seed; what it can show."""

import numpy as np
import pytest

from rlzoo_lab import stats

# scipy 1.17.1: stats.t.ppf(1 - (1 - level) / 2, freedom)
STUDENT = {(0.95, 1): 12.706205, (0.95, 2): 4.302653, (0.97, 4): 3.297630, (0.99, 9): 3.249836}

# scipy 1.17.1: stats.studentized_range.ppf(0.95, rows, freedom)
TUKEY = {(3, 4): 5.0402413, (5, 16): 4.3326878, (10, 18): 5.0705073, (10, 171): 4.5339213}

# Dunnett 1964, Biometrics 20, table II, two-sided .05: (rows with the reference, freedom)
DUNNETT = {(3, 10): 2.57, (5, 10): 2.89, (4, 20): 2.54}


def test_critical_values_are_scipys_and_dunnetts():
    for (level, freedom), t in STUDENT.items():
        assert stats.critical(level, freedom) == pytest.approx(t, rel=1e-5)
    for (rows, freedom), q in TUKEY.items():
        assert stats.critical(0.95, freedom, rows) * 2**0.5 == pytest.approx(q, rel=1e-5)
    for (rows, freedom), t in DUNNETT.items():
        assert stats.critical(0.95, freedom, rows, reference=True) == pytest.approx(t, abs=0.006)
    # stats.studentized_range.sf(4 * 2**.5, 5, 16)
    assert 1 - stats.within(4.0, 16, 5) == pytest.approx(0.00787401, rel=1e-4)


def test_two_rows_are_a_paired_t_test():
    d = np.array([0.3, 0.1, 0.25, 0.2, 0.4])
    seeds = np.array([1.0, 5.0, 2.0, 7.0, 3.0])  # cancel
    found = stats.block(np.stack([seeds + d, seeds], 1))
    c = found.contrasts[0, 1]
    half = 2.776445 * d.std(ddof=1) / 5**0.5
    assert c.interval == pytest.approx((0.25 - half, 0.25 + half), rel=1e-5)
    assert found.freedom == 4
    assert found.sd == pytest.approx(d.std(ddof=1) / 2**0.5)
    assert c.p == pytest.approx(0.00749, abs=1e-5)  # t = 5: 2 * scipy.stats.t.sf(5, 4)
    assert (-c).interval == (-c.interval.high, -c.interval.low)


def test_noise_is_pooled_over_rows_and_seeds_are_taken_out():
    """By hand: the residual of a two-way layout, with its (n - 1)(K - 1) degrees of freedom."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(5, 4))
    moved = table + 10 * rng.normal(size=(5, 1)) + np.arange(4)
    rest = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    for scores in (table, moved):
        found = stats.block(scores)
        assert found.freedom == 12
        assert found.sd == pytest.approx(((rest**2).sum() / 12) ** 0.5)
        assert len(found.contrasts) == 6
    assert set(stats.block(table, reference=2).contrasts) == {(0, 2), (1, 2), (3, 2)}


def test_a_noisy_pair_is_judged_by_its_own_noise():
    """Two of ten rows scatter ten times as much: pooled noise alone would call them different."""
    rng = np.random.default_rng(1)
    scale = np.ones(10)
    scale[:2] = 10
    fooled = wrong = 0
    for table in rng.normal(size=(80, 5, 10)) * scale:
        rest = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
        t = abs((table[:, 0] - table[:, 1]).mean()) / ((rest**2).sum() / 36 * 2 / 5) ** 0.5
        if t > stats.critical(0.95, 36, 10, reference=True):
            fooled += 1
            wrong += stats.block(table, reference=0).contrasts[1, 0].p <= 0.05
    assert fooled >= 12
    assert wrong <= fooled / 3


def test_interval_and_p_agree():
    rng = np.random.default_rng(2)
    for table in rng.normal(size=(12, 4, 3)) + np.array([0.0, 2.0, 4.0]):
        for reference in (None, 1):
            for c in stats.block(table, reference).contrasts.values():
                assert (c.p <= 0.05) == (not c.interval.low <= 0 <= c.interval.high)


def test_a_missing_run_costs_itself():
    table = np.random.default_rng(3).normal(size=(6, 3))
    whole = stats.block(table)
    table[2, 1] = np.nan
    found = stats.block(table)
    assert found.freedom == whole.freedom - 1
    assert [c.n for c in found.contrasts.values()] == [5, 6, 5]
    assert found.contrasts[0, 2].mean == whole.contrasts[0, 2].mean


def test_without_spread_there_is_nothing_to_judge_by():
    constant = np.array([[0.5, 0.6]] * 3)
    c = stats.block(constant).contrasts[0, 1]
    assert (c.p, c.interval) == (stats.smallest_p(3), None)
    assert stats.block(constant[:, [0, 0]]).contrasts[0, 1].p == 1
    one = stats.block(constant[:1]).contrasts[0, 1]
    assert (one.p, one.interval) == (1, None)


@pytest.mark.parametrize(("n", "rows", "reference"), [(5, 2, False), (5, 5, False), (4, 4, True)])
def test_the_detectable_difference_is_detected_in_four_of_five(n, rows, reference):
    """By the rule written anew, on many tables at once."""
    rng = np.random.default_rng(6)
    y = rng.normal(size=(4000, n, rows))
    y[:, :, 1] += stats.detectable(2**0.5, n, rows, reference=reference)
    rest = y - y.mean(1, keepdims=True) - y.mean(2, keepdims=True) + y.mean((1, 2), keepdims=True)
    freedom = (n - 1) * (rows - 1)
    d = y[:, :, 1] - y[:, :, 0]
    own, pooled = d.var(1, ddof=1), 2 * (rest**2).sum((1, 2)) / freedom
    t = abs(d.mean(1)) / (np.maximum(own, pooled) / n) ** 0.5
    shown = t > stats.critical(0.95, freedom, rows, reference=reference)
    if rows > 2:
        shown &= abs(d.mean(1)) / (own / n) ** 0.5 > stats.critical(0.97, n - 1)
    assert 0.78 <= shown.mean() <= 0.82
    for table, said in zip(y[:3], shown[:3], strict=True):
        contrasts = stats.block(table, 0 if reference else None).contrasts
        assert (contrasts[(1, 0) if reference else (0, 1)].p <= 0.05) == said
    assert stats.detectable(1.0, 1, rows) is None


def test_seeds_to_show():
    assert stats.seeds_to_show(2) == stats.seeds_to_show(5) == 4
    assert stats.power(stats.LARGE, 4, 5) >= 0.8 > stats.power(stats.LARGE, 3, 5)
    assert stats.power(1.5, 5, 5, reference=True) > stats.power(1.5, 5, 5)


def test_a_mean_has_students_interval():
    assert stats.t_interval([1.0]) is None
    assert stats.t_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.484138, 2 + 2.484138))


def test_prompts_say_whether_these_runs_differ():
    """Coverage over prompts of two fixed runs; a prompt that comes again counts once."""
    rng = np.random.default_rng(4)
    truth = rng.normal(0.1, 1.0, size=(3, 1000))  # of each prompt, in each of three pairs of runs
    inside = 0
    for _ in range(100):
        picks = rng.integers(1000, size=(3, 200))
        d = [t[i] for t, i in zip(truth, picks, strict=True)]
        _, (low, high) = stats.over_prompts(d, picks)
        inside += low <= truth.mean() <= high
    assert inside >= 88
    x = rng.normal(size=50)
    once = stats.over_prompts([x], [np.arange(50)])
    again = stats.over_prompts([np.tile(x, 9)], [np.tile(np.arange(50), 9)])
    assert again[1] == pytest.approx(once[1])
    assert stats.over_prompts([x], [np.full(50, -1)])[1] == pytest.approx(once[1])
    assert stats.over_prompts([x], [np.zeros(50)])[1] is None


def test_a_noisy_pair_has_the_simultaneous_interval_of_its_own_noise():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(30, 10)) * np.array([10.0] + [1.0] * 9)
    found = stats.block(scores)
    low, high = found.contrasts[0, 1].interval
    own = (scores[:, 0] - scores[:, 1]).std(ddof=1)
    assert own > 2**0.5 * found.sd
    least = stats.critical(0.95, found.freedom, 10) * own / 30**0.5
    assert (high - low) / 2 >= least * (1 - 1e-9)
