"""Warnings about a recipe, before anything is loaded: the core's, and those of its components.

`register(f, caution={"train.minibatches > 1": "nothing corrects for the policy that sampled"})`:
a key of the recipe, a comparison, a value; then why.
"""

import operator
import re
from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf

from rlzoo.errors import ComponentError, nearest
from rlzoo.plugin.columns import MODELS
from rlzoo.recipe.compose import COMMAND_LINE
from rlzoo.recipe.faults import truncates
from rlzoo.recipe.keys import KEYS
from rlzoo.recipe.words import read_value

COMPARISONS = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt}
TRUNCATION = ("rollout.top_k", "rollout.top_p")
CONDITION = re.compile(r"([\w.]+) (=|!=|<|>) (\S+)")
KL_COLUMNS = ("rewards", "sequence_rewards")  # which a KL penalty in the reward goes into


def warnings(plan: Any) -> Iterator[str]:
    """Raises ComponentError if a component's condition cannot be read or has an unknown key."""
    config, rollout = plan.recipe.config, plan.recipe.config.rollout
    for note in plan.abilities.notes:
        yield f"task {plan.task_name!r}: {note}"
    for bound in filter(None, (plan.estimator, plan.policy_loss, plan.value_loss, plan.kl)):
        for condition, why in bound.component.caution.items():
            match = CONDITION.fullmatch(condition)
            key = match[1] if match else condition
            if not match or key not in KEYS:
                raise ComponentError(
                    f"{bound.component.label}: caution {condition!r} must be KEY = VALUE (or "
                    f"!=, <, >), where KEY is a key of a recipe{nearest(key, KEYS)}"
                )
            if key.startswith("kl.") and not plan.kl:
                continue  # the key is there, and nothing reads it
            if key in TRUNCATION and rollout.replay == "kept":
                continue  # the policy is as truncated as the sampler
            have = OmegaConf.select(config, key)
            if COMPARISONS[match[2]](have, read_value(key, match[3])):
                yield f"{key}={have} with {bound.name}: {why}"
    typed = [n for n in plan.rewards if plan.recipe.chosen.get(f"rewards.{n}") == COMMAND_LINE]
    others = ", ".join(name for name in plan.rewards if name not in typed)
    for name in typed if others else ():  # by an option of it
        if plan.recipe.origins[f"rewards.{name}.weight"] != COMMAND_LINE:
            yield (
                f"rewards.{name}: is added to {others}; rewards=[{name}] replaces, "
                f"rewards.{name}.weight sets its share"
            )
    if plan.kl and config.kl.place == "reward" and plan.needs.isdisjoint(KL_COLUMNS):
        yield (
            f"kl.place=reward: estimator {plan.estimator.name!r} reads none of "
            f"{', '.join(KL_COLUMNS)}, so the penalty does nothing; use kl.place=loss or none"
        )
    for key in ("teacher.path", "teacher.domains"):
        if plan.recipe.value(key) and not plan.teacher:
            columns = " or ".join(MODELS["teacher"][:2])
            yield f"{plan.recipe.blame(key)}: no component uses {columns}, so it is not loaded"
    if config.model.dtype in ("bfloat16", "float16") and not config.model.lora.rank:
        yield (
            f"model.dtype={config.model.dtype}: weights of this dtype lose an optimizer step of "
            "1e-6; train float32 weights (model.autocast still computes in bfloat16) or adapters "
            "(model.lora.rank)"
        )
    weighs = "sampler_log_probs" in (*plan.estimator.needs, *plan.policy_loss.needs)
    if weighs and plan.correction:
        yield (
            f"correction={plan.correction}: estimator {plan.estimator.name!r} or policy loss "
            f"{plan.policy_loss.name!r} reads sampler_log_probs, so it may already correct for "
            "the sampler, and the correction would be applied twice"
        )
    if weighs or plan.correction:
        return
    if truncates(rollout) and rollout.replay == "none":
        yield (
            "rollout.top_k/top_p/min_new_tokens: samples come from a truncated policy and are "
            "off-policy; set rollout.replay=kept, or correction=NAME to reweight the loss"
        )
    if caution := plan.base_sampler.component.caution.get("correction"):
        yield f"sampler={plan.base_sampler.name}: {caution}"
    if rollout.staleness and rollout.old_log_probs != "sampled":
        yield (
            f"rollout.staleness={rollout.staleness}: samples come from a stale policy and "
            "are off-policy; set correction=NAME to reweight the loss, or "
            "rollout.old_log_probs=sampled to use the loss's own ratio"
        )
