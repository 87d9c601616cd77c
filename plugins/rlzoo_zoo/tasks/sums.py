"""Sums: small sums as questions in words, for pretrained models."""

import zlib
from typing import Annotated

import torch

from rlzoo import Example, Range, component
from rlzoo_zoo.rewards.numeric import numeric
from rlzoo_zoo.tasks.outcomes import outcome


@component("task")
class Sums:
    """Add two numbers: the prompt is `What is 7 + 5?`, and a response is correct if its last number
    is 12.

    Both operands are uniform in 0 .. highest; a fifth of the prompts is held out.
    Score (B,): 1.0 if the last number is the sum and the row terminated, otherwise 0.0.
    Source: the last number, as in Cobbe et al. 2021 (GSM8K), arXiv:2110.14168.
    """

    def __init__(
        self,
        *,
        highest: Annotated[int, Range(1, 10**6)] = 15,
        template: Annotated[str, "{a} and {b} are the numbers"] = "What is {a} + {b}?",
    ):
        if any(place not in template for place in ("{a}", "{b}")):
            raise ValueError(f"template must contain {{a}} and {{b}}. Got {template!r}")
        self.highest, self.template = highest, template

    def draw(self, split, n, generator):
        # Which fifth of the prompts is held out depends only on the numbers, never on a seed.
        examples: list[Example] = []
        while len(examples) < n:
            a, b = torch.randint(self.highest + 1, (2,), generator=generator).tolist()
            if (zlib.crc32(f"{a}+{b}".encode()) % 5 == 0) == (split == "test"):
                prompt = self.template.replace("{a}", str(a)).replace("{b}", str(b))
                examples.append(Example(prompt, str(a + b), a * (self.highest + 1) + b))
        return examples

    def score(self, responses, answers, terminated):
        return outcome(self.is_correct(responses, answers), terminated)

    def is_correct(self, responses, answers):
        return numeric(responses, answers) > 0  # (B,)
