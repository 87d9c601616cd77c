"""sort3: three digits in order, a task of one's own."""

import zlib

import torch

from rlzoo import Example, hookimpl


class Sort3:
    """Three digits are to be sorted: the prompt is `312>`, the right response `123`, EOS.

    Score (B,): 1.0 where the text is right and the row terminated, else 0.0.
    Source: the documentation of rlzoo.
    """

    one_answer = True  # right is `Example.answer`, then EOS, and nothing else

    def draw(self, split, n, generator):
        """n examples; which fifth of the prompts is held out depends on the prompt alone."""
        examples = []
        while len(examples) < n:
            number = int(torch.randint(1000, (), generator=generator))
            prompt = f"{number:03d}>"
            if (zlib.crc32(prompt.encode()) % 5 == 0) == (split == "test"):
                examples.append(Example(prompt, "".join(sorted(prompt[:3])), number))
        return examples

    def score(self, responses, answers, terminated):
        return (self.is_correct(responses, answers) & terminated.cpu()).float()  # (B,)

    def is_correct(self, responses, answers):
        return torch.tensor([r == a for r, a in zip(responses, answers, strict=True)])  # (B,)

    def demonstrate(self, example, generator):
        """A right and a wrong response, for the warm start of a base model."""
        return example.answer, "?" + example.answer[1:]


@hookimpl
def register_tasks(register):
    register(Sort3)
