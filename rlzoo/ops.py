"""Masked and group statistics, and the reverse recursion behind the TD(lambda) family.

Shapes: x (B, T) per token or (B,) per row; mask (B, T), 1 for actions; group_ids (B,), any integers
in any order. Nothing loops over rows; the only loop over time is in `linear_scan`, over blocks of
it.
"""

import torch
from torch import Tensor


def masked_sum(x: Tensor, mask: Tensor) -> Tensor:
    """Sum over each row's action tokens, (B, T) -> (B,); ignores NaN outside the mask."""
    return torch.where(mask.bool(), x, 0).sum(-1)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean over all action tokens, (B, T) -> (); 0 if there are none."""
    mask = mask.bool()
    return torch.where(mask, x, 0).sum() / mask.sum().clamp(min=1)


def masked_var(x: Tensor, mask: Tensor, *, ddof: int = 0) -> Tensor:
    """Variance over all action tokens, (B, T) -> (); 0 for at most `ddof` actions."""
    mask = mask.bool()
    square = torch.where(mask, x - masked_mean(x, mask), 0).square().sum()
    return square / (mask.sum() - ddof).clamp(min=1)


def absolute(x: Tensor, width: float = 1e-3) -> Tensor:
    """abs(x) whose gradient is the sign of x, or x / width within `width` of 0.

    The sign of a log-ratio that is 0 except for rounding, as before the first step, is random.
    """
    slope = (x.detach() / width).clamp(-1, 1)
    return x.detach().abs() + slope * (x - x.detach())


def last_action(mask: Tensor) -> Tensor:
    """Index of each row's last action, (B, T) -> (B,) int64; -1 if there is none."""
    steps = torch.arange(mask.shape[1] + 1, device=mask.device)  # of the one before the first, too
    return (torch.nn.functional.pad(mask.bool(), (1, 0)) * steps).amax(1) - 1


def at_last_action(x: Tensor, mask: Tensor) -> Tensor:
    """x (B,) placed at each row's last action, (B, T), 0 elsewhere."""
    steps = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(steps == last_action(mask)[:, None], x[:, None], 0)


def less_penalty(scores: Tensor, penalty: Tensor, mask: Tensor, *, coef: float,
                 spread: str = "token") -> Tensor:  # fmt: skip
    """Rewards (B, T): `scores` minus coef times a penalty (B, T), per token (spread "token") or
    summed at the last action ("last")."""
    if spread == "last":
        penalty = at_last_action(masked_sum(penalty, mask), mask)
    return scores - coef * penalty


def group_index(group_ids: Tensor, *more: Tensor) -> Tensor:
    """A number from 0 to B - 1 for each group, (B,) int64, possibly with gaps. Further (B,) keys
    split the groups."""
    if more:
        first, second = group_index(group_ids), group_index(more[0])
        return group_index(first * len(first) + second, *more[1:])
    if len(group_ids) and not group_ids.is_floating_point():
        low, high = group_ids.aminmax()
        if low >= 0 and high < len(group_ids):  # a sort costs more than some empty groups
            return group_ids.long()
    return torch.unique(group_ids, return_inverse=True)[1]


def _beside(per_row: Tensor, x: Tensor) -> Tensor:
    """per_row (B,) with as many dimensions as x (B, ...), to broadcast against it."""
    return per_row.view(-1, *[1] * (x.ndim - 1))


def group_sum(x: Tensor, group_ids: Tensor) -> Tensor:
    """Sum of x (B, ...) over each row's group, (B, ...).

    Summed in float64, so that the order of rows matters as little as possible.
    """
    index = group_index(group_ids)
    total = torch.zeros(len(index), *x.shape[1:], dtype=torch.float64, device=x.device)
    total.index_add_(0, index, x.double())
    return total.to(x.dtype)[index]


def group_count(group_ids: Tensor) -> Tensor:
    """Size of each row's group, (B,) int64."""
    return group_sum(torch.ones_like(group_ids, dtype=torch.int64), group_ids)


