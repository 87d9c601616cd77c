"""Is this sum right? Prompts that a person can read, in English and in Chinese."""

import zlib

import torch

from rlzoo import Example, component
from rlzoo_zoo.tasks.outcomes import OneAnswer, outcome

OTHER = {"Yes": "No", "No": "Yes", "知道": "不对", "不对": "知道"}


@component("task")
class KnowsSum(OneAnswer):
    """For `Is 1+1=3?` the correct response is `No, 1+1=2.` and EOS; for `你知道1+1=2吗？` it is
    `知道，1+1=2。` and EOS.

    About half of the claimed sums are correct, and all sums have one digit. A fifth of the prompts
    is held out. chinese: half of the prompts are Chinese. Score (B,): 1.0 if the response is
    correct and the row terminated, otherwise 0.0.
    Source: rlzoo.
    """

    def __init__(self, *, chinese: bool = True):
        self.chinese = chinese

    def draw(self, split, n, generator):
        # Which fifth of the prompts is held out depends only on the prompt, never on a seed.
        examples: list[Example] = []
        while len(examples) < n:
            a, b, claim, right, chinese = torch.randint(10, (5,), generator=generator).tolist()
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
        return outcome(self.is_correct(responses, answers), terminated)

    def demonstrate(self, example, generator):
        """The wrong one has another sum, or the other word."""
        word = next(word for word in OTHER if example.answer.startswith(word))
        claim, end = example.answer[len(word) : -2], example.answer[-1]
        by = int(torch.randint(10, (), generator=generator))
        sum_ = (int(example.answer[-2]) + by) % 10
        return example.answer, f"{word if by else OTHER[word]}{claim}{sum_}{end}"
