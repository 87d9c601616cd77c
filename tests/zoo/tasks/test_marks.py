"""Marks: what a section pays, when, and what a blind demonstration shows."""

from collections import Counter

import pytest
import torch

from rlzoo_zoo.tasks.addition import Addition, without_carry
from rlzoo_zoo.tasks.marks import Marks, obey


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def rewards(task, answer, rows):
    """(B, T) or (B,) scores of rows of tokens, EOS "" at the end of a terminated one."""
    width = max(map(len, rows)) + 2
    mask = torch.zeros(len(rows), width)
    for i, row in enumerate(rows):
        mask[i, : len(row)] = 1
    ended = torch.tensor([row[-1:] == [""] for row in rows])
    return task.score(["".join(row) for row in rows], rows, mask, [answer] * len(rows), ended)


def test_commands_by_hand():
    said = [obey(command, "Babcd") for command in range(6)]
    assert said == ["B1abcd", "B2dcba", "B3bcda", "B4dabc", "B5aaaa", "B6dddd"]


def test_each_mark_wants_a_command_of_its_own():
    for commands in range(3, 7):
        if commands == 5:
            continue
        wanted = [(5 * m + 2) % commands for m in range(commands)]
        assert len(set(wanted)) == commands


@pytest.mark.parametrize("options", [{}, {"sections": 3, "commands": 3, "marks": 3}])
def test_right_is_the_wanted_command_well_obeyed(options):
    task = Marks(**options)
    for prompt, answer, _ in task.draw("test", 50, rng()):
        assert prompt.endswith(">")
        parts = [prompt[at : at + 5] for at in range(0, len(prompt) - 1, 5)]
        assert len(parts) == task.sections
        said = "".join(obey((5 * (ord(p[0]) - 65) + 2) % task.commands, p) for p in parts)
        assert said == answer


def test_a_section_is_paid_when_its_word_is_complete_whatever_the_others_are():
    task = Marks(sections=3, length=2, commands=4, dense=True)
    rows = [
        [*"A3baB4dcA3fe", ""],  # all three
        [*"A1baB4dcA3fe", ""],  # a wrong command
        [*"A3abB4dcB3fe", ""],  # a wrong word, a wrong mark
        [*"A3baB4d"],  # cut off
        ["A3b", "aB4dc", "A3f", "e", ""],  # tokens of several characters
        [*"A3baB4dcA3feA3ba", ""],  # too long: nothing more is paid
    ]
    third = 1 / 3
    expected = [
        [0, 0, 0, third, 0, 0, 0, third, 0, 0, 0, third],
        [0, 0, 0, 0, 0, 0, 0, third, 0, 0, 0, third],
        [0, 0, 0, 0, 0, 0, 0, third],
        [0, 0, 0, third],
        [0, 2 * third, 0, third],
        [0, 0, 0, third, 0, 0, 0, third, 0, 0, 0, third],
    ]
    found = rewards(task, "A3baB4dcA3fe", rows)
    for row, pays in zip(found, expected, strict=True):
        padded = pays + [0] * (len(row) - len(pays))
        assert row.tolist() == pytest.approx(padded)
    sparse = rewards(Marks(sections=3, length=2, commands=4), "A3baB4dcA3fe", rows)
    assert sparse.tolist() == [1, 0, 0, 0, 1, 0]


def test_splits_are_disjoint():
    task = Marks(length=2)
    train = {e.prompt for seed in range(3) for e in task.draw("train", 500, rng(seed))}
    test = {e.prompt for seed in range(3) for e in task.draw("test", 500, rng(seed))}
    assert len(train) > 900
    assert not train & test


def test_a_blind_demonstration_shows_each_command_as_often():
    task, generator = Marks(), rng()
    seen = Counter()
    for example in task.draw("train", 3000, generator):
        right, wrong = task.demonstrate(example, generator)
        shown = right if torch.rand((), generator=generator) < 1 / 6 else wrong
        assert shown == obey(int(shown[1]) - 1, example.prompt[:-1])
        seen[shown[:2]] += 1
    assert len(seen) == 4 * 6
    assert 80 < min(seen.values()) <= max(seen.values()) < 175  # 125 each


def test_a_forgotten_carry():
    assert without_carry(17, 25) == "32"
    assert without_carry(95, 7) == "92"
    assert without_carry(99, 1) == "90"
    task, generator = Addition(mistakes="carry"), rng()
    for example in task.draw("train", 200, generator):
        a, b = map(int, example.prompt[:-1].split("+"))
        right, wrong = task.demonstrate(example, generator)
        assert right == str(a + b)
        assert wrong != right
        if without_carry(a, b) != right:
            assert wrong == without_carry(a, b)
