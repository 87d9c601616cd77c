"""V* of a prompt: the best score of a policy near the reference, from the reference's samples."""

import math
from typing import Annotated

import torch

from rlzoo import Range, hookimpl
from rlzoo.ops import on_host, pick


def optimal_values(
    sample,
    score,
    reference,
    prompt_ids,
    prompt_mask,
    answers,
    *,
    rollouts: Annotated[int, Range(1)] = 8,
    beta: Annotated[float, Range(0, None, "neither")] = 0.5,
):
    """beta log mean_k exp(R_k / beta), (B,), R_k the scores of `rollouts` responses by pi_ref.

    The value of the policy that maximises E R - beta KL(pi, pi_ref), which pi_ref's samples are
    enough to estimate. beta near 0 is the best of the rollouts, a large beta their mean. Rows with
    the same prompt and answer share them; every token is metered. The authors draw once for each
    prompt, before training; here it is done again whenever a prompt comes. Breaks where pi_ref
    never solves a prompt: V* is then 0, and a right answer is worth the more.
    Source: Brantley et al. 2025, arXiv:2505.20686; their code, ZhaolinGao/A-PO.
    """
    del reference  # requested so that it exists: `sample` draws by it
    keys = [
        (tuple(ids), tuple(mask), repr(answer))
        for ids, mask, answer in zip(
            on_host(prompt_ids).tolist(), on_host(prompt_mask).tolist(), answers, strict=True
        )
    ]
    first = {key: row for row, key in reversed(list(enumerate(keys)))}
    number = {key: i for i, key in enumerate(first)}
    of = torch.tensor(list(first.values())).repeat_interleave(rollouts)
    drawn = sample(pick(prompt_ids, of), pick(prompt_mask, of), of=of, reference=True)
    scores = score({**drawn, "rows": of}).view(-1, rollouts)
    values = beta * ((scores / beta).logsumexp(1) - math.log(rollouts))
    return pick(values, torch.tensor([number[key] for key in keys]))


@hookimpl
def register_columns(register):
    register(optimal_values, shape="B")
