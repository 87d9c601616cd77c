"""AWR: supervised learning on what was sampled, weighted by how good it was."""

import math
from typing import Annotated

from rlzoo import Range, hookimpl


def awr(
    log_probs,
    advantages,
    *,
    beta: Annotated[float, Range(0, closed="right")] = 1.0,
    max_weight: Annotated[float, Range(1)] = 20.0,
):
    """-min(exp(A / beta), max_weight) log pi per token (B, T).

    All weights are positive: nothing is pushed down, the good is imitated more. The regression onto
    the policy that maximises A - beta KL(pi, sampling policy), safe on data of any age. Slow, since
    a token of A = 0 is imitated too; beta is in units of A, so whiten. Not REINFORCE at ratio 1.
    Source: Peng et al. 2019, arXiv:1910.00177.
    """
    weight = (advantages / beta).clamp(max=math.log(max_weight)).exp()
    return -weight * log_probs, {"pg_weight": weight}


@hookimpl
def register_policy_losses(register):
    register(awr)
