"""VIMPO: ties the log-ratio to the reference to the outcome, and uses the implied advantages in
PPO."""

from typing import Annotated

import torch

from rlzoo import Range, component
from rlzoo.ops import masked_mean, masked_sum, masked_var, reward_to_go

STEPS = "its KL is that of the rollout, which is the policy's own only on the first step"

CAUTION = {
    "train.minibatches > 1": STEPS,
    "train.epochs > 1": STEPS,
    "aggregation.name != token_mean": "its two parts are weighted for token_mean",
    "whiten != none": "it regresses on the advantages' value, which must come from dr_grpo",
}


@component("policy_loss", couples="batch", caution=CAUTION)
def vimpo(
    log_probs,
    old_log_probs,
    ref_log_probs,
    full_kl,
    advantages,
    response_mask,
    *,
    beta: Annotated[float, Range(0, closed="neither"), "KL coefficient of the value"] = 5e-4,
    lam: Annotated[float, Range(0, 1), "of PPO's part"] = 1.0,
    actor_coef: Annotated[float, Range(0), "of PPO's part"] = 5e-3,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
    clip_high: Annotated[float, Range(0)] = 0.28,
    c: Annotated[float, Range(1, closed="neither"), "bound of PPO's part if A < 0"] = 10.0,
):
    """(N / B L_i) (sum_t d_t - A_i)^2 / 2 + actor_coef PPO(rho, W), a loss per token, (B, T).

    d_t = beta (log(pi / pi_ref) - KL_t(pi, pi_ref)), with KL_t detached. Under KL regularization,
    the best policy determines its value: V_t = V_{t+1} - d_t with V = 0 at the end (undiscounted,
    one reward at the end). So sum_t d_t should be R minus the value of the prompt, estimated by the
    group's mean: A_i is the mean of `advantages` over the row, which must come from `dr_grpo`
    without whitening. d is the TD error of that value: PPO with two clips uses W_t = sum_k lam^k
    d_{t+k}, whitened over the mini-batch and detached; it does not use the reward. There are B rows
    of L_i actions, N in total: with aggregation=token_mean, the first part is the mean over
    responses and PPO's part the mean over tokens. `full_kl` is that of the rollout, so it is the
    policy's own only with one step per batch (train.minibatches=1), as the authors train. Metrics:
    `pg_value_error`, abs(sum d - A), and `pg_clipfrac`. It fails with another aggregation, and if
    the reward does not come at the end.
    Source: Kang et al. 2026, arXiv:2606.20008, based on its abstract and the authors' code
    (backprop07/VIMPO, vimpo_core_algos.py: raw value, squared error, exact KL).
    """
    mask = response_mask.to(log_probs.dtype)
    delta = beta * (log_probs - ref_log_probs - full_kl) * mask
    length = mask.sum(1)
    actions = length.clamp(min=1)
    target = masked_sum(advantages, mask) / actions
    error = delta.sum(1) - target  # (B,)
    share = length.sum() / (length > 0).sum().clamp(min=1) / actions
    value = (share * error.square() / 2)[:, None]
    ahead = reward_to_go(delta.detach(), response_mask, gamma=lam)
    spread = masked_var(ahead, response_mask, ddof=1)
    push = (ahead - masked_mean(ahead, response_mask)) * (spread + 1e-8).rsqrt()  # their eps
    ratio = (log_probs - old_log_probs).clamp(-20, 20).exp()
    held = ratio.clamp(1 - clip_low, 1 + clip_high)
    actor = torch.maximum(-ratio * push, -held * push)
    clipped = (-held * push > -ratio * push).to(mask)
    actor = torch.where(push < 0, torch.minimum(actor, -c * push), actor)
    off = error.detach().abs()[:, None] * mask
    metrics = {"pg_value_error": off, "pg_clipfrac": clipped * mask}
    return (value + actor_coef * actor) * mask, metrics
