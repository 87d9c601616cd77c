"""V* of a prompt: the best score of a policy near the reference, from the reference's samples."""

import math
from typing import Annotated

import torch

from rlzoo import Range, component


@component("column", shape="B")
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
    """beta log mean_k exp(R_k / beta), (B,), where R_k are the scores of `rollouts` responses by
    pi_ref.

    This is the value of the policy that maximizes E R - beta KL(pi, pi_ref), estimated only from
    samples of pi_ref. A beta near 0 gives the best of the rollouts, a large beta their mean. Rows
    with the same prompt and answer share the rollouts; all tokens count. The authors sample once
    per prompt before training; this column samples again whenever a prompt occurs. It fails when
    pi_ref never solves a prompt: V* is then 0, and a correct answer gets too large an advantage.
    Source: Brantley et al. 2025, arXiv:2505.20686; their code, ZhaolinGao/A-PO.
    """
    del reference  # requested so that it exists: `sample` draws by it
    keys = [
        (tuple(ids), tuple(mask), repr(answer))
        for ids, mask, answer in zip(
            prompt_ids.tolist(), prompt_mask.tolist(), answers, strict=True
        )
    ]
    first = {key: row for row, key in reversed(list(enumerate(keys)))}
    number = {key: i for i, key in enumerate(first)}
    of = torch.tensor(list(first.values())).repeat_interleave(rollouts)
    drawn = sample(prompt_ids[of], prompt_mask[of], of=of, reference=True)
    scores = score({**drawn, "rows": of}).view(-1, rollouts)
    values = beta * ((scores / beta).logsumexp(1) - math.log(rollouts))
    return values[torch.tensor([number[key] for key in keys])]
