"""Majority: the group's most frequent answer counts as correct."""

from collections import Counter
from typing import Annotated

import torch

from rlzoo import component
from rlzoo_zoo.rewards.regex import compile_pattern, extract


def check(*, pattern):
    compile_pattern(pattern)


@component("reward", check=check)
def majority(
    responses,
    group_ids,
    *,
    pattern: Annotated[str, "its last match's first group is the answer; empty: the text"] = "",
):
    """1 if a response gives the most frequent answer of its group, otherwise 0, (B,).

    Answers are compared as texts without white space at the ends; with `pattern`, a response
    without a match gives no answer and scores 0. Tied answers all count, so a group in which all
    answers differ scores 1 throughout and has no signal. No correct answer is needed, so this is
    test-time training. As a control for the real reward, it shows how much comes from agreement. A
    group of one scores 1. It fails when the most frequent answer is wrong: the policy then becomes
    certain of it, and the reward does not reveal this.
    Source: Zuo et al. 2025 (TTRL), arXiv:2504.16084.
    """
    answers = [extract(pattern, text) if pattern else text.strip() for text in responses]
    groups = group_ids.tolist()
    counts: dict[int, Counter] = {g: Counter() for g in groups}
    for group, answer in zip(groups, answers, strict=True):
        if answer is not None:
            counts[group][answer] += 1
    best = {g: max(c.values(), default=0) for g, c in counts.items()}
    rows = zip(groups, answers, strict=True)
    return torch.tensor([float(a is not None and counts[g][a] == best[g]) for g, a in rows])
