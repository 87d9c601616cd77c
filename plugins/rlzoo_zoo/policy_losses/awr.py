"""AWR: supervised learning on the samples, weighted by their advantages."""

import math
from typing import Annotated

from rlzoo import Range, component


@component("policy_loss")
def awr(
    log_probs,
    advantages,
    *,
    beta: Annotated[float, Range(0, closed="right")] = 1.0,
    max_weight: Annotated[float, Range(1)] = 20.0,
):
    """-min(exp(A / beta), max_weight) log pi per token (B, T).

    All weights are positive: no token is made less likely directly, and better ones are imitated
    more. It is a regression onto the policy that maximizes A - beta KL(pi, sampling policy), and is
    safe on data of any age. It is slow, since a token with A = 0 is also imitated; beta is in units
    of A, so use whitening. At ratio 1, it differs from REINFORCE.
    Source: Peng et al. 2019, arXiv:1910.00177.
    """
    weight = (advantages / beta).clamp(max=math.log(max_weight)).exp()
    return -weight * log_probs, {"pg_weight": weight}
