"""Where a run differs from its recipe: the first suspects when no rule finds the cause."""

import json
import math
from collections.abc import Iterator
from functools import cache
from typing import Any

from rlzoo.recipe.files import Flat, config_dirs, find_config, read_layer
from rlzoo.runs.provenance import FILE
from rlzoo_lab.numbers import option_text
from rlzoo_lab.records.record import Record

# Keys that decide how a policy learns; not for how long, from which data, or on which device.
LEARNT_BY = (
    "actor.", "critic.", "kl.", "estimator.", "policy_loss.", "value_loss.", "aggregation.",
    "whiten", "correction.", "rewards.", "sampler.", "model.dtype", "model.autocast",
    "rollout.temperature", "rollout.top_", "rollout.staleness", "rollout.old_log_probs",
    "rollout.truncation", "train.epochs", "train.minibatches", "train.critic_warmup",
)  # fmt: skip


@cache
def defaults() -> Flat:
    """The core keys' defaults."""
    return read_layer(config_dirs()[-1] / "defaults.yaml").values


def default(key: str) -> Any:
    """A core key's default."""
    return defaults().get(key)


def against_default(run: Record, key: str) -> str:
    """`actor.lr=0.02 (default 0.0002)`"""
    usual, value = default(key), run.key(key)
    beside = "" if usual is None else f" (default {option_text(usual)})"
    return f"{key}={option_text(value)}{beside}"


@cache
def _recipe(name: str) -> Flat | None:
    path = find_config("recipes", name)
    if path is None:
        return None
    own = {f"{k}.name" if f"{k}.name" in defaults() else k: v
           for k, v in read_layer(path).values.items()}  # fmt: skip
    return {**defaults(), **own}


def _apart(value: Any, usual: Any) -> float:
    """How far a setting is from the recipe's, in factors of e; below 1 it is near it."""
    if value == usual:
        return 0.0
    if any(not isinstance(x, int | float) or isinstance(x, bool) for x in (value, usual)):
        return 2.0
    return abs(math.log(abs(value / usual))) if value and usual and value / usual > 0 else 9.0


def changed_settings(run: Record) -> list[str]:
    """`actor.eps=0.001 (grpo: 1e-06)`, those furthest from the recipe first;
    empty for a recipe that cannot be found."""
    usual = _recipe(str(run.key("recipe", ""))) or {}
    lora = run.key("model.lora.rank", 0) > 0
    found = []
    for key, value in run.recipe.items():
        at = key in usual and key.startswith((*LEARNT_BY, *(["model.lora."] if lora else [])))
        if at and (far := _apart(value, usual[key])) > 1:
            text = f"{key}={option_text(value)} ({run.key('recipe')}: {option_text(usual[key])})"
            found.append((far, text))
    return [text for _, text in sorted(found, key=lambda x: -x[0])]


def foreign(run: Record) -> Iterator[str]:
    """Components that do not come with rlzoo, by section and name."""
    try:
        parts = json.loads((run.path / FILE).read_text(encoding="utf-8"))
        components = dict(parts[-1]["components"])
    except (OSError, ValueError, LookupError, TypeError):  # runs of before it was written
        return
    for name, origin in components.items():
        if not str(origin).startswith(("rlzoo_zoo.", "rlzoo_bridges.")):
            yield f"{name} ({str(origin).split(', source')[0]})"


def unknown(run: Record) -> str:
    """A sentence: the cause is not known, and where the run differs from its recipe."""
    listed = [*foreign(run), *changed_settings(run)][:4]
    if listed:
        return f" The cause is unknown. The run differs from its recipe in: {', '.join(listed)}."
    if _recipe(str(run.key("recipe", ""))) is None:
        return " The cause is unknown."
    return " The cause is unknown: all settings and components are those of the recipe."


def compare_first(run: Record) -> str:
    """Advice for an unknown cause; it must be harmless."""
    if any(foreign(run)):
        return "Run `rlzoo check NAME` on that component, and train once without it."
    if changed_settings(run):
        return "Restore these settings one at a time and train again."
    return "Train the same recipe with another seed, compare, and read samples.jsonl."
