"""Checks of aggregations: a weight for each token of the mini-batch."""

from rlzoo_lab.checks import made_up
from rlzoo_lab.checks.subject import Subject, same, show


def weights_are_weights(s: Subject) -> None:
    """No weight is negative, and if there are actions, some weight is positive."""
    for options in s.variants():
        weights = s.call(s.batch(), **options)["weights"]
        assert bool((weights >= 0).all()), f"gives a negative weight{show(options)}"
        assert bool((weights > 0).any()), f"gives every token a weight of 0{show(options)}"


def empty_rows_do_not_count(s: Subject) -> None:
    """Rows without an action do not count in any denominator: removing them does not change the
    weights."""
    for options, columns in s.trials():
        acts = columns["response_mask"].bool().any(1)
        assert not acts.all(), "the synthetic batch no longer contains its empty row"
        fewer = made_up.rows_of(s.zoo, columns, acts.nonzero()[:, 0])
        whole = {"weights": s.call(columns, **options)["weights"][acts]}
        same(s.call(fewer, **options), whole, f"counts rows without an action{show(options)}")


ALL = (weights_are_weights, empty_rows_do_not_count)
