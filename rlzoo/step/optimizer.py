"""The optimizers: AdamW, its learning-rate schedule and one optimizer step."""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from rlzoo.accel.shard import whole_tensor
from rlzoo.lm.models import Models
from rlzoo.plugin.call import Checks
from rlzoo.recipe.keys import Optimizer

Totals = dict[str, list[float]]


class Sums:
    """Sums of metrics over micro-batches, and of the weights that norm them: terms () on their
    device, which are read all at once."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self.terms: list[Tensor] = []

    def add(self, name: str, term: Tensor) -> None:
        self._names.append(name)
        self.terms.append(term.detach())

    def add_means(self, columns: Mapping[str, Tensor], weights: Tensor) -> None:
        """Weighted sums of `columns`, (B, T) by name; an entry without weight may be anything."""
        for name, x in columns.items():
            self.add(name, torch.where(weights > 0, weights * x, 0).sum())

    def added(self, read: Sequence[float]) -> dict[str, float]:
        """The sums, by name; `read`: the terms as numbers."""
        total: dict[str, float] = {}
        for name, x in zip(self._names, read, strict=True):
            total[name] = total.get(name, 0.0) + x
        return total


def make_optimizers(models: Models) -> dict[str, torch.optim.Optimizer]:
    """One optimizer for each trained network, by its name."""
    config = models.plan.recipe.config
    return {
        name: make_optimizer(network.parameters(), config[name])
        for name, network in models.networks().items()
    }


def make_optimizer(parameters: Iterable[nn.Parameter], config: Optimizer) -> torch.optim.AdamW:
    """config: the recipe's section, `actor` or `critic`."""
    return torch.optim.AdamW(
        [p for p in parameters if p.requires_grad],
        lr=config.lr,
        betas=(config.betas[0], config.betas[1]),
        eps=config.eps,
        weight_decay=config.weight_decay,
        fused=True,  # no copies of the weights on the way
    )


def learning_rate(config: Optimizer, step: int, progress: float) -> float:
    """The rate of step `step` (from 0) when `progress` in [0, 1] of the budget is spent."""
    rise = min(1.0, (step + 1) / config.lr_warmup) if config.lr_warmup else 1.0
    fall = {
        "constant": 1.0,
        "linear": 1.0 - progress,
        "cosine": 0.5 * (1 + math.cos(math.pi * progress)),
    }[config.lr_schedule]
    return config.lr * rise * fall


# These sums are losses already; the others are sums of weighted metrics.
_LOSSES = {"actor": ("actor/pg_loss", "actor/kl_loss"), "critic": ("critic/vf_loss",)}


def step_optimizers(
    models: Models,
    optimizers: Mapping[str, torch.optim.Optimizer],
    sums: Sums,
    checks: Checks,
    totals: Totals,
    names: tuple[str, ...],
) -> None:
    """Clip, and step unless loss or gradient is not finite: such a step is skipped and counted.

    Here the host waits for the device, once: for the norms, the metrics `sums`, and whether what
    plugins gave was finite (`checks`).
    """
    config = models.plan.recipe.config
    networks = models.networks()
    norms = []
    for name in names:
        limit = config[name].max_grad_norm
        trained = [p for p in networks[name].parameters() if p.requires_grad]
        if all(p.grad is None for p in trained):  # no row had a gradient; momentum continues
            for p in trained:
                p.grad = torch.zeros_like(p)
        limit = math.inf if limit is None else limit
        clipped = nn.utils.clip_grad_norm_(trained, limit, foreach=True)
        norms.append(whole_tensor(clipped) if models.sharded else clipped)
    read = checks.read(*norms, *sums.terms)
    found = sums.added(read[len(norms) :])
    if models.ranks.count > 1:
        found = models.ranks.sum(found)
    losses = {"actor": found.get("actor/pg_loss", 0.0), "critic": found.get("critic/vf_loss", 0.0)}
    for name, norm in zip(names, read[: len(norms)], strict=True):
        optimizer = optimizers[name]
        fine = math.isfinite(norm) and math.isfinite(losses[name])
        if fine:
            optimizer.step()
            totals[f"{name}/grad_norm"].append(norm)
        optimizer.zero_grad(set_to_none=True)  # not to be held while the next batch is sampled
        totals["train/skipped"].append(0.0 if fine else 1.0)
    for name, value in found.items():
        owner = name.split("/")[0]
        if owner == "weight" or not math.isfinite(value):
            continue
        is_loss = name in _LOSSES[owner]
        totals[name].append(value if is_loss else value / max(found[f"weight/{owner}"], 1e-12))
