"""Marks: only the reward reveals which command each mark needs."""

import zlib
from typing import Annotated

import torch

from rlzoo import Example, Range, component
from rlzoo_zoo.tasks.outcomes import OneAnswer, by_token, outcome

# Command 1, 2, ...: what becomes of a word.
COMMANDS = (
    lambda word: word,
    lambda word: word[::-1],
    lambda word: word[1:] + word[0],
    lambda word: word[-1] + word[:-1],
    lambda word: word[0] * len(word),
    lambda word: word[-1] * len(word),
)


@component("task")
class Marks(OneAnswer):
    """Each section of the prompt is a mark and a word, `AkbmBdfz>`. A correct response has, for
    each section, the mark, its command and the transformed word, `A3bmkB2zfd`, then EOS.

    Commands: 1 copies the word, 2 reverses it, 3 puts its first letter last, 4 its last letter
    first, 5 and 6 repeat its first or last letter. Mark m needs command (5 m + 2) mod `commands` +
    1, which only the reward reveals. Words have `length` letters, uniform in a .. z. Sparse score
    (B,): 1.0 if everything is correct and the row terminated, otherwise 0.0. Dense score (B, T):
    the token that ends a section has a reward of 1/`sections` if command and word are correct,
    `length` tokens after the command, regardless of other sections. Held-out prompts have other
    words but the same marks.
    Source: based on the contextual bandits of Langford and Zhang 2007, with delayed rewards.
    """

    def __init__(
        self,
        *,
        sections: Annotated[int, Range(1, 12)] = 1,
        length: Annotated[int, Range(2, 8)] = 4,
        marks: Annotated[int, Range(1, 6)] = 4,
        commands: Annotated[int, Range(2, 6)] = 6,
        dense: bool = False,
    ):
        self.sections, self.length, self.dense = sections, length, dense
        self.marks, self.commands = marks, commands

    def draw(self, split, n, generator):
        # Which fifth of the prompts is held out depends only on the prompt, never on a seed.
        examples: list[Example] = []
        while len(examples) < n:
            chosen = torch.randint(self.marks, (self.sections,), generator=generator).tolist()
            codes = torch.randint(97, 123, (self.sections, self.length), generator=generator)
            words = ["".join(map(chr, row)) for row in codes.tolist()]
            sections = [chr(65 + m) + word for m, word in zip(chosen, words, strict=True)]
            prompt = "".join(sections) + ">"
            number = zlib.crc32(prompt.encode())
            if (number % 5 == 0) == (split == "test"):
                wanted = [(5 * mark + 2) % self.commands for mark in chosen]
                right = "".join(map(obey, wanted, sections))
                examples.append(Example(prompt, right, number))
        return examples

    def score(self, responses, response_tokens, response_mask, answers, terminated):
        if not self.dense:
            return outcome(self.is_correct(responses, answers), terminated)
        return by_token(map(self.token_rewards, response_tokens, answers), response_mask)

    def token_rewards(self, tokens, answer):
        """What each token pays: a token may hold several characters, and end several sections."""
        width, said, ended = self.length + 2, "", 0
        rewards = []
        for token in tokens:
            said += token
            now = min(len(said) // width, self.sections)
            ends = range(ended * width, now * width, width)
            hits = sum(said[at : at + width] == answer[at : at + width] for at in ends)
            rewards.append(hits / self.sections)
            ended = now
        return rewards

    def demonstrate(self, example, generator):
        # Wrong: any commands, well obeyed.
        right = wrong = example.answer
        width = self.length + 1
        ends = range(width, len(example.prompt), width)
        sections = [example.prompt[end - width : end] for end in ends]
        while wrong == right:
            picks = torch.randint(self.commands, (self.sections,), generator=generator).tolist()
            wrong = "".join(map(obey, picks, sections))
        return right, wrong


def obey(command, section):
    return f"{section[0]}{command + 1}{COMMANDS[command](section[1:])}"
