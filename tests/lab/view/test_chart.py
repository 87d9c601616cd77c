"""Curves as SVG: what is thinned keeps its extremes, axes have round numbers."""

import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from rlzoo_lab.stats import smoothed
from rlzoo_lab.view.blocks import Curve, Series
from rlzoo_lab.view.chart import TOP, draw, nice, thin
from rlzoo_lab.view.numbers import brief


def test_a_thinned_curve_keeps_its_mean_and_its_extremes():
    x = list(range(1, 1001))
    y = [0.0] * 1000
    y[499] = 5.0
    found = thin(Series("", x, y), most=240)
    assert len(found.x) == len(found.y) == 240
    assert max(found.high) == 5
    assert 0 < max(found.y) < 5
    assert (found.x[0] >= 1, found.x[-1] <= 1000) == (True, True)
    short = Series("", x[:240], y[:240])
    assert thin(short) is short


def test_smoothing_keeps_a_level_and_the_ends():
    assert smoothed([2.0] * 9, 3) == pytest.approx([2.0] * 9)
    out = smoothed([0.0] * 10 + [1.0] + [0.0] * 10, 4)
    assert np.argmax(out) == 10
    assert sum(out) == pytest.approx(1)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-0.3, 0.2), (0, 1234), (1e-7, 4e-7), (5, 5.01)])
def test_ticks_are_round_and_inside(low, high):
    ticks = nice(low, high)
    assert 2 <= len(ticks) <= 6
    assert all(low - 1e-9 <= t <= high + 1e-9 for t in ticks)
    step = ticks[1] - ticks[0]
    assert round(step / 10 ** math.floor(math.log10(step) + 1e-9), 6) in (1, 2, 2.5, 5, 10)


def test_numbers_are_brief():
    values = (0, 0.12345, 1234, 2.5e6, 3e-6, -0.5)
    assert [brief(v) for v in values] == ["0", "0.123", "1.23k", "2.5M", "3e-6", "-0.5"]


def test_a_chart_is_well_formed_and_within_its_box():
    x = list(range(50))
    curve = Series("a", x, [math.sin(v) for v in x], [-2.0] * 50, [2.0] * 50)
    level = Series("<b>", x, [0.5] * 50, colour=1, row=1)
    svg, numbers = draw(Curve("c", [curve, level], y='a "b"', end=99))
    root = ET.fromstring(svg)
    points = [p.split(",") for e in root.iter("polyline") for p in e.get("points").split()]
    assert len(points) == 100
    assert all(TOP - 1 <= float(y) <= 136 for _, y in points)
    assert numbers["span"] == (0, 99)
    assert set(numbers["y"]) == {"a", "<b>"}
    assert [e.get("data-row") for e in root.iter("g")] == ["1"]


def test_one_point_a_level_and_a_spike_can_be_drawn():
    for y in ([0.0], [0.0, 0.0], [3.0, 3.0, 3.0], [1.0] * 40 + [1e6]):
        svg, _ = draw(Curve("c", [Series("", list(range(len(y))), y)]))
        assert "nan" not in ET.tostring(ET.fromstring(svg), encoding="unicode")
    assert ">1M<" in svg  # by powers of ten: the level is not pressed to the floor
    assert ">10<" in svg or ">100<" in svg
