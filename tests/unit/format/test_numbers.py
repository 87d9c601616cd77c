"""Numbers as text."""

from rlzoo_lab.view.numbers import number


def test_a_tiny_number_is_not_nothing_whatever_its_sign():
    assert number(2e-5) == "2e-05"
    assert number(-2e-5) == "-2e-05"
    assert number(0.0) == "0"
