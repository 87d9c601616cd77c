"""Masked and group statistics, and the one reverse recursion behind the TD(lambda) family.

Shapes: x (B, T) per token or (B,) per row; mask (B, T), 1 where an action; group_ids (B,) of any
order and any integers. Nothing here loops over rows; the only loop over time is in `linear_scan`.
"""

import torch
from torch import Tensor

# ---------------------------------------------------------------- masked statistics


def masked_sum(x: Tensor, mask: Tensor) -> Tensor:
    """Sum over action tokens of each row, (B, T) -> (B,). Where, not a product: NaN stays out."""
    return torch.where(mask.bool(), x, 0).sum(-1)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean over all action tokens, (B, T) -> (); 0 where there is none."""
    mask = mask.bool()
    return torch.where(mask, x, 0).sum() / mask.sum().clamp(min=1)


def masked_var(x: Tensor, mask: Tensor, *, ddof: int = 0) -> Tensor:
    """Variance over all action tokens, (B, T) -> (); 0 where there are at most `ddof`."""
    mask = mask.bool()
    square = torch.where(mask, x - masked_mean(x, mask), 0).square().sum()
    return square / (mask.sum() - ddof).clamp(min=1)


def last_action(mask: Tensor) -> Tensor:
    """Index of each row's last action, (B, T) -> (B,) int64; -1 where a row has none."""
    steps = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return (mask.bool() * steps).amax(1, keepdim=False) - 1 if mask.shape[1] else steps.new_full(
        (mask.shape[0],), -1
    )  # fmt: skip


def at_last_action(x: Tensor, mask: Tensor) -> Tensor:
    """Put x (B,) at each row's last action, (B, T), 0 elsewhere; a row without one stays 0."""
    last = last_action(mask)
    out = x.new_zeros(mask.shape)
    if mask.shape[1]:
        out.scatter_(1, last.clamp(min=0)[:, None], torch.where(last >= 0, x, 0)[:, None])
    return out


# ---------------------------------------------------------------- group statistics


def group_sum(x: Tensor, group_ids: Tensor) -> Tensor:
    """Sum of x (B,) over the rows of the same group, given back to each row, (B,).

    Summed in float64, so that the order of rows matters as little as it can.
    """
    _, inverse = torch.unique(group_ids, return_inverse=True)
    groups = int(inverse.max()) + 1 if len(inverse) else 0
    total = torch.zeros(groups, dtype=torch.float64, device=x.device)
    total.index_add_(0, inverse, x.double())
    return total[inverse].to(x.dtype)


def group_count(group_ids: Tensor) -> Tensor:
    """Size of each row's group, (B,) int64."""
    _, inverse, counts = torch.unique(group_ids, return_inverse=True, return_counts=True)
    return counts[inverse]


def group_mean(x: Tensor, group_ids: Tensor) -> Tensor:
    """Mean of x (B,) over the rows of the same group, given back to each row, (B,)."""
    return group_sum(x, group_ids) / group_count(group_ids)


def group_std(x: Tensor, group_ids: Tensor, *, ddof: int = 1) -> Tensor:
    """Standard deviation of x (B,) in each row's group, over G - ddof; 0 for a group of ddof."""
    square = group_sum((x - group_mean(x, group_ids)).square(), group_ids)
    return (square / (group_count(group_ids) - ddof).clamp(min=1)).sqrt()


def group_max(x: Tensor, group_ids: Tensor) -> Tensor:
    """Largest x (B,) in each row's group, (B,)."""
    _, inverse = torch.unique(group_ids, return_inverse=True)
    groups = int(inverse.max()) + 1 if len(inverse) else 0
    top = x.new_full((groups,), -torch.inf).scatter_reduce_(0, inverse, x, "amax")
    return top[inverse]


def group_degenerate(x: Tensor, group_ids: Tensor) -> Tensor:
    """True (B,) where a group's x are equal up to rounding, and where it has one row.

    Equal means max - min <= 1e-6 max(1, |x|): .1 + .2 and .3 are the same reward.
    """
    high, low = group_max(x, group_ids), -group_max(-x, group_ids)
    return high - low <= 1e-6 * torch.maximum(high.abs(), low.abs()).clamp(min=1)


# ---------------------------------------------------------------- whitening


def whiten(x: Tensor, mask: Tensor, group_ids: Tensor | None = None, *, ddof: int = 0,
           eps: float = 1e-8) -> Tensor:  # fmt: skip
    """Zero mean and unit variance over action tokens, (B, T): of the batch, or of each group.

    Off the mask 0; finite for a single token. Population variance unless `ddof` says otherwise.
    """
    ids = torch.zeros_like(mask[:, 0], dtype=torch.long) if group_ids is None else group_ids
    count = group_sum(mask.sum(-1).to(x.dtype), ids)
    mean = group_sum(masked_sum(x, mask), ids) / count.clamp(min=1)
    centered = torch.where(mask.bool(), x - mean[:, None], 0)
    var = group_sum(centered.square().sum(-1), ids) / (count - ddof).clamp(min=1)
    return centered / (var.sqrt() + eps)[:, None]


# ---------------------------------------------------------------- the reverse recursion

_BLOCK = 64


def linear_scan(b: Tensor, a: Tensor | float) -> Tensor:
    """x_t = b_t + a_t x_{t+1}, with x_T = 0, along the last dimension of b (B, T).

    a: a number (|a| <= 1), or a tensor (B, T). With a number, blocks of 64 steps are one matrix
    product with the powers of a; with a tensor the steps go one by one over contiguous (T, B).
    """
    if isinstance(a, Tensor):
        return _scan_steps(b, a)
    if a == 0:
        return b.clone()
    if b.shape[-1] <= _BLOCK:
        return b @ _powers(a, b.shape[-1], b)
    return _scan_blocks(b, float(a))


