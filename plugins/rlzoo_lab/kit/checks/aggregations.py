"""Checks of aggregations: a weight for each token of the mini-batch."""

from rlzoo_lab.kit.checks.functions import rows_without_an_action_count_nothing
from rlzoo_lab.kit.checks.subject import Subject, show


def weights_are_weights(s: Subject) -> None:
    """No weight is negative, and if there are actions, some weight is positive."""
    for options in s.variants():
        weights = s.call(s.batch(), **options)["weights"]
        assert bool((weights >= 0).all()), f"gives a negative weight{show(options)}"
        assert bool((weights > 0).any()), f"gives every token a weight of 0{show(options)}"


ALL = (weights_are_weights, rows_without_an_action_count_nothing)
