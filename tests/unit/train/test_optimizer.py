"""Schedules of the learning rate."""

import pytest

from rlzoo.recipe.compose import compose
from rlzoo.step.update import learning_rate


def test_learning_rate_schedules(zoo):
    config = compose(["recipe=grpo", "actor.lr=1.0", "actor.lr_warmup=4",
                      "actor.lr_schedule=linear"], zoo).config.actor  # fmt: skip
    assert [learning_rate(config, s, 0.0) for s in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert learning_rate(config, 9, 0.75) == pytest.approx(0.25)
