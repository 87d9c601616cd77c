"""How good a critic is: V against what came of it, in all, by position, and in bins of V.

All are 1-D float tensors over N tokens or states: `values` V, `returns` what came (Monte Carlo
returns G, or the exact V^pi), `weight` how often each counts.
"""

from typing import Any

import torch
from torch import Tensor


def mean(x: Tensor, weight: Tensor) -> float:
    return float((weight * x).sum() / weight.sum())


def variance(x: Tensor, weight: Tensor) -> float:
    return mean((x - mean(x, weight)).square(), weight)


def explained(values: Tensor, returns: Tensor, weight: Tensor, noise: float = 0.0) -> float:
    """1 - Var(G - V) / Var(G); 0 where G does not vary.

    noise: added to both variances where `returns` are the expected ones, the mean
    of Var(G | s).
    """
    spread = variance(returns, weight) + noise
    if spread < 1e-12:
        return 0.0
    return 1 - (variance(returns - values, weight) + noise) / spread


def slope(values: Tensor, returns: Tensor, weight: Tensor) -> float | None:
    """Slope of the regression of G on V: 1 where returns rise by x when values do, below 1 where
    the critic exaggerates; None where V does not vary."""
    spread = variance(values, weight)
    if spread < 1e-12:
        return None
    both = (values - mean(values, weight)) * (returns - mean(returns, weight))
    return mean(both, weight) / spread


def thirds(place: Tensor, length: Tensor) -> Tensor:
    """0, 1 or 2: which third of a response of `length` actions its action number `place` is in."""
    return (3 * place).div(length.clamp(min=1), rounding_mode="floor").clamp(max=2)


def cells(
    values: Tensor, returns: Tensor, weight: Tensor, cell: Tensor, noise: Tensor | None = None
) -> list[dict[str, Any]]:
    """A line for each value of `cell` (N,): its weight, mean V, mean G, both standard deviations,
    what V explains and, where `noise` (N,), the variance of G of each state, is known, what a
    perfect critic would."""
    lines = []
    for i in cell.unique().tolist():
        here = cell == i
        v, g, w = values[here], returns[here], weight[here]
        luck = 0.0 if noise is None else mean(noise[here], w)
        line = {
            "cell": i,
            "share": float(w.sum() / weight.sum()),
            "value": mean(v, w),
            "return": mean(g, w),
            "value_sd": variance(v, w) ** 0.5,
            "return_sd": (variance(g, w) + luck) ** 0.5,
            "explained_variance": explained(v, g, w, luck),
        }
        if noise is not None:
            line["ceiling"] = explained(g, g, w, luck)
        lines.append(line)
    return lines


def value_bins(values: Tensor, weight: Tensor, bins: int = 5) -> Tensor:
    """(N,) which of `bins` equally heavy bins of V each is in; equal V are in one bin."""
    low, high = values.aminmax()
    if float(high - low) < 1e-9:
        return torch.zeros(len(values), dtype=torch.long)
    order = values.argsort()
    share = (weight[order].cumsum(0) - weight[order] / 2) / weight.sum()
    at = torch.searchsorted(share, torch.arange(1, bins).to(share) / bins).clamp(max=len(order) - 1)
    return torch.bucketize(values, values[order][at].unique(), right=True)
