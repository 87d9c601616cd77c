"""Mathematics: the response's result equals the answer according to the library math-verify."""

import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypeVar

import torch

from rlzoo import Range, component
from rlzoo.errors import in_short
from rlzoo_zoo.packages import needs
from rlzoo_zoo.rewards.exact_match import accepted
from rlzoo_zoo.rewards.worker import Worker

NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")  # what math-verify reads in any case
MOST = 8  # processes that try answers
TRIED = 5000  # different answers; one takes 6 ms (MATH) to 40 ms (differential equations)

T = TypeVar("T")

refuse_missing = needs("math_verify", "verify", "math-verify")


@component("reward", check=refuse_missing)
def math_verify(
    responses,
    answers,
    *,
    timeout: Annotated[float, Range(0.1), "CPU seconds for one response"] = 5.0,
):
    r"""1 if the response's result is mathematically equal to the answer, otherwise 0, (B,).

    The result is the expression that math-verify finds in the response: in `\boxed{}`, in LaTeX, or
    a plain number or expression near the end. `\frac{2}{4}`, `0.5` and `1/2` are equal, as are sets
    in any order, `x=3` and `3`, an interval and its inequality. `rlzoo_zoo.rewards.math_text` has
    the rules for what the library reads otherwise: texts in any language, numbers as people write
    them, bases, times. The answer is parsed in the same way, as LaTeX if it has no delimiters. All
    parts of an answer of several (`$5$;$10$`, `4 and 9`) must be in the last box, boxes or line, in
    order after `;`; an option (`C`) is the last one that the response names. An answer that cannot
    be parsed is an error; any answer of a list is correct. It runs in a separate process, which
    ends itself if a response takes longer than `timeout` or more than 4 GB; that response scores 0,
    and others are not affected. No part of a response is executed: expressions are parsed, and only
    digits and operators are evaluated. It fails on words outside a box, on decimal commas (`1,5` is
    a list), and near the timeout, where scores depend on the machine.
    Source: huggingface/Math-Verify; Cobbe et al. 2021, arXiv:2110.14168.
    """
    refuse_missing()
    return torch.tensor(verdicts(responses, answers, timeout), dtype=torch.float32)  # (B,)


def verdicts(responses, answers, timeout: float = 5.0) -> list[bool]:
    return [
        _WORKER.ask({"answers": accepted(a), "response": r, "timeout": timeout})
        for r, a in zip(responses, answers, strict=True)
    ]


def unreadable(answers: Mapping[T, Any], timeout: float = 5.0) -> tuple[dict[T, str], int]:
    """({name: fault} of the answers, {name: answer}, that cannot be read as mathematics, how many
    were not tried). Several processes try the first `TRIED` that differ."""
    names: dict[tuple[str, ...], list[T]] = {}
    for name, answer in answers.items():
        names.setdefault(tuple(accepted(answer)), []).append(name)
    todo = [some for some in names if not all(map(NUMBER.fullmatch, some))]
    todo, left = todo[:TRIED], todo[TRIED:]
    count = max(1, min(os.cpu_count() or 1, MOST, len(todo) // 100))  # of processes
    workers = [_WORKER, *(Worker("math_worker", "math_verify") for _ in range(count - 1))]

    def tried(worker: Worker, some: tuple[str, ...]) -> str:
        try:
            read = worker.ask({"answers": some, "response": None, "timeout": timeout})
        except ValueError as error:
            return str(error)
        return "" if read else f"the answer {in_short(some[0])} takes too long to read"

    def part(i: int) -> list[tuple[tuple[str, ...], str]]:
        return [(some, tried(workers[i], some)) for some in todo[i::count]]

    try:
        with ThreadPoolExecutor(count) as pool:
            found = [pair for pairs in pool.map(part, range(count)) for pair in pairs]
    finally:
        for worker in workers[1:]:
            worker.stop()
    faults = {name: fault for some, fault in found if fault for name in names[some]}
    return faults, sum(len(names[some]) for some in left)


_WORKER = Worker("math_worker", "math_verify")
