"""The answer must score higher than other texts: rewards with one mistake, and correct ones."""

import re

import pytest
import torch

from rlzoo import hookimpl
from rlzoo.plugin.registry import load_zoo
from rlzoo_lab.kit import checks
from rlzoo_lab.kit.checks.others import right_beats_wrong
from rlzoo_lab.kit.checks.subject import Subject


def each(responses, answers, judge):
    return torch.tensor([float(judge(r, a)) for r, a in zip(responses, answers, strict=True)])


def only_the_last_digit(responses, answers):
    """1 where the last digit fits, (B,). Source: a test."""
    return each(responses, answers, lambda r, a: re.findall(r"\d", r)[-1:] == list(a[-1]))


def the_start_is_enough(responses, answers):
    """1 for each start of the answer, (B,). Source: a test."""
    return each(responses, answers, lambda r, a: a.startswith(r))


def another_row(responses, answers):
    """1 where the prompt before's answer is given, (B,). Source: a test."""
    return each(responses, answers[-2:] + answers[:-2], str.__eq__)


def longer_is_better(responses, answers):
    """The length, and 1 where right, (B,). Source: a test."""
    return each(responses, answers, lambda r, a: (r == a) + len(r))


def turned(responses, answers):
    """-1 where right, (B,). Source: a test."""
    return -each(responses, answers, str.__eq__)


def exact(responses, answers):
    """1 where right, (B,). Source: a test."""
    return each(responses, answers, str.__eq__)


def close(responses, answers):
    """Half for the right text, half for the share of right characters, (B,). Source: a test."""
    return each(responses, answers, lambda r, a: 0.5 * (r == a) + 0.5 * (len(r) == len(a)) * sum(
        map(str.__eq__, r, a)) / len(a))  # fmt: skip


def tagged(responses, answers):
    """1 where the answer is between tags, (B,). Source: a test."""
    return each(responses, answers, lambda r, a: r == f"<answer>{a}</answer>")


def brief(responses, answers):
    """The same, less 0.01 for each character, (B,). Source: a test."""
    return tagged(responses, answers) - 0.01 * each(responses, answers, lambda r, _: len(r))


def other_format(responses, answers):
    """1 where the answer is in words, (B,). Source: a test."""
    return each(responses, answers, lambda r, a: r == f"The answer is {a}.")


BROKEN = (only_the_last_digit, the_start_is_enough, another_row, longer_is_better, turned)
SOUND = (exact, close, tagged, brief, other_format)


class Plugin:
    @staticmethod
    @hookimpl
    def register_rewards(register):
        for reward in (*BROKEN, *SOUND):
            register(reward)


@pytest.fixture(scope="module")
def zoo():
    return load_zoo(plugins=[Plugin])


@pytest.mark.parametrize("name", [f.__name__ for f in BROKEN])
def test_a_reward_that_pays_other_texts_as_much_fails(zoo, name):
    result = checks.judge(right_beats_wrong, Subject(zoo.rewards[name], zoo))
    assert result.passed is False, result
    assert not result.message.startswith("raised")


@pytest.mark.parametrize("name", [f.__name__ for f in SOUND])
def test_a_correct_reward_does_not_fail(zoo, name):
    result = checks.judge(right_beats_wrong, Subject(zoo.rewards[name], zoo))
    assert result.passed is (None if name == "other_format" else True), result
