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


def group_index(group_ids: Tensor, *more: Tensor) -> Tensor:
    """Number the groups 0, 1, ...: (B,) int64. Further (B,) keys split them: equal in all."""
    _, inverse = torch.unique(group_ids, return_inverse=True)
    for key in more:
        _, part = torch.unique(key, return_inverse=True)
        joint = inverse * (int(part.max()) + 1 if len(part) else 1) + part
        _, inverse = torch.unique(joint, return_inverse=True)
    return inverse


def _beside(per_row: Tensor, x: Tensor) -> Tensor:
    """per_row (B,) with as many dimensions as x (B, ...), to broadcast against it."""
    return per_row.view(-1, *[1] * (x.ndim - 1))


def group_sum(x: Tensor, group_ids: Tensor) -> Tensor:
    """Sum of x (B, ...) over the rows of the same group, given back to each row, (B, ...).

    Summed in float64, so that the order of rows matters as little as it can.
    """
    index = group_index(group_ids)
    groups = int(index.max()) + 1 if len(index) else 0
    total = torch.zeros(groups, *x.shape[1:], dtype=torch.float64, device=x.device)
    total.index_add_(0, index, x.double())
    return total.to(x.dtype)[index]


def group_count(group_ids: Tensor) -> Tensor:
    """Size of each row's group, (B,) int64."""
    _, inverse, counts = torch.unique(group_ids, return_inverse=True, return_counts=True)
    return counts[inverse]


def group_mean(x: Tensor, group_ids: Tensor) -> Tensor:
    """Mean of x (B, ...) over the rows of the same group, given back to each row, (B, ...)."""
    return group_sum(x, group_ids) / _beside(group_count(group_ids), x)


def group_std(x: Tensor, group_ids: Tensor, *, ddof: int = 1) -> Tensor:
    """Standard deviation of x (B, ...) in each row's group, over G - ddof; 0 for G = ddof."""
    square = group_sum((x - group_mean(x, group_ids)).square(), group_ids)
    return (square / _beside((group_count(group_ids) - ddof).clamp(min=1), x)).sqrt()


def group_max(x: Tensor, group_ids: Tensor) -> Tensor:
    """Largest x (B, ...) in each row's group, (B, ...)."""
    index = group_index(group_ids)
    groups = int(index.max()) + 1 if len(index) else 0
    top = x.new_full((groups, *x.shape[1:]), -torch.inf)
    return top.scatter_reduce_(0, _beside(index, x).expand_as(x), x, "amax")[index]


