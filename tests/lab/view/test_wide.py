"""A table that is wider than the terminal."""

import io
import re

import pytest
from rich import box

from rlzoo.format.console import SafeConsole
from rlzoo_lab.view.terminal import WideTable


def shown(table, width=60):
    file = io.StringIO()
    SafeConsole(file=file, force_terminal=True, width=width).print(table)
    return file.getvalue()


def wide_table():
    """Seven columns of numbers, of which the first two name a row."""
    table = WideTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title="wide")
    table.add_column("estimator", overflow="fold", style="bold")
    table.add_column("critic", no_wrap=True, justify="left")
    for i in range(7):
        table.add_column(f"number {i}", no_wrap=True, justify="right")
    for name in ("gae lam=0.95", "gae_length_adaptive"):
        table.add_row(name, "exact", *(f"{i}.12345" for i in range(7)))
    return table


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_table_that_is_too_wide_becomes_several_and_loses_nothing(width):
    lines = shown(wide_table(), width=width).splitlines()
    plain = [re.sub(r"\x1b[^m]*m", "", line) for line in lines]
    assert max(map(len, plain)) <= width
    text = "\n".join(plain)
    assert "…" not in text
    assert text.count("wide") == 1
    for i in range(7):
        assert text.count(f"number {i}") == 1
        assert text.count(f"{i}.12345") == 2
    assert text.count("estimator") == text.count("critic") > 1
    assert text.count("gae lam=0.95") >= 1


def test_a_table_that_fits_stays_one():
    text = shown(wide_table(), width=120)
    assert text.count("critic") == 1
    samples = WideTable()
    for name in ("prompt", "response"):
        samples.add_column(name, overflow="fold")
    samples.add_column("score", justify="right")
    samples.add_row("x" * 200, "y" * 200, "1.00")
    assert shown(samples).count("prompt") == 1  # its texts fold


@pytest.mark.parametrize("width", [48, 60])
def test_texts_fold_before_a_number_is_cut(width):
    samples = WideTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 0))
    samples.add_column("step", justify="right", no_wrap=True)
    for name in ("prompt", "response", "answer"):
        samples.add_column(name, justify="left", no_wrap=True, overflow="fold")
    samples.add_column("score", justify="right", no_wrap=True)
    samples.add_row("12", "P" * 9, "R" * 24, "A" * 24, "0.38")
    plain = re.sub(r"\x1b[^m]*m", "", shown(samples, width=width))
    assert max(map(len, plain.splitlines())) <= width
    assert [plain.count(x) for x in "PRA"] == [9, 24, 24]
    assert all(word in plain for word in ("step", "score", "0.38"))
