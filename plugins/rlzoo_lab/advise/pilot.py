"""A pilot: the first steps of a run, and the gradient of each estimator on their batches in the
model's parameters."""

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlzoo.errors import RecipeError
from rlzoo.lm.build import build_world
from rlzoo.lm.world import World
from rlzoo.mdp.batch import Batch, take
from rlzoo.ops import group_count, group_sum
from rlzoo.plugin.registry import Zoo, load_zoo
from rlzoo.recipe.compose import Recipe, compose
from rlzoo.recipe.plan import Plan
from rlzoo.step.columns import whitened
from rlzoo.step.trainer import Trainer
from rlzoo.train.start import prepare
from rlzoo_lab.advise.quality import Advice, weigh
from rlzoo_lab.advise.standin import Facts, cosines, facts_of
from rlzoo_lab.credit import first_gradient
from rlzoo_lab.data.variants import make_plans, shown_options, together, variants
from rlzoo_lab.view.numbers import option_text

PARTS = 16  # of a batch

STEPS = 16  # the last ones, that are measured

COORDINATES = 2**16  # of the parameters, about: every N-th of all


def advise(words: list[str], share: float) -> dict[str, Any]:
    """The document that `--json` prints.

    words: a recipe, a budget, and estimators with options as in a sweep; all estimators if none is
        named. share: the pilot's share of the budget.
    """
    zoo = load_zoo()
    own = [w for w in words if not w.startswith("estimator")]
    base = compose(own, zoo)
    asked = words if len(own) < len(words) else [*own, "estimator=all"]
    plans, left_out = _plans(variants(asked, [], zoo), zoo)
    limits = _budget(base.config.train, share)
    whole = together([prepare(base, zoo), *plans])
    trainer = Trainer(build_world(whole))
    advice, facts = _pilot(trainer, plans, *limits)
    shown = [shown_options(p.estimator.component, p.estimator.options, asked) for p in plans]
    options = [[f"{k}={option_text(v)}" for k, v in some.items()] for some in shown]
    names = [" ".join([p.estimator.name, *o]) for p, o in zip(plans, options, strict=True)]
    best, columns = int(advice.both.argmax()), ("world", "pilot", "pilot_se", "both", "behind_se")
    chosen = [f"estimator={plans[best].estimator.name}", *(f"estimator.{o}" for o in options[best])]
    return {
        "recipe": base.name,
        "task": base.config.task.name,
        "model": base.config.model.name or base.config.model.path,
        "trained_with": whole.estimator.name,
        "steps": len(facts),
        "tokens": trainer.world.meter.tokens,
        "world": facts[-1].world,
        "critic": [fact.explained for fact in facts] if whole.critic else None,
        "direction": advice.direction,
        "choice": names[best],
        "command": " ".join(["rlzoo run", *own, *chosen]),
        "estimators": [
            {
                "name": name,
                "gamma": plan.estimator.gamma,
                **{c: float(getattr(advice, c)[i]) for c in columns},
            }
            for i, (name, plan) in enumerate(zip(names, plans, strict=True))
        ],
        "left_out": left_out,
    }


def _plans(recipes: Sequence[Recipe], zoo: Zoo) -> tuple[list[Plan], list[str]]:
    """The plan of each estimator; and a line for each that cannot be evaluated."""
    plans, left_out = [], {}
    for name, plan, why in make_plans(recipes, zoo):
        if plan is None:
            left_out[name] = why
            continue
        more = [column.name for column in plan.columns]
        more += [need for need in plan.estimator.needs if need in ("turn_ids", "state_keys")]
        if more:
            left_out[name] = f"needs {more[0]}, which the pilot's artificial world does not have"
        else:
            plans.append(plan)
    if not plans:
        raise RecipeError(f"no estimator can be evaluated; {'; '.join(left_out.values())}")
    return plans, [f"{name}: {why}" for name, why in left_out.items()]


