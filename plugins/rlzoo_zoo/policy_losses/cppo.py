"""CPPO: DPPO's trust region with a budget for how far the previous tokens have moved."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo.ops import collapse, expand
from rlzoo_zoo.policy_losses.ppo_clip import clip_fractions


@component("policy_loss", needs_signal=True)
def cppo(
    log_probs,
    old_log_probs,
    advantages,
    response_mask,
    *,
    delta: Annotated[float, Range(0, 1)] = 0.15,
    weight_min: Annotated[float, Range(0, 1, closed="right")] = 0.8,
    budget: Annotated[float, Range(0, 1)] = 0.02,
    adaptive: bool = True,
):
    """-rho A per token (B, T), 0 where A (rho - 1) > 0 and w_t D_t > min(delta, delta + b W - S).

    D_t = abs(pi - pi_old), w_t falls from 1 at a response's first action to weight_min at its last;
    W and S are the sums of w and of w D over the actions before t. An early change in a response
    affects all later states, so early tokens may move least, and once the beginning has moved by
    more than b = budget on average, later tokens may move less. adaptive: b is the 90 % quantile of
    the response's D, clamped to [budget, 2 budget], as in the paper for base models; otherwise it
    is `budget` (0.015 for reasoning models). A token that moves back is never masked. budget=1 and
    weight_min=1 give `dppo_tv`. The paper measures D over the 20 most likely tokens; here, as in
    the authors' code (Tencent-Hunyuan/UniRL), only the sampled token is used. The anchor is the
    policy that sampled. log rho is clamped at 20.
    Source: Mao et al. 2026, arXiv:2606.10968, eq. 8 to 11.
    """
    mask = response_mask.bool()
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    moved = (log_probs.detach().exp() - old_log_probs.exp()).abs()
    moved = collapse(torch.where(mask, moved, 0), mask)  # a response's actions in front, no holes
    count = mask.sum(1, keepdim=True)
    place = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    live = place < count
    weight = 1 - (1 - weight_min) * place / (count - 1).clamp(min=1)
    weight = torch.where(live, weight, 0).to(moved.dtype)
    before_weight, before = (x.cumsum(1) - x for x in (weight, weight * moved))
    mean = _quantile(moved, live, 0.9).clamp(budget, 2 * budget) if adaptive else budget
    allowed = (delta + mean * before_weight - before).clamp(max=delta)
    far = expand((weight * moved > allowed).to(ratio.dtype), mask).bool()
    high = far & (advantages > 0) & (ratio > 1)
    low = far & (advantages < 0) & (ratio < 1)
    loss = torch.where(high | low, 0, -ratio * advantages)
    return loss, clip_fractions(high, low, loss.dtype)


def _quantile(x, live, q):
    """The q-quantile of each row's live entries, (B, T) -> (B, 1), between two of them linear."""
    ordered = torch.where(live, x, torch.inf).sort(1).values
    last = (live.sum(1, keepdim=True) - 1).clamp(min=0)
    place = q * last.to(x.dtype)
    below = place.long()
    low, high = ordered.gather(1, below), ordered.gather(1, torch.minimum(below + 1, last))
    return torch.where(live.any(1, keepdim=True), torch.lerp(low, high, place - below), 0)