def leave_one_out_mean(x: Tensor, group_ids: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean of x (B, ...) over the *other* rows of each row's group, (B, ...).

    weight: (B,), not negative; None weighs all rows alike. 0 where the others weigh nothing.
    """
    weight = torch.ones_like(group_ids, dtype=x.dtype) if weight is None else weight
    wide = _beside(weight.double(), x)
    others = group_sum(wide * x.double(), group_ids) - wide * x.double()
    total = group_sum(wide, group_ids) - wide
    return torch.where(total > 0, others / torch.where(total > 0, total, 1), 0).to(x.dtype)


def group_degenerate(x: Tensor, group_ids: Tensor) -> Tensor:
    """True (B, ...) where a group's x are equal up to rounding, and where it has one row.

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

# Blocks of this many steps; as many rows at a time as a cache holds.
_BLOCK, _ROWS = 16, 128


def linear_scan(b: Tensor, a: Tensor | float) -> Tensor:
    """x_t = b_t + a_t x_{t+1}, with x_T = 0, along the last dimension of b (B, T).

    a: a number, or a tensor (B, T). With a number all blocks of 16 steps advance together, and
    then their first entries by the same recursion; with a tensor the steps go one by one over
    contiguous (T, B). Only elementwise operations (no matrix product, whose rounding depends on
    the shape): columns appended to b change no bit of the others.
    """
    if isinstance(a, Tensor):
        return _scan_steps(b, a)
    out = torch.empty_like(b)
    for rows in _row_blocks(b):
        out[rows] = _scan_blocks(_whole_blocks(b[rows].clone()), float(a))[:, : b.shape[1]]
    return out


def _row_blocks(x: Tensor) -> list[slice]:
    size = _ROWS if x.device.type == "cpu" else max(len(x), 1)
    return [slice(start, start + size) for start in range(0, len(x), size)]


def _whole_blocks(x: Tensor) -> Tensor:
    """x (B, T), contiguous, with zeros after it up to a multiple of the block."""
    short = -x.shape[1] % _BLOCK
    return torch.nn.functional.pad(x, (0, short)) if short else x.contiguous()


def _scan_blocks(x: Tensor, a: float) -> Tensor:
    """The recursion in place; x (B, T) is contiguous, T a multiple of the block."""
    rows, steps = x.shape
    blocks = x.view(rows, steps // _BLOCK, _BLOCK)
    lines = blocks.unbind(2)
    for k in range(_BLOCK - 2, -1, -1):
        lines[k].add_(lines[k + 1], alpha=a)
    if steps > _BLOCK:
        # A block's first entry and the later ones' obey the same recursion, 16 steps a step.
        heads = _scan_blocks(_whole_blocks(lines[0].clone()), a**_BLOCK)[:, 1 : steps // _BLOCK]
        powers = [a**k for k in range(_BLOCK, 0, -1)]
        decay = torch.tensor(powers, dtype=torch.float64).to(x)
        blocks[:, :-1].addcmul_(heads[:, :, None], decay)
    return x


def _scan_steps(b: Tensor, a: Tensor) -> Tensor:
    return _scan_lines(b.T.clone(memory_format=torch.contiguous_format),
                       a.to(b.dtype).expand_as(b).T.contiguous()).T.contiguous()  # fmt: skip


def _scan_lines(b: Tensor, a: Tensor) -> Tensor:
    """The recursion along the first dimension of b and a (T, B), in place: contiguous lines."""
    lines, factors = b.unbind(0), a.unbind(0)
    for t in range(len(lines) - 2, -1, -1):
        lines[t].addcmul_(factors[t], lines[t + 1])
    return b


def _positions(mask: Tensor) -> Tensor:
    """Where each action stands among its row's actions, (B, T) int64; holes share a spare slot."""
    mask = mask.bool()
    return torch.where(mask, mask.cumsum(1) - 1, mask.shape[1])


def has_holes(mask: Tensor) -> bool:
    """Whether an action follows a token that is none (an observation inside a response)."""
    mask = mask.bool()
    starts = mask[:, 1:] > mask[:, :-1]
    return starts.numel() > 0 and bool(starts.view(torch.uint8).max())  # a fast `any`


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
    end = x.new_zeros(x.shape[0]) if end is None else end.to(x.dtype)
    keep = mask.bool()
    if has_holes(keep):
        out = _carry_back(torch.where(keep, x, 0).T, ~keep.T, end).T
    else:
        out = _shift(x, mask, end)
    return torch.where(keep, out, 0)


def _carry_back(x: Tensor, off: Tensor, end: Tensor) -> Tensor:
    """x (T, B), 0 where `off`, at the next entry that is not off, `end` (B,) after the last."""
    carried = torch.cat([x, end[None]])  # 0 + 1 * x is exact, so the scan carries it over holes
    return _scan_lines(carried, torch.nn.functional.pad(off.to(x.dtype), (0, 0, 0, 1)))[1:]


def _shift(x: Tensor, mask: Tensor, end: Tensor) -> Tensor:
    """`next_action` for a mask without holes; off the mask the result may be anything."""
    out = torch.empty_like(x)
    out[:, :-1] = x[:, 1:]
    exact = mask.dtype in (torch.float32, torch.float64)  # sums of bool are slow
    count = mask.sum(1, keepdim=True, dtype=None if exact else torch.float32)
    return out.scatter_(1, (count - 1).clamp(min=0).long(), end[:, None]) if x.numel() else out


def td_lambda(rewards: Tensor, values: Tensor, bootstrap_values: Tensor, response_mask: Tensor, *,
              gamma: float = 1.0, lam: Tensor | float = 1.0, rho: Tensor | None = None,
              c: Tensor | None = None) -> Tensor:  # fmt: skip
    """acc_t = rho_t delta_t + gamma lam_t c_t acc_next, over action tokens, (B, T).

    delta_t = r_t + gamma V_next - V_t; after the last action V_next is `bootstrap_values` (B,).
    lam: a number or (B, T). rho, c: importance weights (B, T), 1 where None. Holes in the mask
    are stepped over: `next` is the next action.  Source: Schulman et al. 2015, arXiv:1506.02438;
    Espeholt et al. 2018, arXiv:1802.01561.
    """
    off = ~response_mask.bool()
    end = bootstrap_values.to(values.dtype)
    factor = gamma * lam if c is None else gamma * lam * c
    if isinstance(factor, float | int) and not has_holes(response_mask):
        acc = torch.empty_like(values)
        for rows in _row_blocks(acc):
            delta = _shift(values[rows], response_mask[rows], end[rows]).mul_(gamma)
            delta.add_(rewards[rows]).sub_(values[rows])
            delta = delta if rho is None else delta.mul_(rho[rows])
            # Whatever stood off the mask, NaN too, ends here; of zeros the scan makes zeros.
            delta = _whole_blocks(delta.masked_fill_(off[rows], 0))
            acc[rows] = _scan_blocks(delta, float(factor))[:, : acc.shape[1]]
        return acc
    # Time goes first from here on: each step of a scan then reads and writes contiguous lines.
    off, rewards, values = (x.T.contiguous() for x in (off, rewards, values))
    delta = (
        _carry_back(torch.where(off, 0, values), off, end).mul_(gamma).add_(rewards).sub_(values)
    )
    delta = (delta if rho is None else delta.mul_(rho.T)).masked_fill_(off, 0)
    # A hole adds nothing and passes on what comes after it.
    factor = torch.as_tensor(factor, dtype=delta.dtype, device=delta.device).expand(off.T.shape)
    acc = _scan_lines(delta, torch.where(off, 1, factor.T.contiguous()))
    return acc.masked_fill_(off, 0).T.contiguous()


def n_step_returns(rewards: Tensor, values: Tensor, bootstrap_values: Tensor,
                   response_mask: Tensor, *, gamma: float = 1.0, n: int = 1) -> Tensor:  # fmt: skip
    """sum_{k<n} gamma^k r_{t+k} + gamma^n V_{t+n} over action tokens, (B, T).

    Where fewer than n actions are left, all of them and the discounted `bootstrap_values`. The
    window of n is put together from windows of 1, 2, 4, ..., so the cost grows with log n.
    """
    mask = response_mask.bool()
    if has_holes(mask):
        packed = collapse(mask.to(rewards.dtype), mask)
        returns = n_step_returns(collapse(rewards, mask), collapse(values, mask),
                                 bootstrap_values, packed, gamma=gamma, n=n)  # fmt: skip
        return expand(returns, mask)
    n = min(n, mask.shape[1])
    # What follows the last action counts as a reward there; beyond it all is 0.
    window = torch.where(mask, rewards, 0) + at_last_action(
        gamma * bootstrap_values.to(rewards.dtype), mask
    )
    returns = gamma**n * _ahead(torch.where(mask, values, 0), n)
    done, width = 0, 1
    while done < n:
        if n & width:
            returns = returns + gamma**done * _ahead(window, done)
            done += width
        window = window + gamma**width * _ahead(window, width)
        width *= 2
    return torch.where(mask, returns, 0)


def _ahead(x: Tensor, steps: int) -> Tensor:
    """x_{t + steps} at t, 0 beyond the end, (B, T)."""
    return torch.nn.functional.pad(x[:, steps:], (0, min(steps, x.shape[1])))
