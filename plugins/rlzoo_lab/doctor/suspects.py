"""Where a run differs from its recipe: the likely causes if no rule finds one."""

import json
import math
from collections.abc import Iterator
from functools import cache
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe.compose import compose
from rlzoo.recipe.files import Flat, config_dirs, find_config, flatten, read_layer
from rlzoo.runs.provenance import FILE
from rlzoo_lab.numbers import option_text
from rlzoo_lab.records.record import Record

# Keys that decide how a policy learns; not for how long, from which data, or on which device.
LEARNT_BY = (
    "actor.", "critic.", "kl.", "estimator.", "policy_loss.", "value_loss.", "aggregation.",
    "whiten", "correction.", "rewards.", "sampler.", "model.dtype", "model.autocast",
    "rollout.temperature", "rollout.top_", "rollout.staleness", "rollout.old_log_probs",
    "rollout.truncation", "train.epochs", "train.minibatches", "train.critic_warmup", "task.",
)  # fmt: skip


@cache
def defaults() -> Flat:
    """The defaults of the core keys."""
    return read_layer(config_dirs()[-1] / "defaults.yaml").values


def default(key: str) -> Any:
    """The default of a core key."""
    return defaults().get(key)


def against_default(run: Record, key: str) -> str:
    """`actor.lr=0.02 (default 0.0002)`"""
    usual, value = default(key), run.key(key)
    beside = "" if usual is None else f" (default {option_text(usual)})"
    return f"{key}={option_text(value)}{beside}"


@cache
def _composed(words: tuple[str, ...]) -> Flat | None:
    """Every key of a recipe with these words, options of components too; None: not here."""
    try:
        return flatten(compose(list(words), load_zoo()).stored())
    except RlzooError:  # a task or a model of a plugin, a recipe file that is gone
        return None


def _recipe(run: Record) -> Flat | None:
    """The recipe of a run, with its model and task, as it is without further words."""
    if find_config("recipes", name := str(run.key("recipe", ""))) is None:
        return None
    chosen = [f"{part}={run.key(f'{part}.name')}" for part in ("model", "task")]
    words = (f"recipe={name}", *(w for w in chosen if not w.endswith("=None")))
    return _composed(words) or _composed(words[:1])


def _apart(value: Any, usual: Any) -> float:
    """How far a setting is from the recipe's, in factors of e; below 1 it is near it."""
    if value == usual:
        return 0.0
    if any(not isinstance(x, int | float) or isinstance(x, bool) for x in (value, usual)):
        return 2.0
    return abs(math.log(abs(value / usual))) if value and usual and value / usual > 0 else 9.0


def changed_settings(run: Record) -> list[str]:
    """`actor.eps=0.001 (grpo: 1e-06)`, the settings furthest from the recipe first; empty if the
    recipe cannot be found."""
    usual = _recipe(run) or {}
    lora = run.key("model.lora.rank", 0) > 0
    found = []
    for key, value in run.recipe.items():
        at = usual.get(key) is not None and key.startswith(
            (*LEARNT_BY, *(["model.lora."] if lora else []))
        )
        if at and (far := _apart(value, usual[key])) > 1:
            text = f"{key}={option_text(value)} ({run.key('recipe')}: {option_text(usual[key])})"
            found.append((far, text))
    return [text for _, text in sorted(found, key=lambda x: -x[0])]


def origins(run: Record) -> dict[str, str]:
    """Where a run's components came from, by section and name; empty if not recorded."""
    try:
        parts = json.loads((run.path / FILE).read_text(encoding="utf-8"))
        return dict(parts[-1]["components"])
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def own_data(run: Record) -> bool:
    """Whether the prompts come from the user's own task or files, not from a task of the zoo."""
    task = origins(run).get(f"task {run.key('task.name')}", "rlzoo_zoo.")
    return not task.startswith("rlzoo_zoo.") or bool(run.key("task.path"))


def foreign(run: Record) -> Iterator[str]:
    """Components that do not come with rlzoo, by section and name."""
    for name, origin in origins(run).items():
        if not str(origin).startswith(("rlzoo_zoo.", "rlzoo_bridges.")):
            yield f"{name} ({str(origin).split(', source')[0]})"


def unknown(run: Record) -> str:
    """A sentence that the cause is unknown, and how the run differs from its recipe."""
    listed = [*foreign(run), *changed_settings(run)][:4]
    if listed:
        return f" The cause is unknown. The run differs from its recipe in: {', '.join(listed)}."
    if _recipe(run) is None:
        return " The cause is unknown."
    return (
        " The cause is unknown: the components are those of the recipe, and no setting is far "
        "from it."
    )


def compare_first(run: Record) -> str:
    """Harmless advice for an unknown cause."""
    if any(foreign(run)):
        return "Run `rlzoo check NAME` on that component, and train once without it."
    if changed_settings(run):
        return "Restore these settings one at a time and train again."
    return "Train the same recipe with another seed, compare the runs, and read samples.jsonl."