def group_mean(x: Tensor, group_ids: Tensor) -> Tensor:
    """Mean of x (B, ...) over each row's group, (B, ...)."""
    return group_sum(x, group_ids) / _beside(group_count(group_ids), x)


def group_std(x: Tensor, group_ids: Tensor, *, ddof: int = 1) -> Tensor:
    """Standard deviation of x (B, ...) in each row's group, over G - ddof; 0 for G = ddof."""
    square = group_sum((x - group_mean(x, group_ids)).square(), group_ids)
    return (square / _beside((group_count(group_ids) - ddof).clamp(min=1), x)).sqrt()


def group_max(x: Tensor, group_ids: Tensor) -> Tensor:
    """Largest x (B, ...) in each row's group, (B, ...)."""
    index = group_index(group_ids)
    top = torch.full_like(x, -torch.inf)
    return top.scatter_reduce_(0, _beside(index, x).expand_as(x), x, "amax")[index]


def leave_one_out_mean(x: Tensor, group_ids: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean of x (B, ...) over the *other* rows of each row's group, (B, ...).

    weight: (B,), not negative; None weights all rows equally. 0 if the others have weight 0.
    """
    weight = torch.ones_like(group_ids, dtype=x.dtype) if weight is None else weight
    wide = _beside(weight.double(), x)
    others = group_sum(wide * x.double(), group_ids) - wide * x.double()
    total = group_sum(wide, group_ids) - wide
    return torch.where(total > 0, others / torch.where(total > 0, total, 1), 0).to(x.dtype)


def group_degenerate(x: Tensor, group_ids: Tensor) -> Tensor:
    """True (B, ...) where a group's x are equal up to rounding, or the group has one row.

    Equal means max - min <= 4 eps max(1, |x|), eps that of x's dtype (1.2e-7 of float32, 2.2e-16 of
    float64), but float32's in half precision, where 1.00 and 0.98 differ by 2 steps. So 0.1 + 0.2
    and 0.3 are equal rewards, and a spread beyond rounding is a signal at any distance from 0. The
    1 is for rewards whose terms cancel.
    """
    high, low = group_max(x, group_ids), -group_max(-x, group_ids)
    size = torch.maximum(high.abs(), low.abs()).clamp(min=1)
    eps = min(torch.finfo(x.dtype).eps, torch.finfo(torch.float32).eps)
    return high - low <= 4 * eps * size


def whiten(x: Tensor, mask: Tensor, group_ids: Tensor | None = None, *, ddof: int = 0,
           eps: float = 1e-8) -> Tensor:  # fmt: skip
    """Standardize x over action tokens, (B, T), of the batch or of each group.

    0 outside the mask; finite for a single token. Population variance unless `ddof` is given;
    `eps` is added to it, so that rounding noise (a spread below 1e-4) is not scaled up to 1.
    """
    one_group = torch.zeros(len(mask), dtype=torch.long, device=mask.device)
    ids = one_group if group_ids is None else group_ids
    count = group_sum(mask.sum(-1).to(x.dtype), ids)
    mean = group_sum(masked_sum(x, mask), ids) / count.clamp(min=1)
    centered = torch.where(mask.bool(), x - mean[:, None], 0)
    var = group_sum(centered.square().sum(-1), ids) / (count - ddof).clamp(min=1)
    return centered * (var + eps).rsqrt()[:, None]


# Blocks of this many steps; as many rows at a time as a cache holds.
_BLOCK, _ROWS = 16, 128


def linear_scan(b: Tensor, a: Tensor | float) -> Tensor:
    """x_t = b_t + a_t x_{t+1}, with x_T = 0, along the last dimension of b (B, T).

    a: a number, or a tensor (B, T). All blocks of 16 steps advance together, and then their first
    entries by the same recursion. Only elementwise operations (no matrix product, whose rounding
    depends on the shape): columns appended to b change no bit of the others.
    """
    out = torch.empty_like(b)
    for rows in _row_blocks(b):
        factor = _whole_blocks(a[rows].to(b.dtype).clone()) if isinstance(a, Tensor) else float(a)
        out[rows] = _scan_blocks(_whole_blocks(b[rows].clone()), factor)[:, : b.shape[1]]
    return out


def _row_blocks(x: Tensor) -> list[slice]:
    size = _ROWS if x.device.type == "cpu" else max(len(x), 1)
    return [slice(start, start + size) for start in range(0, len(x), size)]


def _whole_blocks(x: Tensor) -> Tensor:
    """x (B, T), contiguous, with zeros after it up to a multiple of the block."""
    short = -x.shape[1] % _BLOCK
    return torch.nn.functional.pad(x, (0, short)) if short else x.contiguous()


def _scan_blocks(x: Tensor, a: Tensor | float) -> Tensor:
    """The recursion in place; x (B, T) and a tensor a, which is used up, are of whole blocks."""
    count = x.shape[1] // _BLOCK
    blocks = x.view(-1, count, _BLOCK)
    lines = blocks.unbind(2)
    backwards = range(_BLOCK - 2, -1, -1)
    if not isinstance(a, Tensor):
        for k in backwards:
            lines[k].add_(lines[k + 1], alpha=a)
        powers = [a**k for k in range(_BLOCK, 0, -1)]
        reach = torch.tensor(powers, dtype=torch.float64).to(x).view(1, 1, -1)
        step: Tensor | float = a**_BLOCK
    else:
        reach = a.view_as(blocks)
        factors = reach.unbind(2)
        for k in backwards:
            lines[k].addcmul_(factors[k], lines[k + 1])
        for k in backwards if count > 1 else ():  # from here on: what reaches a block's end
            factors[k].mul_(factors[k + 1])
        step = _whole_blocks(factors[0].clone())
    if count > 1:
        # A block's first entry and the later blocks' obey the same recursion, a block a step.
        heads = _scan_blocks(_whole_blocks(lines[0].clone()), step)[:, 1:count]
        blocks[:, :-1].addcmul_(heads[:, :, None], reach[:, : count - 1])
    return x


def _positions(mask: Tensor) -> Tensor:
    """Each action's index among its row's actions, (B, T) int64; holes share a spare slot."""
    mask = mask.bool()
    return torch.where(mask, mask.cumsum(1) - 1, mask.shape[1])


def has_holes(mask: Tensor) -> bool:
    """Whether an observation interrupts a response's actions."""
    mask = mask.bool()
    starts = mask[:, 1:] > mask[:, :-1]
    return starts.numel() > 0 and bool(starts.view(torch.uint8).max())  # a fast `any`


