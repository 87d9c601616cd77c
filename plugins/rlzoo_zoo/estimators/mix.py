"""Mix: a weighted sum of the advantages of several estimators."""

from typing import Annotated, Any

import torch

from rlzoo import RlzooError, component
from rlzoo.ops import whiten

PARTS, WEIGHTS = ["dr_grpo", "mc"], [0.5, 0.5]


def check(*, parts, weights, normalize):
    if not parts or len(weights) != len(parts) or len(normalize) not in (0, len(parts)):
        raise RlzooError(
            "estimator 'mix': give at least one part, one weight per part, and normalize empty or "
            f"one per part. Got {len(parts)} parts, weights={weights}, normalize={normalize}"
        )


@component("estimator", couples="batch", parts="parts", check=check)
def mix(
    response_mask,
    *,
    parts: Annotated[list[str], "estimators, such as grpo or gae(lam=0.9)"] = PARTS,
    weights: Annotated[list[float], "one weight for each part"] = WEIGHTS,
    normalize: Annotated[list[bool], "one flag for each part; empty: none"] = [],  # noqa: B006
):
    """A = sum_k w_k N_k(A_k), (B, T), where A_k are the advantages of part k.

    N_k standardizes A_k over the action tokens of the batch (mean 0, population standard deviation
    1) if `normalize` is true for it; otherwise N_k changes nothing. A mix needs the columns and
    models of its parts, which are computed only once. A part is the name of an estimator, with its
    options in parentheses: `gae(lam=0.9,gamma=1)`. The critic's target is that of the first part
    that reads `values`. Weights may be negative and need not add up to 1. With one part of weight
    1, a mix equals that part. Metrics that discount use gamma = 1. A group of one gets the sum of
    the results of its parts. It fails when parts have different units, such as rewards and nats:
    the larger one dominates, so normalize them. Source: the documentation of rlzoo; requested in
    huggingface/trl issue 7291.
    """
    check(parts=parts, weights=weights, normalize=normalize)
    results: Any = parts  # in place of their names: `register(..., parts=)`
    total, returns = torch.zeros_like(response_mask), None
    flags = normalize or [False] * len(parts)
    for found, weight, flag in zip(results, weights, flags, strict=True):
        part = found["advantages"]
        total = total + weight * (whiten(part, response_mask) if flag else part)
        returns = found.get("returns") if returns is None else returns
    return total if returns is None else (total, returns)
