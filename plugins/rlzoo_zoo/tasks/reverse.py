"""Reverse: a string backwards, paid token by token or all or nothing."""

import zlib
from typing import Annotated

import torch

from rlzoo import Example, Range, hookimpl


class Reverse:
    """A string is to be written backwards: the prompt is `abcd>`, the right response `dcba`, EOS.

    The length L is uniform in min_length .. max_length, each letter uniform in a .. z.
    Sparse score (B,): 1.0 where the text is right and the row terminated, else 0.0.
    Dense score (B, T): a token pays 1/(L+1) for each of its characters that stands in its right
    place, and EOS pays 1/(L+1) after exactly L characters: a row sums to 1 iff it is right.
    Dense against sparse tells credit per token from credit per trajectory; the sparse form also
    makes groups without signal.  Source: ALGORITHMS.md section 7.
    """

    def __init__(
        self,
        *,
        min_length: Annotated[int, Range(1, 12)] = 3,
        max_length: Annotated[int, Range(1, 12)] = 5,
        dense: bool = False,
    ):
        if min_length > max_length:
            raise ValueError(f"min_length must be at most max_length={max_length}. Got {min_length}")
        self.min_length, self.max_length, self.dense = min_length, max_length, dense

    def draw(self, split, n, generator):
        """n examples; which fifth of the prompts is held out depends on the prompt alone."""
        examples = []
        while len(examples) < n:
            length = int(torch.randint(self.min_length, self.max_length + 1, (), generator=generator))
            text = random_letters(length, generator)
            if (zlib.crc32(f"{text}>".encode()) % 5 == 0) == (split == "test"):
                examples.append(Example(f"{text}>", text[::-1], int(text, 36)))
        return examples

    def score(self, responses, response_tokens, response_mask, answers, terminated):
        if not self.dense:
            return (self.is_correct(responses, answers) & terminated.cpu()).float()  # (B,)
        rows = zip(response_tokens, answers, terminated.tolist(), strict=True)
        paid = [reward for row in rows for reward in token_rewards(*row)]
        scores = torch.zeros(response_mask.shape)  # (B, T)
        scores[response_mask.cpu() > 0] = torch.tensor(paid)  # actions in row order, holes skipped
        return scores

    def is_correct(self, responses, answers):
        return torch.tensor([r == a for r, a in zip(responses, answers, strict=True)])  # (B,)

    def demonstrate(self, example, generator):
        # A wrong one has about half of its letters drawn anew: partly right, as dense credit needs.
        right = wrong = example.answer
        while wrong == right:
            new = random_letters(len(right), generator)
            keep = (torch.rand(len(right), generator=generator) < 0.5).tolist()
            wrong = "".join(r if k else c for r, c, k in zip(right, new, keep, strict=True))
        return right, wrong


def token_rewards(tokens, answer, terminated):
    """One reward per action token; `place` is where a token's first character stands."""
    share, rewards, place = 1 / (len(answer) + 1), [], 0
    for token in tokens:
        hits = sum(c == a for c, a in zip(token, answer[place:], strict=False))
        rewards.append(share * hits)
        place += len(token)
    if terminated and place == len(answer):
        rewards[-1] += share  # the last action of a terminated row is EOS
    return rewards


def random_letters(n, generator):
    return "".join(chr(97 + i) for i in torch.randint(26, (n,), generator=generator).tolist())


@hookimpl
def register_tasks(register):
    register(Reverse)
