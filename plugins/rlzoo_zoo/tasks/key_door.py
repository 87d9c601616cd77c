"""Key, noise, door: one choice decides, and many noisy rewards come between it and its reward."""

from typing import Annotated

import torch

from rlzoo import Example, Range, component

KEYS = "qmzfxbkt"  # of doors A, B, ...: a prompt does not show them, only rewards do


@component("task")
class KeyDoor:
    """The prompt names a door, `A:`; a correct response is its key, `distractors` more characters,
    and EOS.

    Score (B, T): the actions t = 1 .. distractors each have a reward of sigma times a standard
    normal number, independent of the tokens; EOS has a reward of 1 if the key was correct and 1 +
    distractors characters preceded it, otherwise 0. With lam = 1, the key's credit includes all the
    noise; with lam = 0, it depends on the critic. In runs of 24 steps, lam = 1 is the best of seven
    values (docs/results.md); `spelling` is a task whose best lam is in between. There are only
    `keys` prompts, so train and test prompts are THE SAME, and held-out accuracy shows learning,
    not generalization.
    Source: based on the key-to-door task of Hung et al. 2018, arXiv:1810.06721.
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
        noisy = mask & (place >= 1) & (place <= self.distractors)
        tiny = 2.0**-24  # cuts both tails alike, so that the mean stays zero
        normal = torch.special.ndtri(noise.clamp(tiny, 1 - tiny))
        opens = terminated & self.is_correct(responses, answers).to(mask.device)  # (B,)
        last = mask & (place == place[:, -1:])  # of a terminated row: EOS
        return torch.where(noisy, self.sigma * normal, 0.0) + (last & opens[:, None])

    def is_correct(self, responses, answers):
        rows, length = zip(responses, answers, strict=True), 1 + self.distractors
        return torch.tensor([r[:1] == a and len(r) == length for r, a in rows])  # (B,)

    def demonstrate(self, example, generator):
        # One in four repeats one letter, so that a policy of low entropy can still count.
        kinds = 1 if torch.rand((), generator=generator) < 0.25 else self.distractors
        letters = torch.randint(97, 123, (kinds,), generator=generator).tolist()
        rest = "".join(map(chr, letters * (self.distractors // kinds)))
        step = int(torch.randint(1, self.keys, (), generator=generator))
        return example.answer + rest, KEYS[(example.index + step) % self.keys] + rest