def _powers(a: float, n: int, like: Tensor) -> Tensor:
    """(n, n), lower triangle: entry [k, t] is a^(k - t), what b_k adds to x_t."""
    steps = torch.arange(n, device=like.device)
    lag = steps[:, None] - steps[None, :]
    base = torch.tensor(float(a), dtype=torch.float64, device=like.device)
    return torch.where(lag >= 0, base ** lag.clamp(min=0), 0).to(like.dtype)


def _scan_blocks(b: Tensor, a: float) -> Tensor:
    rows, steps = b.shape
    blocks = -(-steps // _BLOCK)
    if blocks * _BLOCK != steps:
        b = torch.nn.functional.pad(b, (0, blocks * _BLOCK - steps))
    x = (b.reshape(-1, _BLOCK) @ _powers(a, _BLOCK, b)).view(rows, blocks, _BLOCK)
    # Each block's first entry needs all later blocks: the same recursion, 64 times shorter.
    heads = linear_scan(x[:, :, 0].contiguous(), a**_BLOCK)
    decay = _powers(a, _BLOCK + 1, b)[_BLOCK, :_BLOCK]  # a^64 ... a^1
    x[:, :-1] += heads[:, 1:, None] * decay
    return x.view(rows, blocks * _BLOCK)[:, :steps]


def _scan_steps(b: Tensor, a: Tensor) -> Tensor:
    columns = b.T.contiguous()  # (T, B): each step reads and writes one contiguous line
    out = columns.unbind(0)
    factors = a.to(b.dtype).expand_as(b).T.contiguous().unbind(0)
    for t in range(len(out) - 2, -1, -1):
        out[t].addcmul_(factors[t], out[t + 1])
    return columns.T.contiguous() if columns.numel() else b.clone()


def _positions(mask: Tensor) -> Tensor:
    """Where each action stands among its row's actions, (B, T) int64; holes share a spare slot."""
    mask = mask.bool()
    return torch.where(mask, mask.cumsum(1) - 1, mask.shape[1])


def has_holes(mask: Tensor) -> bool:
    """Whether an action follows a token that is none (an observation inside a response)."""
    mask = mask.bool()
    return bool((mask[:, 1:] & ~mask[:, :-1]).any())


def collapse(x: Tensor, mask: Tensor) -> Tensor:
    """Move each row's actions to its front, (B, T); what follows them is 0."""
    out = x.new_zeros(x.shape[0], x.shape[1] + 1)
    return out.scatter_(1, _positions(mask), torch.where(mask.bool(), x, 0))[:, :-1]


def expand(x: Tensor, mask: Tensor) -> Tensor:
    """Undo `collapse`: give each action its entry back, 0 elsewhere, (B, T)."""
    spare = torch.nn.functional.pad(x, (0, 1))
    return torch.where(mask.bool(), spare.gather(1, _positions(mask)), 0)


def next_action(x: Tensor, mask: Tensor, end: Tensor | None = None) -> Tensor:
    """x at the *next action* of each action, and `end` (B,) after the last one, (B, T)."""
    if has_holes(mask):
        packed = collapse(mask.to(x.dtype), mask)
        return expand(next_action(collapse(x, mask), packed, end), mask)
    out = torch.zeros_like(x)
    out[:, :-1] = torch.where(mask[:, 1:].bool(), x[:, 1:], 0)
    if end is not None:
        out = out + at_last_action(end.to(x.dtype), mask)
    return torch.where(mask.bool(), out, 0)


def td_lambda(rewards: Tensor, values: Tensor, bootstrap_values: Tensor, response_mask: Tensor, *,
              gamma: float = 1.0, lam: Tensor | float = 1.0, rho: Tensor | None = None,
              c: Tensor | None = None) -> Tensor:  # fmt: skip
    """acc_t = rho_t delta_t + gamma lam_t c_t acc_next, over action tokens, (B, T).

    delta_t = r_t + gamma V_next - V_t; after the last action V_next is `bootstrap_values` (B,).
    lam: a number or (B, T). rho, c: importance weights (B, T), 1 where None. Holes in the mask
    are stepped over: `next` is the next action.  Source: Schulman et al. 2015, arXiv:1506.02438;
    Espeholt et al. 2018, arXiv:1802.01561.
    """
    if has_holes(response_mask):

        def pack(x):
            return collapse(x, response_mask) if isinstance(x, Tensor) else x

        packed = collapse(torch.ones_like(rewards), response_mask)
        acc = td_lambda(pack(rewards), pack(values), bootstrap_values, packed, gamma=gamma,
                        lam=pack(lam), rho=pack(rho), c=pack(c))  # fmt: skip
        return expand(acc, response_mask)
    mask = response_mask.bool()
    delta = rewards + gamma * next_action(values, mask, bootstrap_values) - values
    if rho is not None:
        delta = rho * delta
    delta = torch.where(mask, delta, 0)
    factor = gamma * lam if c is None else gamma * lam * c
    if isinstance(factor, Tensor):
        factor = torch.where(mask, factor, 0)  # a factor off the mask may be anything
    return torch.where(mask, linear_scan(delta, factor), 0)


def n_step_returns(rewards: Tensor, values: Tensor, bootstrap_values: Tensor,
                   response_mask: Tensor, *, gamma: float = 1.0, n: int = 1) -> Tensor:  # fmt: skip
    """sum_{k<n} gamma^k r_{t+k} + gamma^n V_{t+n} over action tokens, (B, T).

    Where fewer than n actions are left, all of them and the discounted `bootstrap_values`.
    """
    target = values
    for _ in range(min(n, response_mask.shape[1])):
        target = rewards + gamma * next_action(target, response_mask, bootstrap_values)
    return torch.where(response_mask.bool(), target, 0)
