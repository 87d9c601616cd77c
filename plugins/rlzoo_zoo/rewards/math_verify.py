"""Mathematics: the response's result equals the answer according to the library math-verify."""

import atexit
from typing import Annotated

import torch

from rlzoo import Range, hookimpl
from rlzoo_zoo.packages import needs
from rlzoo_zoo.rewards.exact_match import accepted
from rlzoo_zoo.rewards.worker import Worker

refuse_missing = needs("math_verify", "verify", "math-verify")


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


_WORKER = Worker("math_worker", "math_verify")
atexit.register(_WORKER.stop)


@hookimpl
def register_rewards(register):
    register(math_verify, check=refuse_missing)
