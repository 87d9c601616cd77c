"""pass@k and maj@k from n responses to a prompt. No torch here."""

from collections.abc import Sequence
from functools import cache
from math import comb


def pass_at_k(n: int, right: int, k: int) -> float:
    """The probability that k of the n responses, drawn without replacement, include a correct one.

    1 - C(n - c, k) / C(n, k): an unbiased estimate from any n >= k.
    Source: Chen et al. 2021, arXiv:2107.03374.
    """
    return 1 - comb(n - right, k) / comb(n, k)


def majority_at_k(answers: Sequence[str | None], right: Sequence[bool], k: int) -> float:
    """The probability that the most frequent answer among k of the n responses is correct.

    The exact mean over all C(n, k) subsets, and so unbiased like `pass_at_k`. None is an
    abstention: it is one of the k responses but has no vote. Ties are broken at random. If equal
    answers are judged differently, the answer counts with the share of correct ones.
    Source: Wang et al. 2022 (self-consistency), arXiv:2203.11171.
    """
    votes: dict[str, list[int]] = {}
    for answer, good in zip(answers, right, strict=True):
        if answer is not None:
            tally = votes.setdefault(answer, [0, 0])
            tally[0] += 1
            tally[1] += bool(good)
    return _majority(tuple(sorted(map(tuple, votes.values()))), len(answers), k)


@cache
def _majority(votes: tuple[tuple[int, int], ...], n: int, k: int) -> float:
    """votes: (how often, how often right) of each answer."""
    silent = n - sum(count for count, _ in votes)
    total = 0.0
    for i, (count, good) in enumerate(votes):
        if not good:
            continue
        others = [c for j, (c, _) in enumerate(votes) if j != i]
        for most in range(1, min(count, k) + 1):  # as often as this answer comes among the k
            ways = comb(count, most) * _ways(others, silent, k - most, most)
            total += good / count * ways
    return total / comb(n, k)


def _ways(others: list[int], silent: int, size: int, most: int) -> float:
    """Ways of filling `size` places with other answers, none of them more than `most` times; each
    way divided by the number of answers that are then the most frequent, the one in question
    included."""
    ways = {(0, 1): 1}  # (places taken, answers that come `most` times) -> ways
    for count in others:
        grown: dict[tuple[int, int], int] = {}
        for (taken, tied), number in ways.items():
            for times in range(min(count, most, size - taken) + 1):
                key = taken + times, tied + (times == most)
                grown[key] = grown.get(key, 0) + number * comb(count, times)
        ways = grown
    return sum(
        number * comb(silent, size - taken) / tied
        for (taken, tied), number in ways.items()
        if size - taken <= silent
    )
