"""Columns that somebody needs beside scores: of the policy, the reference, the critic, plugins."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from rlzoo.lm.world import World
from rlzoo.mdp.batch import Batch
from rlzoo.plugin.call import call
from rlzoo.rollout.sample import resources, streams


@torch.no_grad()
def add_columns(world: World, batch: Batch, *, stream: str, step: int) -> None:
    """The columns that the plan asks for: from the policy, the reference, the critic, plugins."""
    needs = world.plan.needs
    _keep_forward(world, batch, step)
    _add_policy_columns(world, batch)
    if "ref_log_probs" in needs and "ref_log_probs" not in batch:
        assert world.reference is not None
        batch.add("ref_log_probs", in_chunks(world, batch, world.reference.log_probs))
    if world.critic is not None:
        both = in_chunks(world, batch, lambda c: _values(world, c, world.kept))
        values, after = both[:, :-1], both[:, -1]
        batch.add("values", values)
        mode = world.plan.recipe.config.rollout.truncation
        keep = batch["truncated"] & (mode == "bootstrap")
        batch.add("bootstrap_values", torch.where(keep, after, 0))
    more = resources(world, batch, streams(f"{stream}/columns"), step)
    for bound in world.plan.columns:
        given = {
            **{n: batch[n] for n in bound.needs if n in batch},
            **more,
            "response_mask": batch["response_mask"],
        }
        with world.sampling() if "sample" in bound.needs else nullcontext():
            value = call(bound.component, given, bound.options)
        batch.add(bound.name, value, bound.component.shape)


def _keep_forward(world: World, batch: Batch, step: int) -> None:
    """Where one update follows on the whole batch, its forward pass serves the columns, too."""
    world.kept = None
    useful = world.critic is not None or "old_log_probs" not in batch
    alone = world.ranks.count == 1
    if not (world.plan.one_update and useful and alone):
        return
    actor = world.trains_actor(step)

    def attempt() -> dict[str, Tensor] | None:
        one = len(world.parts(batch, grad=True)) == 1
        return world.forward(batch, actor=actor) if one else None

    with torch.enable_grad():
        world.kept = world.fitted(attempt)
    if world.kept is not None and "old_log_probs" not in batch and actor:
        batch.add("old_log_probs", world.kept["log_probs"].detach())


def _values(world: World, columns: Mapping[str, Any], kept: dict[str, Tensor] | None) -> Tensor:
    """V before each token and after the last, side by side, (B, T + 1)."""
    assert world.critic is not None
    values, after = world.critic.values(columns, kept["prediction"] if kept else None)
    return torch.cat([values, after[:, None]], 1)


def _add_policy_columns(world: World, batch: Batch) -> None:
    """`old_log_probs` where sampling did not give them, `sum_pi_squared`, `full_kl`."""
    needs, policy, reference = world.plan.needs, world.policy, world.reference
    want = ("sum_pi_squared",) if "sum_pi_squared" in needs else ()
    if "full_kl" in needs:
        assert reference is not None

        def pair(columns: Mapping[str, Any]) -> Tensor:
            return torch.stack(policy.full_kl(columns, reference), -1)

        both = in_chunks(world, batch, pair)
        batch.add("full_kl", both[..., 0])
        batch.add("ref_log_probs", both[..., 1])
    if want or "old_log_probs" not in batch:

        def score(columns: Mapping[str, Any]) -> Tensor:
            out = policy.score(columns, want=want)
            return torch.stack([out["log_probs"], *(out[n] for n in want)], -1)

        scored = in_chunks(world, batch, score)
        if "old_log_probs" not in batch:
            batch.add("old_log_probs", scored[..., 0])
        for i, name in enumerate(want, 1):
            batch.add(name, scored[..., i])


def in_chunks(
    world: World, batch: Batch, function: Callable[[Mapping[str, Any]], Tensor]
) -> Tensor:
    """`function` of the batch's rows, (B, ...), in as many passes as memory asks for."""

    def attempt() -> Tensor:
        parts = world.parts(batch)
        return function(batch) if len(parts) == 1 else world.passes(batch, parts, function)

    return world.fitted(attempt)
