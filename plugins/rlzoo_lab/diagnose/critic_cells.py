"""V compared with the actual returns, by position and in bins of V; arguments as in
`rlzoo.step.metrics`."""

from typing import Any

import torch
from torch import Tensor

from rlzoo.step import metrics as quality


def cells(values: Tensor, returns: Tensor, weight: Tensor, cell: Tensor) -> list[dict[str, Any]]:
    """A line for each value of `cell` (N,): its weight, mean V, mean G, both standard deviations
    and what V explains."""
    lines = []
    for i in cell.unique().tolist():
        here = cell == i
        v, g, w = values[here], returns[here], weight[here]
        line = {
            "cell": i,
            "share": float(w.sum() / weight.sum()),
            "value": quality.mean(v, w),
            "return": quality.mean(g, w),
            "value_sd": quality.variance(v, w) ** 0.5,
            "return_sd": quality.variance(g, w) ** 0.5,
            "explained_variance": quality.explained(v, g, w),
        }
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


def slope(values: Tensor, returns: Tensor, weight: Tensor) -> float | None:
    """Slope of the regression of G on V: 1 where returns rise by x when values do, below 1 where
    the critic exaggerates; None if V does not vary."""
    spread = quality.variance(values, weight)
    if spread < 1e-12:
        return None
    both = (values - quality.mean(values, weight)) * (returns - quality.mean(returns, weight))
    return quality.mean(both, weight) / spread
