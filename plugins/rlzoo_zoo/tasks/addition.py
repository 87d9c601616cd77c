"""Addition: the headline task, a verifiable answer of a few characters."""

import zlib
from typing import Annotated

import torch

from rlzoo import Example, Range, hookimpl


class Addition:
    """Two numbers are to be added: the prompt is `17+25=`, right is `42` and then EOS.

    Both operands are uniform in 0 .. 10^digits - 1, without leading zeros.
    Score (B,): 1.0 where the text equals the sum exactly and the row terminated, else 0.0.
    Source: verified by rule, as DeepSeek-AI 2025, arXiv:2501.12948.
    """

    def __init__(self, *, digits: Annotated[int, Range(1, 6)] = 2):
        self.size = 10**digits

    def draw(self, split, n, generator):
        # Which fifth of the prompts is held out depends on the prompt alone, never on a seed.
        examples: list[Example] = []
        while len(examples) < n:
            a, b = torch.randint(self.size, (2,), generator=generator).tolist()
            prompt = f"{a}+{b}="
            if (zlib.crc32(prompt.encode()) % 5 == 0) == (split == "test"):
                examples.append(Example(prompt, str(a + b), a * self.size + b))
        return examples

    def score(self, responses, answers, terminated):
        return (self.is_correct(responses, answers).to(terminated.device) & terminated).float()

    def is_correct(self, responses, answers):
        return torch.tensor([r == a for r, a in zip(responses, answers, strict=True)])  # (B,)

    def demonstrate(self, example, generator):
        # About half of a wrong sum's digits are drawn anew: the wrong ones are spread so widely
        # that none of them rivals the right one as the most likely answer.
        right = wrong = example.answer
        while wrong == right or (len(wrong) > 1 and wrong[0] == "0"):
            new = torch.randint(10, (len(right),), generator=generator).tolist()
            keep = (torch.rand(len(right), generator=generator) < 0.5).tolist()
            wrong = "".join(r if k else str(d) for r, d, k in zip(right, new, keep, strict=True))
        return right, wrong


@hookimpl
def register_tasks(register):
    register(Addition)
