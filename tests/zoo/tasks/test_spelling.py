"""Spelling: what is paid, when, and that nothing but reward tells the style."""

import pytest
import torch

from rlzoo_zoo.tasks.spelling import Spelling


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def paid(task, tokens, answer):
    """(T,) what each token of one response is paid; one hole in the mask after the first."""
    mask = torch.ones(1, len(tokens) + 1)
    mask[0, 1] = 0
    scores = task.score([tokens], mask, [answer])[0]
    assert scores[1] == 0
    return scores[mask[0] > 0].tolist()


def test_splits_are_disjoint_and_answers_spell_the_prompt():
    task = Spelling(min_length=2, max_length=4, alphabet=5)
    train, test = (task.draw(split, 400, rng()) for split in ("train", "test"))
    assert not {e.prompt for e in train} & {e.prompt for e in test}
    assert train == task.draw("train", 400, rng()) != task.draw("train", 400, rng(1))
    assert {len(e.prompt) for e in train} == {3, 4, 5}
    for e in train:
        assert e.answer.lower() == "".join(3 * c for c in e.prompt[:-1])
        assert e.answer == "".join(task.words[c] for c in e.prompt[:-1])
        assert 0 <= e.index < 2**63


def test_books_differ_and_leave_no_letter_its_style():
    books = [Spelling(book=b).words for b in range(5)]
    assert books[0] not in books[1:]
    # What the other four show is no hint: over places, they agree with this book half the time.
    same = [b[c][i] == books[0][c][i] for b in books[1:] for c in b for i in range(3)]
    assert 0.35 < sum(same) / len(same) < 0.65


def test_pay_by_hand():
    task = Spelling(copies=2)
    answer = "aAbBcc"
    whole = [*"aAbBcc", ""]
    assert sum(paid(task, whole, answer)) == pytest.approx(1)
    mixed = paid(task, [*"aAbbcc", ""], answer)
    third = pytest.approx(1 / 3)
    assert mixed == [0, third, 0, 0, 0, third, 0]
    assert paid(task, ["aAb", "Bcc"], answer) == [third, pytest.approx(2 / 3)]
    assert sum(paid(task, [*"aaAbBcc"], answer)) == 0  # shifted
    assert paid(task, ["a"], answer) == [0]  # cut off
    assert sum(paid(task, [*"aAbBccdd"], answer)) == pytest.approx(1)  # more is not paid
    late = Spelling(copies=2, pay="end")
    total = late.score([[*"aAbbcc", ""]], torch.ones(1, 7), [answer])
    assert total.tolist() == [pytest.approx(2 / 3)]  # the same sum, for the last token


def test_demonstrations_are_right_and_blind():
    task, generator = Spelling(), rng()
    pairs = [(e, *task.demonstrate(e, generator)) for e in task.draw("train", 60, generator)]
    for example, right, wrong in pairs:
        assert right == example.answer != wrong
        assert right.lower() == wrong.lower()
    same = [a == b for _, right, wrong in pairs for a, b in zip(right, wrong, strict=True)]
    assert 0.45 < sum(same) / len(same) < 0.55


def test_lengths_are_in_order(golden):
    with golden.refuses(ValueError):
        Spelling(min_length=9)
