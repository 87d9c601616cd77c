"""knows_sum: is this sum right? Prompts that a person can read, in English and in Chinese."""

import zlib

import torch

from rlzoo import Example, component


@component("task")
class KnowsSum:
    """For `Is 1+1=3?` the right response is `No, 1+1=2.` and EOS; for `你知道1+1=2吗？` it is
    `知道，1+1=2。` and EOS. Half of the claimed sums are right; all sums have one digit.

    Score (B,): 1.0 if the text is right and the row terminated, else 0.0.
    Source: the documentation of rlzoo.
    """

    one_answer = True  # the only right response is `Example.answer`, then EOS

    def __init__(self, *, chinese: bool = False):
        self.chinese = chinese  # half of the prompts are then Chinese

    def draw(self, split, n, generator):
        """n examples. A fifth of the prompts is held out, by a hash of the prompt."""
        examples = []
        while len(examples) < n:
            numbers = torch.randint(10, (5,), generator=generator).tolist()
            a, b, claim, right, chinese = numbers
            if a + b > 9:
                continue
            claim = a + b if right < 5 else claim
            sum_, knows = f"{a}+{b}={a + b}", claim == a + b
            if self.chinese and chinese < 5:
                prompt = f"你知道{a}+{b}={claim}吗？"
                answer = f"{'知道' if knows else '不对'}，{sum_}。"
            else:
                prompt, answer = f"Is {a}+{b}={claim}?", f"{'Yes' if knows else 'No'}, {sum_}."
            if (zlib.crc32(prompt.encode()) % 5 == 0) == (split == "test"):
                examples.append(Example(prompt, answer))
        return examples

    def score(self, responses, answers, terminated):
        return (self.is_correct(responses, answers) & terminated.cpu()).float()  # (B,)

    def is_correct(self, responses, answers):
        return torch.tensor([r == a for r, a in zip(responses, answers, strict=True)])  # (B,)

    def demonstrate(self, example, generator):
        """A right and a wrong response, for the warm start."""
        return example.answer, example.answer[:-2] + "?" + example.answer[-1]
