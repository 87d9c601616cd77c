"""Turn-level GAE: a turn of a conversation is one action; inside it its tokens may differ."""

from typing import Annotated

import torch

from rlzoo import Discount, Range, hookimpl, linear_scan, next_action, td_lambda
from rlzoo.ops import at_run_start, run_starts


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
    """A_k = R_k + gamma V_{k+1} - V_k + gamma lam A_{k+1}, over turns k; its tokens share A_k.

    A turn is a run of actions with one `turn_ids` (B, T); R_k is the sum of its rewards, V_k the
    value before its first token, V_{K+1} `bootstrap_values` (B,). gamma and lam count turns, not
    tokens: a long turn does not dampen what comes after it. With `token_lam` the advantages inside
    a turn come from a second, token-level GAE (undiscounted, token_lam), for which what follows the
    turn, C_k = gamma (V_{k+1} + lam A_{k+1}), is paid at its last token. Then a row of one turn is
    `gae`(gamma = 1, token_lam) if it terminated. The critic's targets are the rewards left in the
    turn + C_k, with token_lam the advantages + V. Breaks when turns are few and long: shared credit
    does not distinguish the tokens of a turn.
    Source: Li et al. 2025 (Turn-PPO), arXiv:2512.17008, for the turns: read only in summaries, the
    targets inside a turn are our own; token_lam after the bi-level GAE of VAGEN (Wang et al. 2025),
    which reads V_k at the turn's last token instead.
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


@hookimpl
def register_estimators(register):
    register(turn_gae)
