"""Columns that somebody needs beside scores: of the policy, the reference, the critic, plugins."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import ModelError
from rlzoo.lm.models import Models
from rlzoo.lm.policy import Policy
from rlzoo.mdp.batch import Batch
from rlzoo.ops import masked_mean
from rlzoo.plugin.border import border
from rlzoo.plugin.call import call
from rlzoo.rollout.responses import resources, streams

GAP_ROWS = 4  # scored to see how far the sampler is from it

Forward = dict[str, Tensor]  # what `Models.forward` gives, with gradient


@torch.no_grad()
def add_columns(
    models: Models, batch: Batch, *, stream: str, step: int, for_update: bool = False
) -> Forward | None:
    """Add the columns that the plan asks for: from the policy, the reference, the critic, plugins.

    for_update: an update on this batch follows. Where it is a single one, in one pass, its forward
    pass is made now, since these columns can be read off it, and returned.
    """
    forward = _forward_of_update(models, batch, step) if for_update else None
    _add_model_columns(models, batch, forward)
    _add_plugin_columns(models, batch, stream, step)
    return forward


def _forward_of_update(models: Models, batch: Batch, step: int) -> Forward | None:
    useful = models.critic is not None or "old_log_probs" not in batch
    if not (models.plan.one_update and useful and models.ranks.count == 1):
        return None

    def attempt() -> Forward | None:
        if len(models.passes.parts(batch, grad=True)) > 1:
            return None
        return models.forward(batch, actor=models.plan.trains_actor(step))

    with torch.enable_grad():
        return models.passes.retry(attempt)


def _add_model_columns(models: Models, batch: Batch, forward: Forward | None) -> None:
    needs, passes = models.plan.needs, models.passes
    policy, reference = models.policy, models.reference
    critic = models.critic
    if forward is not None and "log_probs" in forward and "old_log_probs" not in batch:
        batch.add("old_log_probs", forward["log_probs"].detach())
    if "full_kl" in needs:
        assert reference is not None
        batch.update(passes.map(batch, lambda c: policy.full_kl(c, reference)))
    want = ("sum_pi_squared",) if "sum_pi_squared" in needs else ()
    if want or "old_log_probs" not in batch:
        stats = dict(passes.map(batch, lambda c: policy.log_prob_stats(c, want=want)))
        log_probs = stats.pop("log_probs")
        batch.update(stats)
        if "old_log_probs" not in batch:
            batch.add("old_log_probs", log_probs)
    if "ref_log_probs" in needs and "ref_log_probs" not in batch:
        assert reference is not None
        batch.add("ref_log_probs", passes.map(batch, reference.log_prob_stats)["log_probs"])
    if models.teachers:
        _add_teacher_columns(models, batch)
    if critic is not None:
        if forward is None:
            values = passes.map(batch, critic.values)
        else:
            values = critic.values(batch, forward["prediction"])
        batch.add("values", values["values"])
        bootstrap = models.plan.recipe.config.rollout.truncation == "bootstrap"
        keep = batch["truncated"] & bootstrap
        batch.add("bootstrap_values", torch.where(keep, values["last_values"], 0))


def _add_teacher_columns(models: Models, batch: Batch) -> None:
    """Each row by the teacher of its domain."""
    taught = models.teachers
    domains = [name if name in taught else None for name in batch["domains"]]
    if None in domains and None not in taught:  # of a prompt that was typed
        raise ModelError("teacher.path: a prompt of no domain in teacher.domains has no teacher")
    if len(set(domains)) == 1:
        batch.update(_taught(models, batch, taught[domains[0]]))
        return
    whole: dict[str, Tensor] = {}
    for domain in dict.fromkeys(domains):
        rows = torch.tensor([i for i, name in enumerate(domains) if name == domain])
        for name, x in _taught(models, batch.select(rows), taught[domain]).items():
            whole.setdefault(name, x.new_zeros(batch.rows, batch.steps))[rows] = x
    batch.update(whole)


def _taught(models: Models, columns: Mapping[str, Any], teacher: Policy) -> dict[str, Tensor]:
    """What a teacher says of some rows: the columns of its that somebody asks for, (B, T)."""
    passes = replace(models.passes, policy=teacher)  # it may be the larger of the two
    if "teacher_kl" in models.plan.needs:
        found = passes.map(columns, lambda c: models.policy.full_kl(c, teacher))
        return {"teacher_kl": found["full_kl"], "teacher_log_probs": found["ref_log_probs"]}
    if "teacher_log_probs" in models.plan.needs:
        return {"teacher_log_probs": passes.map(columns, teacher.log_prob_stats)["log_probs"]}
    return {}


@torch.no_grad()
def log_prob_gap(models: Models, batch: Batch, forward: Forward | None, *, sampled: bool) -> float:
    """Mean of abs(log pi - log mu) over chosen tokens (nats): mu what was sampled from, pi the
    policy as a pass scores it. `sampled`: old_log_probs are the sampler's own, so that `GAP_ROWS`
    rows are scored for this, unless the update's pass is there."""
    columns: Mapping[str, Tensor] = batch
    scored = batch["old_log_probs"]
    if sampled and forward is not None and "log_probs" in forward:
        scored = forward["log_probs"]
    elif sampled:
        rows = torch.arange(0, batch.rows, max(1, batch.rows // GAP_ROWS))[:GAP_ROWS]
        columns = batch.select(rows.to(scored.device))
        scored = models.passes.map(columns, models.policy.log_prob_stats)["log_probs"]
    gap = (scored - columns["sampler_log_probs"]).abs()
    return masked_mean(gap, columns["response_mask"]).item()


def _add_plugin_columns(models: Models, batch: Batch, stream: str, step: int) -> None:
    more = resources(models, batch, streams(f"{stream}/columns"), step)
    for bound in models.plan.columns:
        given = {
            **{n: batch[n] for n in bound.needs if n in batch},
            **more,
            "response_mask": batch["response_mask"],
        }
        sampling = models.sampling(bound.needs) if "sample" in bound.needs else nullcontext()
        with sampling, border(bound.component.label):
            value = call(bound.component, given, bound.options)
        batch.add(bound.name, value, bound.component.shape)
