"""Rewards that tests name as `helpers.rewards_for_tests:letters`."""

import zlib

# The words that choose it: a reward that a random model meets often.
LETTERS = ["rewards=python", "rewards.python.function=helpers.rewards_for_tests:letters"]


def letters(prompts, responses, answers):
    """The number of letters and digits, over ten."""
    return [sum(c.isalnum() for c in r) / 10 for r in responses]


def one_in_six(prompts, responses, answers):
    """1 for about one response in six, whatever it says."""
    return [float(zlib.crc32(f"{p}|{r}".encode()) % 6 == 0)
            for p, r in zip(prompts, responses, strict=True)]  # fmt: skip


def one_argument(responses):
    """Not what a reward takes."""


def judged_at_length(prompts, responses, answers):
    """1 for each, by the process of `json_schema`, which takes most of a step."""
    from rlzoo_zoo.rewards.json_schema import json_schema

    right = [json_schema(["1"] * 60, schema='{"const": 1}').mean() for _ in responses]
    return [float(share) for share in right]