def _budget(train: Any, share: float) -> tuple[float, float]:
    """(steps, tokens) of the pilot; raises where the run's budget sets neither."""
    if not (train.steps or train.tokens):
        raise RecipeError("advise: set the run's budget with train.steps=N or train.tokens=N")
    if train.steps and share * train.steps < 1 - 1e-9:
        raise RecipeError(f"--share: {share:g} of train.steps={train.steps} is less than one step")
    return share * (train.steps or math.inf) + 1e-9, share * (train.tokens or math.inf)


def _pilot(
    trainer: Trainer, plans: Sequence[Plan], steps: float, tokens: float
) -> tuple[Advice, list[Facts]]:
    """Train for the pilot's budget, and run every estimator on every batch."""
    rollout, meter = trainer.plan.recipe.config.rollout, trainer.world.meter
    facts: list[Facts] = []
    found = deque[np.ndarray](maxlen=STEPS)  # (parts, 1 + estimators, coordinates) each
    while len(facts) + 1 <= steps and meter.tokens * (1 + 1 / max(1, len(facts))) <= tokens:
        experience = trainer.sample()
        if meter.tokens > tokens and not facts:
            raise RecipeError(
                f"--share: one step draws {meter.tokens:,} tokens, but the pilot's budget is "
                f"{tokens:,.0f}. Raise --share, or lower rollout.prompts"
            )
        found.append(_gradients(trainer.world, plans, experience.batch))
        facts.append(facts_of(experience.batch, trainer.update(experience)))
    measured = np.concatenate(found)
    if len(measured) < 3:
        raise RecipeError(
            f"rollout.prompts: the pilot has {len(measured)} prompts but needs at least 3"
        )
    world = cosines(plans, facts[-1], rollout.prompts * rollout.samples, rollout.samples)
    return weigh(world, measured[:, 1:].swapaxes(0, 1), measured[:, 0], len(found[0])), facts


def _gradients(world: World, plans: Sequence[Plan], batch: Batch) -> np.ndarray:
    """(parts, 1 + estimators, coordinates): the unbiased gradient first. Parts share no prompt."""
    weights = [w for w in world.policy.model.parameters() if w.requires_grad]
    every = -(-sum(w.numel() for w in weights) // COORDINATES)
    pulls = [_unbiased(batch)]
    read = {n for plan in plans for n in plan.policy_loss.needs} & {"entropy", "observation_nll"}
    if read:
        current = world.engine.scores(batch, world.engine.outputs)
        batch.update({name: current[name] for name in read})
    for plan in plans:
        raw = plan.estimator(batch)["advantages"]
        pulls.append(first_gradient(plan, batch, whitened(plan, batch, raw)))
    groups = batch["group_ids"]
    parts = groups.unique().tensor_split(min(PARTS, len(groups.unique())))
    size = sum(-(-w.numel() // every) for w in weights)
    found = np.zeros((len(parts), len(pulls), size), np.float32)
    for part, some in zip(found, parts, strict=True):
        rows = torch.isin(groups, some).nonzero()[:, 0]
        columns = take(batch, rows)
        for pack in world.engine.passes.parts(world.policy, columns, grad=True):
            log_probs = world.policy.log_probs(take(columns, pack))
            for total, pull in zip(part, pulls, strict=True):
                upstream = pull[rows][pack].to(log_probs)
                grads = torch.autograd.grad(log_probs, weights, upstream, retain_graph=True)
                some_of = torch.cat([g.flatten()[::every] for g in grads])
                total += some_of.float().cpu().numpy()
    return found


def _unbiased(batch: Batch) -> Tensor:
    """(B, T) d(loss)/d(log_probs), unbiased for any critic: minus the future rewards, with those
    of the prompt's other answers from the same position as baseline."""
    mask, groups = batch["response_mask"], batch["group_ids"]
    to_come = torch.where(mask > 0, batch["rewards"], 0).flip(1).cumsum(1).flip(1)
    others = (group_count(groups) - 1).clamp(min=1)[:, None]
    return -mask * (to_come - (group_sum(to_come, groups) - to_come) / others)
