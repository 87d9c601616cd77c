"""GSPO: one clipped importance ratio per response, the geometric mean over its tokens."""

from typing import Annotated

from rlzoo import Range, component
from rlzoo.ops import masked_sum
from rlzoo_zoo.policy_losses.ppo_clip import clipped_surrogate


@component("policy_loss", needs_signal=True)
def gspo(
    log_probs,
    old_log_probs,
    advantages,
    response_mask,
    *,
    clip_low: Annotated[float, Range(0, 1)] = 3e-4,
    clip_high: Annotated[float, Range(0)] = 4e-4,
    length_normalize: bool = True,
):
    """-min(s_t A, clip(s_t) A) per token (B, T), with s_t = sg(s) pi_t / sg(pi_t).

    s = exp(mean_t log rho) is the response's ratio, with t over its actions. s_t has the value of s
    at every token and the gradient s grad log pi_t, so a response is clipped as a whole. With one
    advantage per response, seq_mean_token_mean gives the paper's objective and its gradient; other
    advantages make it GSPO-token. s varies far less than a token's ratio, so the interval is
    narrow: the 0.2 of `ppo_clip` would never clip. length_normalize=False has the whole response's
    ratio, a product over its tokens; then aggregate with seq_mean_token_sum. log s is clamped at
    10, as in verl.
    Elsewhere: importance_sampling_level (TRL), sequence_level_importance_ratios (NeMo-RL).
    Source: Zheng et al. 2025, arXiv:2507.18071.
    """
    length = response_mask.bool().sum(-1).clamp(min=1) if length_normalize else 1
    log_s = (masked_sum(log_probs - old_log_probs, response_mask) / length).detach()[:, None]
    ratio = (log_s + log_probs - log_probs.detach()).clamp(max=10).exp()  # (B, T)
    return clipped_surrogate(ratio, advantages, clip_low, clip_high)
