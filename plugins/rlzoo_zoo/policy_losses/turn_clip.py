"""Turn-level clipping: one clipped importance ratio for each turn of a conversation."""

from typing import Annotated

import torch

from rlzoo import Range, component, group_mean
from rlzoo.ops import group_index
from rlzoo_zoo.policy_losses.ppo_clip import clipped_surrogate


@component("policy_loss", needs_signal=True)
def turn_clip(
    log_probs,
    old_log_probs,
    advantages,
    response_mask,
    turn_ids,
    *,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
    clip_high: Annotated[float, Range(0)] = 0.2,
):
    """-min(w_k A_t, clip(w_k) A_t) per token (B, T), w_k = exp(mean_t log rho), t over turn k.

    Between PPO's ratio of a token and GSPO's of a response: w_k is the geometric mean over the
    actions of one `turn_ids` (B, T), and its gradient is shared among them, so a turn follows the
    mean of its advantages. It is the first half of ST-PPO, which its authors call Turn-PPO (a
    different method than `turn_gae`'s). The second half, a normalization by the clipped part of the
    gradient, is not implemented, because its formula was not available. One turn with
    seq_mean_token_mean equals `gmpo` except for the clip. w varies less than rho, so 0.2 clips
    little. It fails, like `ppo_clip`, when A < 0 and w is large. This is based on the abstract and
    on three summaries that give w_k and the gradient, not on the paper or the code named in its
    second version (Cloud0723/SORL).
    Source: Li et al. 2025, arXiv:2511.20718.
    """
    mask = response_mask.bool()
    row, t = response_mask.nonzero(as_tuple=True)
    turns = group_index(row, turn_ids[row, t])
    mean = group_mean((log_probs - old_log_probs)[row, t], turns)
    log_w = torch.zeros_like(old_log_probs).masked_scatter(mask, mean)
    ratio = log_w.clamp(max=20).exp()
    return clipped_surrogate(ratio, advantages, clip_low, clip_high)
