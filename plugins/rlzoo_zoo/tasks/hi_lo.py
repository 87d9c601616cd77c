"""Hi-lo: guess a number in turns; after each guess the environment answers higher or lower."""

from typing import Annotated

import torch

from rlzoo import Example, Range, component
from rlzoo_zoo.tasks.outcomes import LastTurn


@component("task")
class HiLo(LastTurn):
    """Find a number from 1 to `high` in `turns` guesses: the prompt is `1-15:`, each turn of the
    policy is a guess, and the environment answers ` hi ` if the number is higher, ` lo ` if it is
    lower, ` no ` if the guess is invalid. `1-15:8 hi 12 lo 10` is a success.

    Score (B,): 1.0 if the last guess is the number, otherwise 0.0. An episode ends at the number or
    after `turns` guesses. State key: the remaining interval and the number of guesses. There is
    only ONE prompt, and only the number differs, so held-out accuracy shows learning, not
    generalization. Bisection always finds it if high < 2^turns; guesses that ignore the answers
    succeed with probability 1 - (1 - 1/high)^turns, 0.24 by default.
    Source: none; a number-guessing game.
    """

    def __init__(
        self,
        *,
        high: Annotated[int, Range(2, 999)] = 15,
        turns: Annotated[int, Range(1, 20)] = 4,
    ):
        self.high, self.turns = high, turns

    def draw(self, split, n, generator):
        numbers = torch.randint(1, self.high + 1, (n,), generator=generator).tolist()
        return [Example(f"1-{self.high}:", str(number), number) for number in numbers]

    def respond(self, turns, answers):
        return [self.answer(t, int(a)) for t, a in zip(turns, answers, strict=True)]

    def answer(self, turns, number):
        guess = self.read(turns[-1])
        if guess == number or len(turns[::2]) >= self.turns:
            return None
        if guess is None:
            return " no "
        return " hi " if number > guess else " lo "

    def read(self, text):
        """The guess that a text is: one of the numbers, without leading zeros, or None."""
        fits = text.isascii() and text.isdigit() and text[0] != "0" and len(text) < 4
        return int(text) if fits and 1 <= int(text) <= self.high else None

    def interval(self, turns):
        """(low, high) of what the answers leave."""
        low, high = 1, self.high
        for said, heard in zip(turns[::2], turns[1::2], strict=False):
            guess = self.read(said)
            if guess is not None:
                low = max(low, guess + 1) if heard == " hi " else low
                high = min(high, guess - 1) if heard == " lo " else high
        return low, high

    def state_keys(self, turns):
        return [(*self.interval(t), len(t) // 2) for t in turns]

    def demonstrate(self, example, generator):
        # Right: halving, and luck where that takes too long. Wrong: guesses that heed no answer
        # and miss; worth imitating only for their form.
        number = int(example.answer)
        right: list[str] = []
        wrong: list[str] = []
        for left in reversed(range(self.turns)):
            low, high = self.interval(right)
            guess = (low + high) // 2 if left else number
            right.append(str(guess))
            if guess == number:
                break
            right.append(self.answer(right, number))
        for left in reversed(range(self.turns)):
            guess = int(torch.randint(1, self.high, (), generator=generator))
            wrong.append(str(guess + (guess >= number)))
            wrong += [self.answer(wrong, number)] if left else []
        return right, wrong
