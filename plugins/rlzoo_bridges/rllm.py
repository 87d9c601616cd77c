"""rlzoo in rLLM: its estimators in rLLM's registry, for verl, Tinker and Fireworks.

from rlzoo_bridges.rllm import register

name = register("rloo")
AgentTrainer(..., traj_group_adv_estimator_map={"solver": name})
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlzoo.errors import ComponentError
from rlzoo.ops import at_last_action
from rlzoo_bridges import calls
from rlzoo_bridges.columns import Columns
from rlzoo_bridges.hosts import HOSTS, PREFIX

HOST = HOSTS["rllm"]


def register(estimator: str, **options: Any) -> str:
    """Register an estimator under the returned name, `rlzoo/ESTIMATOR`.

    options: the estimator's, and `whiten` (none, batch or group) with `whiten_ddof`. Raises
        ComponentError if the estimator cannot run in rLLM.
    """
    from rllm.trainer.algorithms.advantage import register_rllm_adv_estimator

    calls.find(HOST, "estimators", estimator)
    name = f"{PREFIX}{estimator}"

    def advantages(rewards: list[Any], algorithm_config: Any, **given: Any) -> tuple[Any, Any]:
        return estimate(estimator, rewards, given.get("traj_groups"), options)

    register_rllm_adv_estimator(name)(advantages)
    return name


def estimate(
    estimator: str, rewards: Sequence[Any], groups: Sequence[Any] | None, options: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    """Advantages and returns of each group: arrays (N,) of one number for each trajectory.

    rewards: an array (N,) for each group. groups: rLLM's, for the lengths of trajectories; without
    them each has one token. Raises ComponentError where the tokens of a trajectory differ.
    """
    lengths = [1] * sum(map(len, rewards))
    if groups is not None:
        steps = [trajectory.steps for group in groups for trajectory in group.trajectories]
        lengths = [max(1, sum(len(step.response_ids) for step in own)) for own in steps]
    where = torch.arange(max(lengths, default=1))
    mask = (where < torch.tensor(lengths)[:, None]).double()  # (B, T)
    found = calls.estimate(HOST, estimator, columns(rewards, mask), options)
    ends = list(accumulate(map(len, rewards)))
    out = []
    for wide in found:
        one = _one_each(estimator, wide, mask)
        out.append(np.split(one.numpy(), ends[:-1]))
    return out[0], out[1]


def columns(rewards: Sequence[Any], mask: Tensor) -> Columns:
    """rLLM's rewards by rlzoo's names. mask: (B, T), a row for each trajectory."""
    outcome = torch.as_tensor(np.concatenate([np.asarray(r, dtype=np.float64) for r in rewards]))
    sizes = torch.tensor([len(r) for r in rewards])
    ids = torch.arange(len(rewards)).repeat_interleave(sizes)
    scores = at_last_action(outcome, mask)
    own = {"rewards": scores, "scores": scores, "response_mask": mask, "group_ids": ids}
    return Columns(HOST, own)


def _one_each(estimator: str, wide: Tensor, mask: Tensor) -> Tensor:
    """(B, T) -> (B,): what all tokens of a trajectory have."""
    first = wide[:, :1]
    apart = ((wide - first).abs() * mask).amax()
    if apart > 1e-9 * (1 + first.abs().amax()):
        raise ComponentError(
            f"rlzoo in rLLM: {estimator} gives the tokens of a trajectory different advantages "
            f"(by {apart.item():.2g}), but rLLM keeps one per trajectory"
        )
    return first[:, 0]
