"""The tables of docs/compare.md: the rules that they apply to many tables at once are compare's."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from rlzoo_lab import stats

FILE = Path(__file__).parents[2] / "docs" / "studies" / "coverage.py"


@pytest.fixture(scope="module")
def coverage():
    spec = importlib.util.spec_from_file_location("coverage_tables", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("n", "rows", "reference"), [(3, 5, False), (5, 2, False), (4, 4, True)])
def test_the_rule_is_that_of_stats(coverage, n, rows, reference):
    y = coverage.two_noisy(np.random.default_rng(0), (3, n, rows)) + np.arange(rows)
    d, half = coverage.by_block(y, reference)
    i = range(1, rows) if reference else coverage.pairs_of(rows)[0]
    j = [0] * rows if reference else coverage.pairs_of(rows)[1]
    for table, mean, width in zip(y, d, half, strict=True):
        contrasts = stats.block(table, 0 if reference else None).contrasts
        found = [contrasts[a, b] for a, b in zip(i, j, strict=False)]
        assert [c.mean for c in found] == pytest.approx(mean)
        assert [c.interval.high - c.mean for c in found] == pytest.approx(width)


def test_tables_are_made_and_noise_has_the_mean_that_it_says(coverage):
    rng = np.random.default_rng(1)
    for make in (coverage.ALIKE | coverage.UNLIKE).values():
        noise = make(rng, (5_000, 2, 3))
        assert (abs(noise.mean((0, 1))) < 4.5 * noise.std((0, 1)) / 10_000**0.5).all()
    lines = coverage.pair_intervals(rng, 50).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert len(lines) == 2 + 2 * len(coverage.SEEDS)
