"""Addition: the headline task, a verifiable answer of two to four characters."""

import zlib
from typing import Annotated

import torch

from rlzoo import Example, Range, hookimpl


class Addition:
    """Two numbers are to be added: the prompt is `17+25=`, the right response `42` and then EOS.

    Both operands are uniform in 0 .. 10^digits - 1 and written without leading zeros.
    Score (B,): 1.0 where the text equals the sum exactly and the row terminated, else 0.0.
    Source: the arithmetic verifier of TinyZero-style work; ALGORITHMS.md section 7.
    """

    def __init__(self, *, digits: Annotated[int, Range(1, 6)] = 2):
        self.size = 10**digits

    def draw(self, split, n, generator):
        """n examples; which fifth of the prompts is held out depends on the prompt alone."""
        examples = []
        while len(examples) < n:
            pairs = torch.randint(self.size, (2 * n, 2), generator=generator).tolist()
            for a, b in pairs:
                prompt = f"{a}+{b}="
                if (zlib.crc32(prompt.encode()) % 5 == 0) == (split == "test"):
                    examples.append(Example(prompt, str(a + b), a * self.size + b))
        return examples[:n]

    def score(self, responses, answers, terminated):
        return (self.is_correct(responses, answers) & terminated.cpu()).float()  # (B,)

    def is_correct(self, responses, answers):
        return torch.tensor([r == a for r, a in zip(responses, answers, strict=True)])  # (B,)

    def demonstrate(self, example, generator):
        # Wrong sums are spread over every number of the same length, so that no single one of
        # them rivals the right sum and the most likely answer of a warm start is still right.
        low = 10 ** (len(example.answer) - 1) if len(example.answer) > 1 else 0
        high = min(10 ** len(example.answer), 2 * self.size - 1)  # the largest sum is 2 size - 2
        wrong = low + int(torch.randint(high - low - 1, (), generator=generator))
        wrong += wrong >= int(example.answer)  # step over the right one
        return example.answer, str(wrong)


@hookimpl
def register_tasks(register):
    register(Addition)
