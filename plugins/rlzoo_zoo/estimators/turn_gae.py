"""Turn-level GAE: a turn of a conversation is one action; its tokens may have different
advantages."""

from typing import Annotated

import torch

from rlzoo import Discount, Range, component, linear_scan, next_action, td_lambda
from rlzoo.ops import at_run_start, run_starts


@component("estimator")
def turn_gae(
    rewards,
    values,
    bootstrap_values,
    response_mask,
    turn_ids,
    *,
    gamma: Discount = 1.0,
    lam: Annotated[float, Range(0, 1)] = 0.95,
    token_lam: Annotated[float | None, Range(0, 1)] = None,
):
    """A_k = R_k + gamma V_{k+1} - V_k + gamma lam A_{k+1}, over turns k; the tokens of a turn share
    A_k.

    A turn is a sequence of actions with one `turn_ids` (B, T); R_k is the sum of its rewards, V_k
    the value before its first token, and V_{K+1} is `bootstrap_values` (B,). gamma and lam count
    turns, not tokens, so a long turn does not dampen later rewards. With `token_lam`, the
    advantages inside a turn come from a second, token-level GAE (undiscounted, token_lam), in which
    the continuation C_k = gamma (V_{k+1} + lam A_{k+1}) is a reward at the turn's last token. A
    terminated row of one turn then equals `gae`(gamma = 1, token_lam). The critic's targets are the
    remaining rewards of the turn + C_k, or with token_lam, the advantages + V. It fails when turns
    are few and long, because shared credit does not distinguish the tokens of a turn.
    Source: Li et al. 2025 (Turn-PPO), arXiv:2512.17008, for the turns, based only on summaries (the
    targets inside a turn are our own); token_lam follows the bi-level GAE of VAGEN (Wang et al.
    2025), which uses V_k at the turn's last token instead.
    """
    mask = response_mask.bool()
    starts = run_starts(turn_ids, mask)
    ends = run_starts(turn_ids.flip(1), mask.flip(1)).flip(1)
    zero = torch.zeros_like(rewards)
    paid = torch.where(mask, rewards, zero)
    left = linear_scan(paid, (~ends).to(rewards))  # in the turn, from t on
    first = starts.to(rewards)
    turn = td_lambda(torch.where(starts, left, zero), values, bootstrap_values, first,
                     gamma=gamma, lam=lam)  # fmt: skip  # (B, T), at each turn's start
    after = gamma * next_action(values + lam * turn, first, bootstrap_values)
    after = at_run_start(after, starts)  # C_k at every token of turn k
    if token_lam is None:
        return at_run_start(turn, starts) * response_mask, (left + after) * response_mask
    ahead = torch.where(ends, after, next_action(values, response_mask))
    delta = torch.where(mask, rewards + ahead - values, zero)
    factor = torch.full_like(rewards, token_lam).masked_fill(ends, 0).masked_fill(~mask, 1)
    return linear_scan(delta, factor) * response_mask
