"""Sessions: episodes that agents outside of rlzoo play and score; see `sampler=sessions`."""

from typing import Annotated

import torch

from rlzoo import Example, Range, RlzooError, component


@component("task")
class Sessions:
    """The task of `sampler=sessions`: an agent plays each row's episode and posts its reward.

    All rows have the prompt `prompt`. Answer and index are the episode's number below `episodes`,
    by which an agent selects its problem; the samples of a group have the same number. One number
    in five is held out. Score (B,): 0, which a posted reward replaces. Evaluations do not use
    sessions, so their score is 0; compare runs by their training reward, or choose a task that
    can play the episodes itself.
    Source: the agent that plays.
    """

    notes = (
        "task sessions: evaluations do not use sessions, so eval/score is always 0; compare runs "
        "by their training reward",
    )

    def __init__(self, *, prompt: str = "\n", episodes: Annotated[int, Range(5)] = 1000):
        if not prompt:
            raise RlzooError("task sessions: prompt must not be empty")
        self.prompt, self.episodes = prompt, episodes

    def draw(self, split, n, generator):
        numbers = [i for i in range(self.episodes) if (i % 5 == 0) == (split == "test")]
        picks = torch.randint(len(numbers), (n,), generator=generator).tolist()
        return [Example(self.prompt, str(numbers[i]), numbers[i]) for i in picks]

    def score(self, terminated):
        return torch.zeros(len(terminated), device=terminated.device)
