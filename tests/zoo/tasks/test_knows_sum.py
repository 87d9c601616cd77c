"""knows_sum: the demonstrations are right and wrong in one place, and a fifth is held out."""

import re

import torch

from rlzoo_zoo.tasks.knows_sum import KnowsSum


def drawn(split, seed=0, **options):
    return KnowsSum(**options).draw(split, 2000, torch.Generator().manual_seed(seed))


def test_a_fifth_is_held_out_whatever_the_seed():
    train, held_out = ({e.prompt for s in range(3) for e in drawn(x, s)} for x in ("train", "test"))
    assert not train & held_out
    assert 0.15 < len(held_out) / len(train | held_out) < 0.25
    assert "你知道1+1=2吗？" in held_out
    assert not any("你" in e.prompt for e in drawn("train", chinese=False))


def test_an_answer_says_whether_the_claim_is_the_sum():
    for e in drawn("train"):
        a, b, claim = map(int, re.findall(r"\d", e.prompt))
        assert e.answer.startswith(("Yes", "知道")) == (a + b == claim)
        assert f"{a}+{b}={a + b}" in e.answer
        assert ("。" in e.answer) == ("你" in e.prompt)


def test_a_wrong_demonstration_differs_from_the_right_one_in_its_word_or_its_sum():
    task, generator = KnowsSum(), torch.Generator().manual_seed(0)
    rows = [task.demonstrate(e, generator) for e in drawn("train")]
    right, wrong = zip(*rows, strict=True)
    ended = torch.ones(2000, dtype=torch.bool)
    assert task.score(right, right, ended).tolist() == [1.0] * 2000
    assert task.score(right, right, ~ended).tolist() == [0.0] * 2000
    assert task.score(wrong, right, ended).tolist() == [0.0] * 2000
    word = sum(r[:-1].endswith(w[-5:-1]) for r, w in rows)
    assert 0.07 < word / 2000 < 0.13
