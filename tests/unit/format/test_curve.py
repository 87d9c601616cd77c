"""A curve of numbers of which some are none."""

import math

from rlzoo_lab.view.numbers import sparkline


def test_what_is_not_finite_is_left_out():
    assert sparkline([1.0, math.inf, 2.0, math.nan, -math.inf]) == sparkline([1.0, 2.0])
    assert sparkline([math.inf]) == ""
