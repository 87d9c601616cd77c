"""Calls of an estimator and of a policy loss, the same for every trainer.

Components go by their names, so that what a trainer registers can be sent to its other processes.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from torch import Tensor

from rlzoo import load_zoo
from rlzoo.errors import ComponentError
from rlzoo.ops import masked_mean, whiten
from rlzoo_bridges.columns import Columns
from rlzoo_bridges.hosts import PREFIX, Host

WHITENINGS = ("none", "batch", "group")
log = logging.getLogger("rlzoo")


@cache
def zoo() -> Any:
    """The zoo of this process; raises ComponentError where there is none."""
    found = load_zoo()
    if not found.estimators:
        raise ComponentError("no estimator is installed: pip install rlzoo-llm")
    return found


def find(host: Host, kind: str, name: str, options: Mapping[str, Any] | None = None) -> Any:
    """The component of that name; raises ComponentError where it cannot run in this trainer.

    options: its own, checked here, and those of whitening. The needs of a `mix` depend on them, so
    without them it is not refused.
    """
    component = zoo().shelves[kind][name.removeprefix(PREFIX)]
    if options is not None or not component.parts:
        own = {k: v for k, v in (options or {}).items() if not k.startswith("whiten")}
        needs = component.needs_with(component.check_options(own))
        if text := host.refusal(replace(component, needs=needs), zoo().columns):
            raise ComponentError(text)
    if kind == "policy_losses" and component.couples == "batch":
        _once(
            f"{component.label} compares the tokens of a whole mini-batch, but {host.title} "
            "passes one micro-batch at a time, so set the micro-batch size to the mini-batch size"
        )
    return component


@cache
def _once(text: str) -> None:
    log.warning(text)


def estimate(
    host: Host,
    name: str,
    columns: Columns,
    options: Mapping[str, Any],
    usual: Mapping[str, Any] | None = None,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns (B, T) of the estimator `name`.

    options: its options, and `whiten` (none, batch or group) with `whiten_ddof` (1, as in the
        trainers): trainers whiten inside their estimators, rlzoo after them.
    usual: the trainer's gamma and lam, for an estimator that has these options.
    """
    component = find(host, "estimators", name)
    own = {k: v for k, v in (usual or {}).items() if k in component.options and v is not None}
    own |= options
    how, ddof = own.pop("whiten", "none"), own.pop("whiten_ddof", 1)
    if how not in WHITENINGS:
        raise ComponentError(f"whiten: must be one of {', '.join(WHITENINGS)}. Got {how!r}")
    columns.plugins = zoo().columns
    out = find(host, "estimators", name, own)(columns, **own)
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
    return losses, {k: masked_mean(x, mask).item() for k, x in metrics.items()}
