"""Key, noise, door: one choice decides, many noisy rewards stand between it and its pay."""

from typing import Annotated

import torch

from rlzoo import Example, Range, hookimpl

KEYS = "qmzfxbkt"  # the key of door A, B, ...: hidden from the prompt, to be found by reward


class KeyDoor:
    """The prompt names a door, `A:`; its key, `distractors` further tokens and EOS open it.

    The key is a fixed lower-case letter per door; the further tokens may be any letters. Score
    (B, T): every action t = 1 .. distractors pays sigma times a standard normal draw that no
    choice of token influences, and EOS pays 1 iff the key was right and exactly 1 + distractors
    tokens came before it. So Monte-Carlo returns (lam = 1) see the key through the sum of the
    noise, and one-step targets (lam = 0) must carry it back through every value: an interior lam
    is best.  There are only `keys` prompts, so train and test prompts are THE SAME here: held-out
    accuracy measures learning, not generalisation.  Source: ALGORITHMS.md section 7; after the
    key-to-door task of Hung et al. 2019, arXiv:1810.06721.
    """

    def __init__(
        self,
        *,
        keys: Annotated[int, Range(2, 8)] = 4,
        distractors: Annotated[int, Range(1, 32)] = 8,
        sigma: Annotated[float, Range(0, 10)] = 0.5,
    ):
        self.keys, self.distractors, self.sigma = keys, distractors, sigma

    def draw(self, split, n, generator):
        doors = torch.randint(self.keys, (n,), generator=generator).tolist()
        return [Example(f"{chr(65 + door)}:", KEYS[door], door) for door in doors]

    def score(self, responses, answers, response_mask, terminated, noise):
        mask = response_mask > 0  # (B, T)
        place = mask.cumsum(1) - 1  # (B, T): the number of the action, holes skipped
        tiny = 2.0**-24  # both ends alike, so that the mean stays zero
        normal = torch.special.ndtri(noise.clamp(tiny, 1 - tiny))
        noisy = mask & (place >= 1) & (place <= self.distractors)
        opens = terminated & self.is_correct(responses, answers).to(mask.device)  # (B,)
        last = mask & (place == mask.sum(1, keepdim=True) - 1)  # of a terminated row: EOS
        return torch.where(noisy, self.sigma * normal, 0.0) + (last & opens[:, None]).float()

    def is_correct(self, responses, answers):
        rows = zip(responses, answers, strict=True)
        return torch.tensor([r[:1] == a and len(r) == 1 + self.distractors for r, a in rows])  # (B,)

    def demonstrate(self, example, generator):
        letters = torch.randint(26, (self.distractors,), generator=generator).tolist()
        rest = "".join(chr(97 + i) for i in letters)
        step = int(torch.randint(1, self.keys, (), generator=generator))
        return example.answer + rest, KEYS[(example.index + step) % self.keys] + rest


@hookimpl
def register_tasks(register):
    register(KeyDoor)
