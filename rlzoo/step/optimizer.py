"""The optimizers: AdamW and its learning-rate schedule."""

import math

import torch

from rlzoo.accel.engine import Engine
from rlzoo.recipe.keys import Optimizer
from rlzoo.recipe.plan import Plan


def make_optimizers(engine: Engine, plan: Plan) -> dict[str, torch.optim.Optimizer]:
    """One optimizer for each trained network, by its name."""
    made: dict[str, torch.optim.Optimizer] = {}
    for name, network in engine.networks.items():
        config: Optimizer = plan.recipe.config[name]
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
