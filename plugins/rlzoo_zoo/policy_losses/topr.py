"""TOPR: imitates good responses of any age, and drops bad ones once they are unlikely."""

import torch

from rlzoo import component
from rlzoo.ops import masked_sum


@component("policy_loss", needs_signal=True)
def topr(log_probs, old_log_probs, advantages, response_mask):
    """-w A log pi per token (B, T); w = 1 if A >= 0, sg(min(prod_t rho, 1)) if A < 0.

    The product is over the whole response. Bad responses are tapered, so their log-probability does
    not diverge to minus infinity off-policy; good ones are not, so they are learned at full speed
    even if the policy has forgotten them. The gradient is biased away from ratio 1. In the paper, A
    is a reward minus a constant baseline; here the estimator sets it.
    Source: Le Roux et al. 2025, arXiv:2503.14286.
    """
    log_w = masked_sum((log_probs - old_log_probs).detach(), response_mask)
    taper = log_w.clamp(max=0).exp()[:, None].expand_as(advantages)
    weight = torch.where(advantages >= 0, 1, taper)
    return -weight * advantages * log_probs, {"pg_weight": weight}
