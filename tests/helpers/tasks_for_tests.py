"""A conversation to test with: answers of every kind to a policy that says anything."""

import torch

from rlzoo import Example, hookimpl


class Echo:
    """The environment answers a turn with its letters backwards, a `?` with `!!`, an empty turn
    with nothing; it is over after `z`, or after four turns. A turn also ends with `?` or `xy`.
    Source: the tests.
    """

    stops = ("?", "xy")

    def draw(self, split, n, generator):
        picks = torch.randint(4, (n,), generator=generator).tolist()
        return [Example("abcd"[i] * (i + 1) + ":", "abcd"[i], i) for i in picks]

    def respond(self, turns, answers, prompt_index):
        pairs = zip(prompt_index.tolist(), answers, strict=True)
        assert all(i < 0 or "abcd"[i] == answer for i, answer in pairs)
        return [None if said(t) == 4 or "z" in t[-1] else self.answer(t[-1]) for t in turns]

    def answer(self, text):
        return "!!" if text.endswith("?") else text[::-1]

    def state_keys(self, turns):
        return [("after", t[-1]) if t else 7 for t in turns]

    def score(self, turns, answers, terminated):
        hits = [sum(a in t for t in row[::2]) for row, a in zip(turns, answers, strict=True)]
        return torch.tensor(hits).to(terminated.device) * terminated.float()


class EchoPaid(Echo):
    """The same, where the last token of each turn that has ended pays. Source: the tests."""

    def score(self, turns, answers, response_mask, turn_ids, terminated):
        scores = torch.zeros(response_mask.shape)
        for i, (row, answer) in enumerate(zip(turns, answers, strict=True)):
            for k, text in enumerate(row[::2], 1):
                over = 2 * k - 1 < len(row) or bool(terminated[i])
                last = (turn_ids[i] == k).nonzero()[-1]
                scores[i, last] = float(answer in text) * over
        return scores


def said(turns):
    return len(turns[::2])


@hookimpl
def register_tasks(register):
    register(Echo)
    register(EchoPaid)
