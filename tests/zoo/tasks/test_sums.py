"""Sums for pretrained models: which are held out, and which responses are right."""

import pytest
import torch

from rlzoo_zoo.tasks.sums import Sums


def drawn(task, split, seed=0, n=2000):
    return task.draw(split, n, torch.Generator().manual_seed(seed))


def test_a_fifth_is_held_out_whatever_the_seed():
    task = Sums()
    train = {e.prompt for seed in range(3) for e in drawn(task, "train", seed)}
    held_out = {e.prompt for seed in range(3) for e in drawn(task, "test", seed)}
    assert not train & held_out
    assert len(train | held_out) == 16 * 16
    assert len(held_out) == 48


def test_a_prompt_asks_for_the_answer_and_has_a_number_of_its_own():
    rows = drawn(Sums(highest=30, template="{a} plus {b}:"), "train")
    for row in rows:
        a, b = row.prompt.removesuffix(":").split(" plus ")
        assert int(row.answer) == int(a) + int(b)
        assert int(a) in range(31)
        assert int(b) in range(31)
    assert len({e.index for e in rows}) == len({e.prompt for e in rows})


@pytest.mark.parametrize(
    ("response", "ended", "right"),
    [
        ("7 + 5 equals 12.", True, 1.0),
        ("12", True, 1.0),
        ("7 + 5 equals 12.", False, 0.0),
        ("12 is 7 + 5", True, 0.0),  # the last number counts
        ("112", True, 0.0),
        ("twelve", True, 0.0),
    ],
)
def test_the_last_number_of_a_response_that_ends_counts(response, ended, right):
    found = Sums().score([response], ["12"], torch.tensor([ended]))
    assert found.dtype == torch.float32
    assert found.tolist() == [right]


def test_a_template_needs_both_numbers(golden):
    with golden.refuses(ValueError):
        Sums(template="What is {a}?")