def collapse(x: Tensor, mask: Tensor) -> Tensor:
    """Move each row's actions to its front, (B, T), with 0 after them."""
    out = x.new_zeros(x.shape[0], x.shape[1] + 1)
    return out.scatter_(1, _positions(mask), torch.where(mask.bool(), x, 0))[:, :-1]


def expand(x: Tensor, mask: Tensor) -> Tensor:
    """Undo `collapse`: entries back at their actions, 0 elsewhere, (B, T)."""
    spare = torch.nn.functional.pad(x, (0, 1))
    return torch.where(mask.bool(), spare.gather(1, _positions(mask)), 0)


def next_action(x: Tensor, mask: Tensor, end: Tensor | None = None) -> Tensor:
    """x at the *next action* of each action, or `end` (B,) after the last one, (B, T)."""
    end = x.new_zeros(x.shape[0]) if end is None else end.to(x.dtype)
    return torch.where(mask.bool(), _next(x, mask, end, has_holes(mask)), 0)


def _next(x: Tensor, mask: Tensor, end: Tensor, holes: bool) -> Tensor:
    """`next_action`, but off the mask it may hold anything."""
    if holes:
        # Carry each action's x back to the one before: b + 1 * x is exact where b is 0.
        keep = mask.bool()
        carried = torch.cat([torch.where(keep, x, 0), end[:, None]], 1)
        over = torch.nn.functional.pad((~keep).to(x.dtype), (0, 1))
        return linear_scan(carried, over)[:, 1:]
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
    lam: a number or (B, T). rho, c: importance weights (B, T); None means 1. Holes in the mask are
    skipped: `next` is the next action.
    Source: Schulman et al. 2015, arXiv:1506.02438; Espeholt et al. 2018, arXiv:1802.01561.
    """
    holes = has_holes(response_mask)
    end = bootstrap_values.to(values.dtype)
    acc = torch.empty_like(values)
    for rows in _row_blocks(acc):
        off = ~response_mask[rows].bool()
        delta = _next(values[rows], response_mask[rows], end[rows], holes)
        delta = delta.mul_(gamma).add_(rewards[rows]).sub_(values[rows])
        delta = delta if rho is None else delta.mul_(rho[rows])
        delta = delta.masked_fill_(off, 0)  # values off the mask, NaN too, end here
        factor: Tensor | float = gamma * (lam[rows] if isinstance(lam, Tensor) else lam)
        factor = factor if c is None else factor * c[rows]
        if holes or isinstance(factor, Tensor):
            # A hole adds nothing and passes on what comes after it.
            if not isinstance(factor, Tensor):
                factor = delta.new_full((), factor)
            factor = factor.to(delta.dtype)
            factor = _whole_blocks(torch.where(off, 1, factor))
        scanned = _scan_blocks(_whole_blocks(delta), factor)[:, : acc.shape[1]]
        acc[rows] = scanned.masked_fill_(off, 0) if holes else scanned
    return acc


def run_starts(ids: Tensor, mask: Tensor) -> Tensor:
    """True (B, T) at the first action and wherever the id changes between actions."""
    ids = ids.double()
    before = ids.amax(1) + 1 if ids.numel() else ids.sum(1)  # what no id of the row equals
    return mask.bool() & (next_action(ids.flip(1), mask.flip(1), before).flip(1) != ids)


def at_run_start(x: Tensor, starts: Tensor) -> Tensor:
    """x (B, T) at the latest start up to each token; x_0 if there is none."""
    columns = torch.arange(x.shape[1], device=x.device)
    return x.gather(1, torch.where(starts, columns, 0).cummax(1).values)


def reward_to_go(rewards: Tensor, response_mask: Tensor, *, gamma: float = 1.0) -> Tensor:
    """sum_k gamma^k r_{t+k} over actions from t, (B, T)."""
    nothing = torch.zeros_like(rewards)
    return td_lambda(rewards, nothing, nothing[:, 0], response_mask, gamma=gamma)


def n_step_returns(rewards: Tensor, values: Tensor, bootstrap_values: Tensor,
                   response_mask: Tensor, *, gamma: float = 1.0, n: int = 1) -> Tensor:  # fmt: skip
    """sum_{k<n} gamma^k r_{t+k} + gamma^n V_{t+n} over action tokens, (B, T).

    If fewer than n actions are left, it uses all of them and the discounted `bootstrap_values`. The
    window of n is built from windows of 1, 2, 4, ..., so the cost grows with log n.
    """
    mask = response_mask.bool()
    if has_holes(response_mask):
        packed = collapse(mask.to(rewards.dtype), mask).bool()
        returns = _n_steps(collapse(rewards, mask), collapse(values, mask), bootstrap_values,
                           packed, gamma, n)  # fmt: skip
        return expand(returns, mask)
    return _n_steps(rewards, values, bootstrap_values, mask, gamma, n)


def _n_steps(rewards: Tensor, values: Tensor, bootstrap_values: Tensor, mask: Tensor,
             gamma: float, n: int) -> Tensor:  # fmt: skip
    """`n_step_returns` where each row's actions (B, T) bool are contiguous, at its front."""
    n = min(n, mask.shape[1])
    # The value after the last action counts as a reward there; beyond it all is 0.
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
