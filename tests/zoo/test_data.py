"""Rows that are held out."""

from rlzoo_zoo.data import hold_out


def test_all_rows_of_a_prompt_are_on_one_side():
    rows = [(prompt, n) for prompt in "abcd" for n in range(3)]
    training, held = hold_out(rows, lambda row: row[0], 0.5, 0)
    assert len(training) == len(held) == 6
    assert {p for p, _ in training}.isdisjoint(p for p, _ in held)
