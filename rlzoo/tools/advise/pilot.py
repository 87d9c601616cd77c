"""A pilot: the first steps of a run, and on their batches the gradient that each estimator asks
for, in the model's parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlzoo.errors import RecipeError, RlzooError
from rlzoo.lm.build import build_models
from rlzoo.lm.models import Models
from rlzoo.mdp.batch import Batch, take
from rlzoo.mdp.noise import generator
from rlzoo.ops import group_count, group_sum
from rlzoo.plugin.registry import Zoo, load_zoo
from rlzoo.recipe.compose import Recipe, compose
from rlzoo.recipe.plan import Plan, make_plan, together
from rlzoo.recipe.variants import variants
from rlzoo.rollout.advantages import whitened
from rlzoo.tools.advise.quality import Quality, quality
from rlzoo.train.start import prepare
from rlzoo.train.trainer import Trainer
from rlzoo.train.update import first_gradient

PARTS = 16  # of all rows, at least, where there are prompts enough

COORDINATES = 2**18  # of the parameters, at most: a random choice of them stands for all


def advise(words: list[str], share: float) -> dict[str, Any]:
    """What `--json` prints.

    words: a recipe and a budget, and estimators with options as in a sweep; all there are, where
    none is named.  share: of the budget, for the pilot.
    """
    zoo = load_zoo()
    own = [w for w in words if not w.startswith("estimator")]
    base = compose(own, zoo)
    if len(own) == len(words):
        words = [*words, "estimator=all"]
    plans, undone = _plans(base, variants(words, [], zoo), zoo)
    pilot = together([prepare(base, zoo), *plans])
    limit = _budget(base, share)
    trainer = Trainer(build_models(pilot))
    found, batches = _measure(trainer, plans, limit)
    config, best = base.config, found.best
    spent = trainer.models.meter.tokens
    rows = [
        {
            "estimator": plan.estimator.name,
            "options": dict(plan.estimator.options),
            "shown": _shown(plan, words),
            "reads_critic": plan.critic,
            "discount": plan.gamma,
            "cosine": float(found.cosine[i]),
            "cosine_se": float(found.se[i]),
            "behind": float(found.cosine[best] - found.cosine[i]),
            "behind_se": float(found.behind[i]),
            "chance": float(found.chance[i]),
            "told": bool(found.told[i]),
        }
        for i, plan in enumerate(plans)
    ]
    return {
        "recipe": base.name,
        "task": config.task.name,
        "model": config.model.name or config.model.path,
        "pilot": {
            "estimator": pilot.estimator.name,
            "steps": len(batches),
            "rows": sum(batch.rows for batch in batches),
            "tokens": spent,
            "share": share,
            "score": float(np.mean([batch["sequence_scores"].mean().item() for batch in batches])),
        },
        "direction": found.length,
        "critic": [_explained(batch) for batch in batches] if pilot.critic else None,
        "choice": best,
        "command": _command(own, plans[best], _shown(plans[best], words)),
        "estimators": rows,
        "left_out": undone,
    }


def _plans(
    base: Recipe, recipes: Sequence[Recipe], zoo: Zoo
) -> tuple[list[Plan], list[dict[str, str]]]:
    """The plan of each estimator, and those that this recipe cannot hold or that draw more."""
    if base.config.rollout.samples < 2:
        raise RecipeError(
            f"{base.blame('rollout.samples')}: the pilot's yardstick are the other answers to the "
            f"same prompt; it takes at least 2. Got {base.config.rollout.samples}"
        )
    plans, undone = [], {}
    for recipe in recipes:
        name = recipe.config.estimator.name
        try:
            plan = make_plan(recipe, zoo)
        except RecipeError as error:
            undone[name] = str(error).split(": ", 1)[-1]
            continue
        drawing = [column.name for column in plan.columns if "sample" in column.needs]
        if drawing:
            undone[name] = f"draws rollouts of its own ({drawing[0]}), at a price per step"
        else:
            plans.append(plan)
    if not plans:
        name, why = next(iter(undone.items()))
        raise RecipeError(f"no estimator can be asked: {name}: {why}")
    return plans, [{"estimator": name, "reason": why} for name, why in undone.items()]


def _budget(recipe: Recipe, share: float) -> tuple[int | None, float]:
    """(steps, tokens) of the pilot; raises where the run's budget says neither."""
    train = recipe.config.train
    if not (train.steps or train.tokens):
        raise RecipeError("advise: give the run's budget, train.steps=N or train.tokens=N")
    steps = int(share * train.steps + 1e-9) if train.steps else None
    if steps == 0:
        raise RecipeError(
            f"--share: {share:g} of {recipe.blame('train.steps')} = {train.steps} is no whole "
            f"step; the least is {1 / train.steps:.2g}"
        )
    return steps, share * train.tokens if train.tokens else float("inf")


