"""One call of an estimator and one of a policy loss, the same for every trainer.

Components go by their names, so that what a trainer registers can be sent to its other processes.
"""

import logging
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from rlzoo import load_zoo
from rlzoo.errors import ComponentError, RlzooError
from rlzoo.ops import whiten
from rlzoo_bridges.columns import Columns
from rlzoo_bridges.hosts import PREFIX, Host

WHITENINGS = ("none", "batch", "group")
log = logging.getLogger("rlzoo")


@cache
def zoo() -> Any:
    """The zoo of this process."""
    return load_zoo()


def find(host: Host, kind: str, name: str) -> Any:
    """The component of that name; raises ComponentError where it cannot run in this trainer."""
    component = zoo().shelves[kind][name.removeprefix(PREFIX)]
    if text := host.refusal(component):
        raise ComponentError(text)
    return component


def estimate(
    host: Host,
    name: str,
    columns: Columns,
    options: Mapping[str, Any],
    usual: Mapping[str, Any] | None = None,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns (B, T) of the estimator `name`.

    options: its own, and `whiten` (none, batch or group) with `whiten_ddof` (1, as the trainers
        have it): trainers whiten inside their estimators, rlzoo after them.
    usual:   the trainer's own gamma and lam, for an estimator that has options of these names.
    """
    component = find(host, "estimators", name)
    own = {k: v for k, v in (usual or {}).items() if k in component.options and v is not None}
    own |= options
    how, ddof = own.pop("whiten", "none"), own.pop("whiten_ddof", 1)
    if how not in WHITENINGS:
        raise ComponentError(f"whiten: must be one of {', '.join(WHITENINGS)}. Got {how!r}")
    out = component(columns, **own)
    advantages = out["advantages"]
    returns = out.get("returns", advantages)
    if how != "none":
        groups = columns["group_ids"] if how == "group" else None
        advantages = whiten(advantages, columns["response_mask"], groups, ddof=int(ddof))
    return advantages, returns


def lose(
    host: Host,
    name: str,
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    options: Mapping[str, Any],
) -> tuple[Tensor, dict[str, float]]:
    """The policy loss of each token (B, T), and means of its metrics over the actions in `mask`."""
    component = find(host, "policy_losses", name)
    mask = mask.to(log_probs.dtype)
    columns = {
        "log_probs": log_probs,
        "old_log_probs": old_log_probs.to(log_probs.dtype),
        "advantages": advantages.to(log_probs.dtype).expand_as(log_probs),
        "response_mask": mask,
    }
    losses, metrics = component(columns, **options)
    count = mask.sum().clamp(min=1)
    return losses, {k: ((x * mask).sum() / count).item() for k, x in metrics.items()}


@lru_cache(maxsize=None)
def proportional(component: Any) -> bool:
    """Whether c times the advantages give c times the loss, as few numbers show."""
    g = torch.Generator().manual_seed(0)
    old = -torch.rand(4, 6, dtype=torch.float64, generator=g)
    new = old + 0.5 * torch.randn(4, 6, dtype=torch.float64, generator=g)
    advantages = torch.randn(4, 6, dtype=torch.float64, generator=g)
    columns = {"log_probs": new, "old_log_probs": old, "response_mask": torch.ones_like(old)}
    once, many = (component({**columns, "advantages": c * advantages})[0] for c in (1.0, 1e-3))
    return torch.allclose(1e-3 * once, many, rtol=1e-6, atol=1e-12)
