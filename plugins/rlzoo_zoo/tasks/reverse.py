"""Reverse: writes a string backwards, with a reward per token or for the whole."""

import zlib
from operator import eq
from typing import Annotated

import torch

from rlzoo import Example, Range, component
from rlzoo_zoo.tasks.outcomes import OneAnswer, by_token, outcome


@component("task")
class Reverse(OneAnswer):
    """Write a string backwards: the prompt is `abcd>`, and the correct response is `dcba` followed
    by EOS.

    The length L is uniform in min_length .. max_length, each letter in the first `letters` of the
    alphabet. separator: whether the prompt ends with `>`. fixed: the correct response has no EOS,
    for rollout.ignore_eos, and no prompt is held out, since few letters make few prompts.
    Sparse score (B,): 1.0 if the text is correct and the row terminated, otherwise 0.0. Dense score
    (B, T): a token has a reward of 1/(L+1) for each of its characters in the correct place, and EOS
    1/(L+1) if it comes after L characters, so a row sums to 1 only if it is correct; 1/L each if
    the response has no EOS. The dense
    score needs credit per token; the sparse score gives groups without signal.
    Source: based on the copy tasks of Graves et al. 2014, arXiv:1410.5401.
    """

    def __init__(
        self,
        *,
        min_length: Annotated[int, Range(1, 12)] = 3,
        max_length: Annotated[int, Range(1, 12)] = 5,
        dense: bool = False,
        letters: Annotated[int, Range(2, 26)] = 26,
        separator: bool = True,
        fixed: bool = False,
    ):
        if min_length > max_length:
            raise ValueError(f"min_length={min_length} is above max_length={max_length}")
        self.min_length, self.max_length, self.dense = min_length, max_length, dense
        self.letters, self.end, self.fixed = letters, ">" * separator, fixed

    def draw(self, split, n, generator):
        # Which fifth of the prompts is held out depends only on the prompt, never on a seed.
        examples: list[Example] = []
        while len(examples) < n:
            span = (self.min_length, self.max_length + 1)
            n_letters = int(torch.randint(*span, (), generator=generator))
            text = letters(n_letters, generator, self.letters)
            if self.fixed or (zlib.crc32(f"{text}>".encode()) % 5 == 0) == (split == "test"):
                examples.append(Example(text + self.end, text[::-1], int(text, 36)))
        return examples

    def score(self, responses, response_tokens, response_mask, answers, terminated):
        if not self.dense:
            return outcome(self.is_correct(responses, answers), terminated)
        ended = [None] * len(answers) if self.fixed else terminated.tolist()
        rewards = map(token_rewards, response_tokens, answers, ended)
        return by_token(rewards, response_mask)

    def demonstrate(self, example, generator):
        # A third of a wrong one's letters are drawn again: partly right, as dense credit needs.
        right = wrong = example.answer
        while wrong == right:
            keep = (torch.rand(len(right), generator=generator) < 2 / 3).tolist()
            new = letters(len(right), generator, self.letters)
            wrong = "".join(r if k else c for r, c, k in zip(right, new, keep, strict=True))
        return right, wrong


def token_rewards(tokens, answer, terminated):
    """terminated: whether it ended with EOS; None if EOS is not part of the answer."""
    rewards, place = [], 0  # place: the index of the token's first character
    for token in tokens:
        parts = len(answer) + (terminated is not None)
        rewards.append(sum(map(eq, token, answer[place:])) / parts)
        place += len(token)
    if terminated and place == len(answer):
        rewards[-1] += 1 / (len(answer) + 1)  # the last action of a terminated row is EOS
    return rewards


def letters(n, generator, alphabet=26):
    return "".join(map(chr, torch.randint(97, 97 + alphabet, (n,), generator=generator).tolist()))
