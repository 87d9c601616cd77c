"""sort3: sort three digits; an example of a custom task."""

import zlib

import torch

from rlzoo import Example, component


@component("task")
class Sort3:
    """Sort three digits: for the prompt `312>`, the right response is `123` and EOS.

    Score (B,): 1.0 if the text is right and the row terminated, else 0.0.
    Source: the documentation of rlzoo.
    """

    one_answer = True  # the only right response is `Example.answer`, then EOS

    def draw(self, split, n, generator):
        """n examples. A fifth of the prompts is held out, by a hash of the prompt."""
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
        """A right and a wrong response, for the warm start."""
        return example.answer, "?" + example.answer[1:]
