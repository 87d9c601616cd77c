"""Addition: a verifiable answer of a few characters."""

import zlib
from typing import Annotated, Literal

import torch

from rlzoo import Example, Range, component
from rlzoo_zoo.tasks.outcomes import OneAnswer, outcome


@component("task")
class Addition(OneAnswer):
    """Add two numbers: the prompt is `17+25=`, and the correct response is `42` followed by EOS.

    Both operands are uniform in 0 .. 10^d - 1, without leading zeros, where d is `digits`, or with
    `min_digits`, random for each prompt in min_digits .. digits, for mixed difficulty. `mistakes`
    affects only wrong demonstrations: `any` digits, or a forgotten `carry`. Score (B,): 1.0 if the
    text equals the sum exactly and the row terminated, otherwise 0.0.
    Source: verified by rule, as DeepSeek-AI 2025, arXiv:2501.12948.
    """

    def __init__(
        self,
        *,
        digits: Annotated[int, Range(1, 6)] = 2,
        min_digits: Annotated[int | None, Range(1, 6)] = None,
        mistakes: Literal["any", "carry"] = "any",
    ):
        if min_digits is not None and min_digits > digits:
            raise ValueError(f"min_digits must be at most digits. Got {min_digits} > {digits}")
        self.size, self.mistakes = 10**digits, mistakes
        self.sizes = [10**d for d in range(min_digits or digits, digits + 1)]

    def draw(self, split, n, generator):
        # Which fifth of the prompts is held out depends only on the prompt, never on a seed.
        examples: list[Example] = []
        while len(examples) < n:
            for a, b in self._operands(n - len(examples), generator):
                prompt = f"{a}+{b}="
                if (zlib.crc32(prompt.encode()) % 5 == 0) == (split == "test"):
                    examples.append(Example(prompt, str(a + b), a * self.size + b))
        return examples

    def _operands(self, n, generator):
        """n pairs of operands. In one draw where they are of one size: the numbers are the same."""
        if len(self.sizes) == 1:
            return torch.randint(self.size, (n, 2), generator=generator).tolist()
        pairs = []
        for _ in range(n):
            size = self.sizes[int(torch.randint(len(self.sizes), (), generator=generator))]
            pairs.append(torch.randint(size, (2,), generator=generator).tolist())
        return pairs

    def score(self, responses, answers, terminated):
        return outcome(self.is_correct(responses, answers), terminated)

    def demonstrate(self, example, generator):
        # About half of a wrong sum's digits are drawn again: the wrong ones are spread so widely
        # that none of them rivals the right one as the most likely answer.
        right = wrong = example.answer
        if self.mistakes == "carry":
            wrong = without_carry(*divmod(example.index, self.size))
        while wrong == right or (len(wrong) > 1 and wrong[0] == "0"):
            new = torch.randint(10, (len(right),), generator=generator).tolist()
            keep = (torch.rand(len(right), generator=generator) < 0.5).tolist()
            wrong = "".join(r if k else str(d) for r, d, k in zip(right, new, keep, strict=True))
        return right, wrong


def without_carry(a, b):
    """a + b, each place by itself modulo ten: 17 and 25 are 32."""
    places = [10**i for i in range(max(len(str(a)), len(str(b))))]
    return str(sum((a // p % 10 + b // p % 10) % 10 * p for p in places))
