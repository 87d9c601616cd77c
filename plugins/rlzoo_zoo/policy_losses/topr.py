"""TOPR: imitate what was good however old it is, and let go of what was bad once it is unlikely."""

import torch

from rlzoo import hookimpl
from rlzoo.ops import masked_sum


def topr(log_probs, old_log_probs, advantages, response_mask):
    """-w A log pi per token (B, T); w = 1 where A >= 0, sg(min(prod_t rho, 1)) where A < 0.

    The product is the whole response's. Bad responses are tapered, so their log-probability does
    not run off to minus infinity off-policy; good ones are not, so they are learned at full speed
    even when the policy has forgotten them. Not an unbiased gradient away from ratio 1. In the
    paper A is a reward less a constant baseline, which here is the estimator's affair.
    Source: Le Roux et al. 2025, arXiv:2503.14286.
    """
    log_w = masked_sum((log_probs - old_log_probs).detach(), response_mask)
    taper = log_w.clamp(max=0).exp()[:, None].expand_as(advantages)
    weight = torch.where(advantages >= 0, 1, taper)
    return -weight * advantages * log_probs, {"pg_weight": weight}


@hookimpl
def register_policy_losses(register):
    register(topr, needs_signal=True)
