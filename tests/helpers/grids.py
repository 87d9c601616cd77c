"""Grids of cases of which some run always, and the rest before a change lands."""

import itertools

import pytest


def grid(*axes, always):
    """Every combination, as parameters; those that `always` holds for are no matter of landing."""
    return [
        pytest.param(*case, marks=[] if always(*case) else [pytest.mark.landing])
        for case in itertools.product(*axes)
    ]
