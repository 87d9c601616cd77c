"""What pages, figures and numbers have in common."""

import re

import pytest

from rlzoo_lab.view import figure, page
from rlzoo_lab.view.numbers import count, show_bytes, sparkline, thousands, three_decimals


def test_a_page_escapes_its_text_and_has_both_themes():
    cells = [page.tag("td", "<b>"), page.tag("td", 'a"&', "left")]
    rows = [page.row(cells, "best")]
    html = page.page("<i>", [page.tag("p", "x < y"), page.table(cells, rows)], ".own { top: 0 }")
    assert "<title>&lt;i&gt;</title>" in html
    assert "<h1>&lt;i&gt;</h1>" in html
    assert '<tr class="best"><td>&lt;b&gt;</td><td class="left">a&quot;&amp;</td></tr>' in html
    assert ".own { top: 0 }" in html
    assert not re.search(r"https?:|src=|@import|<script", html)
    for variable in set(re.findall(r"var\(--(\w+)\)", html)):
        assert html.count(f"--{variable}:") == 2, variable


def test_a_figure_is_light_as_a_file(tmp_path):
    pytest.importorskip("matplotlib")

    def draw():
        drawn = figure.new_figure(2, 2)
        axes = figure.add_axes(drawn, "x", "y")
        axes.plot([0, 1], [0, 1], label="a", **figure.line(9))
        axes.plot([0, 1], [1, 0], label="b", **figure.line(0))
        figure.add_legend(drawn, axes)
        return drawn

    figure.write_figure(draw, tmp_path / "a.svg", tmp_path / "a.png")
    text = (tmp_path / "a.svg").read_text()
    assert figure.SERIES[1][0] in text
    assert "var(--" not in text
    assert len({tuple(figure.line(i).values()) for i in range(32)}) == 32


def test_numbers_and_curves_as_text():
    assert [thousands(v) for v in (12, 25188, 1.2e6, 3e9)] == ["12", "25.2k", "1.2M", "3G"]
    assert [count(v) for v in (999, 1000, 7_310_000, 2 * 10**9)] == ["999", "1 k", "7.31 M", "2 B"]
    assert [show_bytes(v) for v in (3, 1536, 2**30)] == ["3 B", "1.5 KiB", "1 GiB"]
    assert [three_decimals(v) for v in (0.5, 0, 2e-5)] == ["0.500", "0.000", "2e-05"]
    assert sparkline([]) == sparkline([float("nan")]) == ""
    assert sparkline([0, 1]) == "▁█"
    assert sparkline([0.5], scale=(0, 0.5)) == "█"
