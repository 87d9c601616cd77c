"""FIPO: PPO's clip with more weight for a token if the update favors its continuation."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo.ops import reward_to_go
from rlzoo_zoo.policy_losses.ppo_clip import clipped_surrogate


@component("policy_loss", needs_signal=True)
def fipo(
    log_probs,
    old_log_probs,
    advantages,
    response_mask,
    *,
    half_life: Annotated[float, Range(0, closed="neither"), "in actions"] = 32.0,
    weight_low: Annotated[float, Range(0, 1)] = 1.0,
    weight_high: Annotated[float, Range(1)] = 1.2,
    safe_ratio: Annotated[float, Range(1)] = 10.0,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
    clip_high: Annotated[float, Range(0)] = 0.28,
    c: Annotated[float, Range(1, closed="neither")] = 10.0,
):
    """f_t times ppo_dual_clip's loss, f_t = clip(exp(F_t), weight_low, weight_high), (B, T).

    F_t = sum_{k>=t} 2^(-(k-t) / half_life) log(pi / pi_old)_k over the response's actions: whether
    the update so far makes the continuation more likely. Tokens with rho > c add nothing to F. f
    has no gradient. If A < 0 and rho > safe_ratio, f is clamped to [0.8, 1]. A response with more
    than one token with A < 0 and rho > c gives 0. At a batch's first step, f = 1, so it equals
    `ppo_dual_clip`. `pg_weight` is f. log rho is clamped to [-20, 20]. The extra credit comes from
    the update, not from the reward. It has no effect with one step per batch.
    Source: Ma et al. 2026, arXiv:2603.19835; the form comes from the authors' code
    (compute_policy_loss_future_kl) with the options of their 32B script. They also exclude the
    dropped responses from the mean.
    """
    gap = (log_probs - old_log_probs).clamp(-20, 20)
    ratio = gap.exp()
    still = gap.detach()
    counted = torch.where(still.exp() > c, 0, still)
    ahead = reward_to_go(counted, response_mask, gamma=2 ** (-1 / half_life))
    weight = ahead.exp().clamp(weight_low, weight_high)
    bad = advantages < 0
    weight = torch.where(bad & (ratio > safe_ratio), weight.clamp(0.8, 1.0), weight)
    loss, metrics = clipped_surrogate(ratio, advantages, clip_low, clip_high)
    dual = bad & (ratio > c) & response_mask.bool()
    loss = torch.where(dual, -c * advantages, loss) * weight
    kept = dual.sum(1, keepdim=True) <= 1
    return torch.where(kept, loss, 0), metrics | {"pg_weight": weight}
