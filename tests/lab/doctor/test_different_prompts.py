"""An evaluation is as good as it has different prompts, however often each is sampled."""

import numpy as np
import pytest

from rlzoo_lab.data.record import Record
from rlzoo_lab.doctor.rules import RULES
from rlzoo_lab.stats import distinct, variance_over_prompts


def judged(index, samples=512):
    evaluation = {"step": 9, "eval/accuracy": 0.5}
    run = Record([{"step": 9}], [evaluation], {"eval.samples": samples}, {"steps": 9})
    if index is not None:
        run.__dict__["by_prompt"] = {"index": np.asarray(index)}
    (rule,) = (r for r in RULES if r.name == "evaluation_too_small")
    return rule.judge(run)


def test_twenty_prompts_drawn_often_are_twenty():
    found = judged(np.arange(512) % 20)
    assert (found.severity, found.evidence["prompts"]) == ("note", 20)
    assert "eval.samples=512 come from 20 different prompts" in found.what
    assert found.evidence["half_width"] > 0.19


@pytest.mark.parametrize("index", [np.arange(512), np.arange(512) % 48, -np.ones(512), None])
def test_many_or_made_up_prompts_are_enough(index):
    """-1 is a prompt of its own; older folders do not say."""
    assert judged(index) is None


def test_few_samples_are_a_warning_as_ever():
    found = judged(np.arange(16), samples=16)
    assert found.severity == "warning"
    assert found.what.startswith("eval.samples=16 ")


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
