"""Made-up batches, and the zoo's side of a comparison with the code of a paper's authors."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from helpers.zoo import ZOO
from rlzoo_lab.kit.checks.made_up import made_up

Columns = dict[str, Any]
Pair = tuple[str, Tensor, Tensor]  # "value" or "gradient", ours, theirs
ROWS, STEPS, SAMPLES, BATCHES = 64, 40, 8, 60


def batch(seed: int, scale: float) -> Columns:
    """Every column for 8 groups of 8 rows, 1 to 40 tokens each without holes; ratios to e^4."""
    draw = torch.Generator().manual_seed(seed)
    length = torch.randint(1, STEPS + 1, (ROWS, 1), generator=draw)
    mask = (torch.arange(STEPS) < length).double()
    groups = torch.arange(ROWS) // SAMPLES
    columns = made_up(ZOO, seed, mask=mask, groups=groups)
    moved = scale * torch.randn(ROWS, STEPS, dtype=torch.float64, generator=draw)
    now = (columns["old_log_probs"] + moved.clamp(-4, 4)).clamp(max=-1e-3)
    columns["log_probs"] = now * mask
    return columns


def batches() -> Iterator[Columns]:
    for seed in range(BATCHES):
        yield batch(seed, (0.02, 0.3, 1.5)[seed % 3])


def loss_pairs(ours: Tensor, theirs: Tensor, leaf: Tensor, value: bool = True) -> Iterator[Pair]:
    """Of two scalars made of one leaf."""
    if value:
        yield "value", ours.detach(), theirs.detach()
    slopes = [torch.autograd.grad(x, leaf, retain_graph=True)[0] for x in (ours, theirs)]
    yield "gradient", *slopes


def leaf_of(c: Columns) -> tuple[Tensor, Columns]:
    leaf = c["log_probs"].clone().requires_grad_()
    return leaf, {**c, "log_probs": leaf}


def our_loss(name: str, c: Columns, aggregation: str = "token_mean", /, **options: Any) -> Tensor:
    loss, _ = ZOO.policy_losses[name](c, **options)
    return (ZOO.aggregations[aggregation](c) * loss).sum()


def ours(name: str, c: Columns, **options: Any) -> Tensor:
    return ZOO.estimators[name](c, **options)["advantages"]
