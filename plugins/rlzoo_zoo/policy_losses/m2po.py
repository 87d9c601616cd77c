"""M2PO: drops the fewest tokens that keep the second moment of the log ratio small."""

from typing import Annotated

import torch

from rlzoo import Range, component


@component("policy_loss", couples="batch")
def m2po(
    log_probs,
    old_log_probs,
    advantages,
    response_mask,
    *,
    threshold: Annotated[float, Range(0)] = 0.04,
):
    """-rho A at kept tokens, else 0, rho = pi / pi_old, per token (B, T).

    Candidates are the tokens that PPO's clip could stop: A > 0 with rho > 1, or A < 0 with rho < 1.
    Those of the largest log(rho)^2 are dropped until the mean over the remaining candidates of the
    mini-batch is at most `threshold`. Thus a few extreme tokens go and rare but useful ones stay,
    which PPO's clip drops first when samples are old. With rollout.old_log_probs=sampled the anchor
    is the policy that sampled, as in the paper. Dropped tokens still count in the loss's
    denominators. A mini-batch is judged as a whole, so the loss changes if it is divided.
    Source: Zheng et al. 2025, arXiv:2510.01161, algorithm 1.
    """
    log_ratio = log_probs - old_log_probs
    moment = log_ratio.detach().square()
    candidates = response_mask.bool() & (advantages * log_ratio.detach() > 0)
    ordered, order = moment[candidates].sort()
    count = torch.arange(1, len(ordered) + 1, device=ordered.device)
    dropped = torch.zeros_like(candidates)
    dropped[candidates] = torch.zeros_like(ordered, dtype=torch.bool).scatter(
        0, order, ordered.cumsum(0) / count > threshold
    )
    loss = torch.where(dropped, 0, -log_ratio.clamp(max=20).exp() * advantages)
    return loss, {"pg_clipfrac": dropped.to(loss.dtype)}
