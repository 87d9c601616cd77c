"""Spelling: a hidden style for each letter, with many small rewards along one response."""

import zlib
from itertools import accumulate
from typing import Annotated, Literal

import torch

from rlzoo import Example, Range, component
from rlzoo_zoo.tasks.outcomes import by_token


@component("task")
class Spelling:
    """Each letter of the prompt is written `copies` times in lower or upper case: `bad>` might need
    `bBBaaAdDd`, then EOS. Each letter has a style, which only the reward reveals.

    The style is the same in every prompt; held-out prompts have other letters in other orders.
    Prompts have L letters, L in min_length .. max_length, uniform among the first `alphabet`.
    `book` selects a set of styles: a base model trained on other books in equal parts has learned
    the format but chooses styles at random. Score (B, T), pay=word: the last character of a word
    has a reward of 1/L if the whole word is correct, so a choice is rewarded up to copies - 1
    tokens later, and a row sums to the share of correct words. Score (B,), pay=end: the same sum at
    the last token. The first needs short-range credit: lam = 1 includes every later word, lam = 0
    only the critic's prediction.
    Source: based on the delayed and the immediate rewards of Sutton 1988, doi:10.1007/BF00115009.
    """

    def __init__(
        self,
        *,
        min_length: Annotated[int, Range(1, 12)] = 8,
        max_length: Annotated[int, Range(1, 12)] = 8,
        copies: Annotated[int, Range(1, 6)] = 3,
        alphabet: Annotated[int, Range(2, 26)] = 8,
        book: Annotated[int, Range(0)] = 0,
        pay: Literal["word", "end"] = "word",
    ):
        if min_length > max_length:
            raise ValueError(f"min_length={min_length} is above max_length={max_length}")
        self.min_length, self.max_length = min_length, max_length
        self.copies, self.pay = copies, pay
        self.words = {c: self._word(c, book) for c in map(chr, range(97, 97 + alphabet))}

    def _word(self, letter, book):
        style = zlib.crc32(f"{book}{letter}".encode()) >> 7
        return "".join(letter.upper() if style >> i & 1 else letter for i in range(self.copies))

    def draw(self, split, n, generator):
        # Which fifth of the prompts is held out depends only on the prompt, never on a seed.
        examples: list[Example] = []
        while len(examples) < n:
            span = (self.min_length, self.max_length + 1)
            length = int(torch.randint(*span, (), generator=generator))
            picks = torch.randint(len(self.words), (length,), generator=generator).tolist()
            text = "".join(chr(97 + i) for i in picks)
            if (zlib.crc32(f"{text}>".encode()) % 5 == 0) == (split == "test"):
                answer = "".join(self.words[c] for c in text)
                examples.append(Example(f"{text}>", answer, int(text, 36)))
        return examples

    def score(self, response_tokens, response_mask, answers):
        scores = by_token(map(self.token_rewards, response_tokens, answers), response_mask)
        return scores if self.pay == "word" else scores.sum(1)

    def token_rewards(self, tokens, answer):
        text, size = "".join(tokens), self.copies
        starts = range(0, len(answer), size)
        right = [text[at : at + size] == answer[at : at + size] for at in starts]
        # Right words among the first n characters, paid at the token that holds the last.
        hits = [sum(right[: n // size]) for n in accumulate(map(len, tokens))]
        return [(b - a) / len(right) for a, b in zip([0, *hits], hits, strict=False)]

    def demonstrate(self, example, generator):
        right = wrong = example.answer
        while wrong == right:
            capital = torch.randint(2, (len(right),), generator=generator).tolist()
            pairs = zip(right, capital, strict=True)
            wrong = "".join(c.upper() if big else c.lower() for c, big in pairs)
        return right, wrong