def _measure(
    trainer: Trainer, plans: Sequence[Plan], limit: tuple[int | None, float]
) -> tuple[Quality, list[Batch]]:
    """Train as far as the pilot goes, asking every estimator about every batch."""
    models, (steps, tokens) = trainer.models, limit
    weights = [w for w in models.policy.model.parameters() if w.requires_grad]
    picks = _coordinates(weights, models.seed)
    prompts = models.plan.recipe.config.rollout.prompts
    batches: list[Batch] = []
    gradients: list[np.ndarray] = []  # (parts, 1 + estimators, coordinates) of each step
    while len(batches) != steps:
        spent = models.meter.tokens
        if spent + (spent / len(batches) if batches else 0) > tokens:
            break
        experience = trainer.sample()
        if models.meter.tokens > tokens and not batches:
            raise RlzooError(
                f"--share: one step draws {models.meter.tokens:,} tokens, and the pilot has "
                f"{tokens:,.0f}: raise it, or lower rollout.prompts"
            )
        batch = experience.batch
        batches.append(batch)
        # Of a step as many parts as make enough of all steps.
        per_step = min(prompts, max(2, -(-PARTS // _steps(steps, tokens, models.meter.tokens))))
        gradients.append(_gradients(models, plans, batch, per_step, weights, picks))
        trainer.update(experience)
    parts = np.concatenate(gradients)
    if len(parts) < 3:
        raise RecipeError(f"rollout.prompts: {prompts} prompts in the pilot; it takes at least 3")
    batch_parts = round(len(parts) / len(batches))
    return quality(parts[:, 1:].swapaxes(0, 1), parts[:, 0], batch_parts), batches


def _steps(steps: int | None, tokens: float, first: int) -> int:
    """How many the pilot will have, by what the first ones drew."""
    return max(1, steps or int(tokens / max(1, first)))


def _gradients(
    models: Models, plans: Sequence[Plan], batch: Batch, parts: int, weights: list[Tensor],
    picks: list[Tensor],
) -> np.ndarray:  # fmt: skip
    """(parts, 1 + estimators, coordinates): the unbiased gradient first. Parts share no prompt."""
    pulls = [_unbiased(batch)]
    for plan in plans:
        raw = plan.estimator(batch)["advantages"]
        pulls.append(first_gradient(plan, batch, whitened(plan, batch, raw)))
    groups = batch["group_ids"]
    found = []
    for some in groups.unique().tensor_split(parts):
        rows = torch.isin(groups, some).nonzero()[:, 0]
        total = np.zeros((len(pulls), sum(len(p) for p in picks)), np.float32)
        columns = take(batch, rows)
        for pack in models.passes.parts(columns, grad=True):
            micro = take(columns, pack)
            log_probs = models.forward(micro, critic=False)["log_probs"]
            for i, pull in enumerate(pulls):
                upstream = pull[rows][pack].to(log_probs)
                grads = torch.autograd.grad(log_probs, weights, upstream, retain_graph=True)
                chosen = [g.flatten()[p] for g, p in zip(grads, picks, strict=True)]
                total[i] += torch.cat(chosen).float().cpu().numpy()
        found.append(total)
    return np.stack(found)


def _unbiased(batch: Batch) -> Tensor:
    """(B, T) d(loss)/d(log_probs), unbiased whatever the critic: minus the rewards still to come,
    less those of the prompt's other answers from the same position on."""
    mask, groups = batch["response_mask"], batch["group_ids"]
    rewards = torch.where(mask > 0, batch["rewards"], 0)
    to_come = rewards.flip(1).cumsum(1).flip(1)
    others = (group_count(groups) - 1).clamp(min=1)[:, None]
    return -mask * (to_come - (group_sum(to_come, groups) - to_come) / others)


def _coordinates(weights: list[Tensor], seed: int) -> list[Tensor]:
    """Which entries of each flattened weight are kept."""
    share = min(1.0, COORDINATES / sum(w.numel() for w in weights))
    if share == 1:
        return [torch.arange(w.numel(), device=w.device) for w in weights]
    draw = generator(seed, "advise/coordinates")
    picks = [torch.randint(w.numel(), (int(share * w.numel()),), generator=draw) for w in weights]
    return [p.to(w.device) for p, w in zip(picks, weights, strict=True)]


def _explained(batch: Batch) -> float:
    """1 - Var(G - V) / Var(G) over tokens, G the rewards that did come: what the critic knows."""
    on = batch["response_mask"].bool()
    to_come = torch.where(on, batch["rewards"], 0).flip(1).cumsum(1).flip(1)[on].double()
    left = to_come - batch["values"][on].double()
    return float(1 - left.var() / to_come.var().clamp(min=1e-12))


def _shown(plan: Plan, words: list[str]) -> dict[str, Any]:
    """Options worth naming: swept, or not the default."""
    given = {w.split("=", 1)[0].removeprefix("estimator.") for w in words}
    known = plan.estimator.component.options
    return {
        name: value
        for name, value in plan.estimator.options.items()
        if name in given or value != known[name].default
    }


def _command(own: Sequence[str], plan: Plan, shown: Mapping[str, Any]) -> str:
    """What runs the choice."""
    options = [f"estimator.{name}={value}" for name, value in shown.items()]
    return " ".join(["rlzoo run", *own, f"estimator={plan.estimator.name}", *options])
