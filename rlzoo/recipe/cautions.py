"""Warnings that components give for unsuitable recipes, before anything is loaded.

`register(f, caution={"train.minibatches > 1": "nothing corrects for the policy that sampled"})`:
a key of the recipe, a comparison, a value; then why.
"""

import operator
import re
from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf

from rlzoo.errors import ComponentError, nearest
from rlzoo.recipe.compose import COMMAND_LINE
from rlzoo.recipe.keys import KEYS
from rlzoo.recipe.words import read_value

COMPARISONS = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt}
TRUNCATION = ("rollout.top_k", "rollout.top_p")
CONDITION = re.compile(r"([\w.]+) (=|!=|<|>) (\S+)")


def additions(plan: Any) -> Iterator[str]:
    """A reward that the command line adds, by an option of it, to those of the recipe."""
    typed = [n for n in plan.rewards if plan.recipe.chosen.get(f"rewards.{n}") == COMMAND_LINE]
    others = [name for name in plan.rewards if name not in typed]
    for name in typed if others else ():
        if plan.recipe.origins[f"rewards.{name}.weight"] != COMMAND_LINE:
            yield (
                f"rewards.{name}: is added to {', '.join(others)}; rewards=[{name}] replaces, "
                f"rewards.{name}.weight sets its share"
            )


def warnings(plan: Any) -> Iterator[str]:
    """Raises ComponentError if a condition cannot be read or has an unknown key."""
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
            if key in TRUNCATION and plan.recipe.config.rollout.replay == "kept":
                continue  # the policy is as truncated as the sampler
            have = OmegaConf.select(plan.recipe.config, key)
            if COMPARISONS[match[2]](have, read_value(key, match[3])):
                yield f"{key}={have} with {bound.name}: {why}"
