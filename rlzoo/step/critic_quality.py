"""Measures a critic: V compared with the actual returns.

All are 1-D float tensors over N tokens or states: `values` V, `returns` the actual returns (Monte
Carlo returns G, or the exact V^pi), `weight` how often each counts.
"""

from torch import Tensor


def mean(x: Tensor, weight: Tensor) -> float:
    return float((weight * x).sum() / weight.sum())


def variance(x: Tensor, weight: Tensor) -> float:
    return mean((x - mean(x, weight)).square(), weight)


def explained(values: Tensor, returns: Tensor, weight: Tensor, noise: float = 0.0) -> float:
    """1 - Var(G - V) / Var(G); 0 if G does not vary.

    noise: added to both variances where `returns` are the expected ones, the mean
    of Var(G | s).
    """
    spread = variance(returns, weight) + noise
    if spread < 1e-12:
        return 0.0
    return 1 - (variance(returns - values, weight) + noise) / spread


def slope(values: Tensor, returns: Tensor, weight: Tensor) -> float | None:
    """Slope of the regression of G on V: 1 where returns rise by x when values do, below 1 where
    the critic exaggerates; None if V does not vary."""
    spread = variance(values, weight)
    if spread < 1e-12:
        return None
    both = (values - mean(values, weight)) * (returns - mean(returns, weight))
    return mean(both, weight) / spread


def thirds(place: Tensor, length: Tensor) -> Tensor:
    """0, 1 or 2: which third of a response of `length` actions its action number `place` is in."""
    return (3 * place).div(length.clamp(min=1), rounding_mode="floor").clamp(max=2)
