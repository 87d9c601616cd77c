"""The optimizers: AdamW, its learning-rate schedule and one optimizer step."""

import math
from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rlzoo.accel.shard import whole_tensor
from rlzoo.lm.models import Models
from rlzoo.recipe.keys import Optimizer

Totals = dict[str, list[float]]
Sums = dict[str, list[Tensor]]  # terms () of metrics and of the weights that norm them, by name


def make_optimizers(models: Models) -> dict[str, torch.optim.Optimizer]:
    """One optimizer for each trained network, by its name."""
    made: dict[str, torch.optim.Optimizer] = {}
    for name, network in models.networks.items():
        config: Optimizer = models.plan.recipe.config[name]
        made[name] = torch.optim.AdamW(
            [p for p in network.parameters() if p.requires_grad],
            lr=config.lr,
            betas=(config.betas[0], config.betas[1]),
            eps=config.eps,
            weight_decay=config.weight_decay,
            fused=True,  # no copies of the weights on the way
        )
    return made


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
_MAIN = {"actor": "actor/pg_loss", "critic": "critic/vf_loss"}
_LOSSES = ("actor/pg_loss", "actor/kl_loss", "critic/vf_loss")


def step_optimizers(
    models: Models,
    optimizers: Mapping[str, torch.optim.Optimizer],
    sums: Sums,
    totals: Totals,
    names: tuple[str, ...],
) -> None:
    """Clip, and step unless loss or gradient is not finite: such a step is skipped and counted."""
    norms = []
    for name in names:
        limit = models.plan.recipe.config[name].max_grad_norm
        trained = [p for p in models.networks[name].parameters() if p.requires_grad]
        if all(p.grad is None for p in trained):  # no row had a gradient; momentum continues
            for p in trained:
                p.grad = torch.zeros_like(p)
        limit = math.inf if limit is None else limit
        clipped = nn.utils.clip_grad_norm_(trained, limit, foreach=True)
        norms.append(whole_tensor(clipped) if models.sharded else clipped)
    terms = [(name, x) for name, xs in sums.items() for x in xs]
    read = torch.stack([x.detach().double() for x in (*norms, *(x for _, x in terms))]).tolist()
    found: dict[str, float] = defaultdict(float)
    for (name, _), value in zip(terms, read[len(norms) :], strict=True):
        found[name] += value
    if models.ranks.count > 1:
        found = models.ranks.sum(found)
    for name, norm in zip(names, read[: len(norms)], strict=True):
        optimizer = optimizers[name]
        fine = math.isfinite(norm) and math.isfinite(found.get(_MAIN[name], 0.0))
        if fine:
            optimizer.step()
            totals[f"{name}/grad_norm"].append(norm)
        optimizer.zero_grad(set_to_none=True)  # not to be held while the next batch is sampled
        totals["train/skipped"].append(0.0 if fine else 1.0)
    for name, value in found.items():
        owner = name.split("/")[0]
        if owner == "weight" or not math.isfinite(value):
            continue
        weight = 1.0 if name in _LOSSES else max(found[f"weight/{owner}"], 1e-12)
        totals[name].append(value / weight)
