"""An evaluation is as good as it has different prompts, however often each is sampled."""

import numpy as np
import pytest

from rlzoo_lab.stats import distinct, variance_over_prompts


def test_a_prompt_that_comes_often_counts_once():
    """Each of 30 values three times: no more is known of their mean than by 30."""
    rng = np.random.default_rng(0)
    values, index = rng.normal(size=30), np.arange(30)
    once = variance_over_prompts(values, index)
    assert once == pytest.approx(values.var(ddof=1) / 30)
    assert variance_over_prompts(np.tile(values, 3), np.tile(index, 3)) == pytest.approx(once)
    assert variance_over_prompts(np.tile(values, 3), -np.ones(90)) < 0.4 * once
    assert distinct(np.tile(index, 3)) == 30
    assert distinct([4, 4, -1, -1]) == 3
    assert np.isnan(variance_over_prompts([1.0, 2.0], [7, 7]))
