"""Where a run differs from its recipe: the likely causes if no rule finds one."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe.compose import compose
from rlzoo.recipe.files import Flat, config_dirs, find_config, read_layer
from rlzoo.recipe.keys import COLLECTIONS, SECTIONS
from rlzoo.runs import metrics as names
from rlzoo_lab.data.comparable import made_of
from rlzoo_lab.data.record import Record, flat_config
from rlzoo_lab.doctor.series import late
from rlzoo_lab.view.numbers import option_text

# Keys that decide how a policy learns or how it is measured; not its data, its size or its device.
LEARNT_BY = (
    "actor.", "critic.", "kl.", "estimator.", "policy_loss.", "value_loss.", "aggregation.",
    "whiten", "correction.", "rewards.", "columns.", "sampler.", "model.dtype", "model.autocast",
    "rollout.temperature", "rollout.top_", "rollout.staleness", "rollout.old_log_probs",
    "rollout.truncation", "rollout.max_new_tokens", "rollout.samples", "train.epochs",
    "train.minibatches", "train.critic_warmup", "train.tokens", "train.minutes", "stop.",
    "eval.temperature", "eval.top_", "eval.max_new_tokens", "task.",
)  # fmt: skip
DATA = ("task.path", "task.test_path", "task.name")  # their recipe's value is no better one

# What an option controls: a metric, and its range in runs that learn.
CONTROLS = {
    "actor.": (names.PPO_KL, 1e-5, 0.05),
    "kl.": (names.REF_KL, 2e-3, 1.0),
    "estimator": (names.ADVANTAGE_CORR, 0.45, 1.1),
    "policy_loss": (names.PULL_CORR, 0.6, 1.1),
    "correction": (names.PULL_CORR, 0.6, 1.1),
    "aggregation": (names.PULL_CORR, 0.6, 1.1),
    "critic.": (names.EXPLAINED_VARIANCE, 0.0, 1.1),
    "value_loss": (names.EXPLAINED_VARIANCE, 0.0, 1.1),
    "rewards": (names.RIGHT_CORR, 0.6, 1.1),
    "rollout.max_new_tokens": (names.TRUNCATED, -0.1, 0.3),
    "rollout.": (names.LOG_PROB_GAP, -0.1, 0.01),
    "sampler": (names.LOG_PROB_GAP, -0.1, 0.01),
}
OURS = ("rlzoo_zoo.", "rlzoo_bridges.", "rlzoo_lab.")
OWN = 5.0  # the distance, in factors of e, of a component that does not come with rlzoo


@dataclass(frozen=True)
class Suspect:
    """A difference between a run and its recipe.

    words: what resets it on the command line; empty: it has no counterpart in the recipe.
    distance: how far it is from the recipe, in factors of e, more where `CONTROLS` is out of range.
    own: it is a component that does not come with rlzoo.
    """

    key: str
    value: str
    usual: str
    words: tuple[str, ...]
    distance: float
    own: bool = False


@cache
def defaults() -> Flat:
    """The defaults of the core keys."""
    return read_layer(config_dirs()[-1] / "defaults.yaml").values


def default(key: str) -> Any:
    """The default of a core key."""
    return defaults().get(key)


def against_default(run: Record, key: str) -> str:
    """`actor.lr=0.02 (default 0.0002)`; what another trainer does not record is only named."""
    if run.trainer:
        return f"{key}={option_text(run.recipe[key])}" if key in run.recipe else key
    usual, value = default(key), run.key(key)
    beside = "" if usual is None else f" (default {option_text(usual)})"
    return f"{key}={option_text(value)}{beside}"


@cache
def _composed(words: tuple[str, ...]) -> Flat | None:
    """Every key of a recipe with these words, options of components too; None: not here."""
    try:
        return flat_config(compose(list(words), load_zoo()).stored(), "")
    except RlzooError:  # a task or a model of a plugin, a recipe file that is gone
        return None


def _recipe(run: Record) -> Flat | None:
    """The recipe of a run, with its model and task, as it is without further words."""
    if run.trainer or find_config("recipes", name := str(run.key("recipe", ""))) is None:
        return None
    chosen = [f"{part}={run.key(f'{part}.name')}" for part in ("model", "task")]
    named = [word for word in chosen if not word.endswith("=None")] or ["task=addition"]
    return _composed((f"recipe={name}", *named)) or _composed((f"recipe={name}", "task=addition"))


def _apart(value: Any, usual: Any) -> float:
    """How far a setting is from the recipe's, in factors of e; below 1 it is near it."""
    if value == usual:
        return 0.0
    if isinstance(value, list) and isinstance(usual, list) and len(value) == len(usual):
        return max(map(_apart, value, usual))
    if any(not isinstance(x, int | float) or isinstance(x, bool) for x in (value, usual)):
        return 2.0
    if value * usual < 0:
        return 9.0
    low, high = sorted((abs(value), abs(usual)))
    if low == 0:  # it is switched on or off
        return max(1.5, math.log(high / 0.01)) if value else 2.0
    shares = high <= 1 and isinstance(usual, float)  # gamma, lam, betas: their distance from 1
    rest = abs(math.log(max(1 - low, 0.02) / (1 - high or 0.02))) if shares and high > 0.5 else 0.0
    return max(math.log(high / low), rest)


def suspects(run: Record) -> list[Suspect]:
    """All differences from the recipe, the most suspicious first; empty if it cannot be found."""
    usual = _recipe(run)
    if usual is None:
        return []
    return sorted([*_components(run, usual), *_settings(run, usual)], key=lambda s: -s.distance)


def _components(run: Record, usual: Flat) -> Iterator[Suspect]:
    """Components in another than the recipe's place."""
    own = {what.rpartition(" ")[2] for what in foreign(run)}
    for section in (*SECTIONS, *COLLECTIONS):
        several = section in COLLECTIONS
        key = section if several else f"{section}.name"
        value, there = (str(flat.get(key) or "") for flat in (run.recipe, usual))
        is_own = bool(own & {*value.split("+")})
        if section in ("task", "loggers"):
            if is_own and section == "task":
                yield Suspect(section, value, "", (), OWN, True)
            continue
        if value != there and (value or key in run.recipe):
            names_of = f"[{','.join(there.split('+'))}]" if several else there or "null"
            words = [f"{section}={names_of}"] if there or several else [f"{section}.name=null"]
            words += [_word(k, usual[k]) for k in usual if _counts(usual, section, k)]
            far = (OWN if is_own else 2.0) + _out_of_range(run, section)
            yield Suspect(section, value or "none", there or "none", tuple(words), far, is_own)


def _counts(usual: Flat, section: str, key: str) -> bool:
    """Whether an option of a recipe's component is not at the component's own default."""
    head, _, option = key.rpartition(".")
    name = str(usual.get(f"{section}.name") if head == section else head[len(section) + 1 :])
    if not key.startswith(f"{section}.") or option == "name":
        return False
    found = load_zoo().shelves[{**SECTIONS, **COLLECTIONS}[section]][name].options.get(option)
    return usual[key] != (found.default if found else 1.0 if option == "weight" else None)


def _settings(run: Record, usual: Flat) -> Iterator[Suspect]:
    """Settings with another than the recipe's value."""
    lora = ["model.lora."] if run.key("model.lora.rank", 0) > 0 else []
    chosen = {**{s: f"{s}.name" for s in SECTIONS}, **{s: s for s in COLLECTIONS}}
    other = [s for s, k in chosen.items() if k in run.recipe and run.recipe[k] != usual.get(k)]
    for key, value in run.recipe.items():
        learnt = key.startswith((*LEARNT_BY, *lora)) and key not in DATA
        if not learnt or key not in usual or any(key.startswith(f"{s}.") for s in other):
            continue
        if key.endswith(".name") and key.rpartition(".")[0] in SECTIONS:
            continue
        if far := _apart(value, usual[key]):
            far += _out_of_range(run, key) if far > 1 else 0.0
            word, there = _word(key, usual[key]), option_text(usual[key])
            yield Suspect(key, option_text(value), there, (word,), far)


def _out_of_range(run: Record, key: str) -> float:
    """3 where the metric that an option controls is not in the range of runs that learn."""
    for prefix, (metric, low, high) in CONTROLS.items():
        if key.startswith(prefix) and run.has(metric):
            return 0.0 if low <= abs(late(run, metric)) <= high else 3.0
    return 0.0


def _word(key: str, value: Any) -> str:
    """A key and its value as the command line reads them."""
    plain = isinstance(value, str) and value.replace("_", "").isalnum()
    return f"{key}={value if plain else json.dumps(value)}"


def own_data(run: Record) -> bool:
    """Whether the prompts come from the user's own task or files, not from a task of the zoo."""
    made = made_of(run.path, -1).get("components", {})
    task = made.get(f"task {run.key('task.name')}", "rlzoo_zoo.")
    return not task.startswith("rlzoo_zoo.") or bool(run.key("task.path"))


def foreign(run: Record) -> dict[str, tuple[str, str]]:
    """Section and name of components that do not come with rlzoo -> (origin, hash of source)."""
    made = made_of(run.path, -1).get("components", {})
    pairs = ((name, origin.partition(", source ")) for name, origin in made.items())
    return {n: (where, source) for n, (where, _, source) in pairs if not where.startswith(OURS)}


def listed(run: Record) -> list[str]:
    """`actor.eps=0.001 (grpo: 1e-06)`: components that do not come with rlzoo, and settings
    far from the recipe, the most suspicious first."""
    own = {what.rpartition(" ")[2]: f"{what} ({o})" for what, (o, _) in foreign(run).items()}
    found = [s for s in suspects(run) if s.distance > 1]
    there = {name for s in found for name in s.value.split("+")}
    return [
        *(own.get(s.value) or f"{s.key}={s.value} ({run.key('recipe')}: {s.usual})" for s in found),
        *(text for name, text in own.items() if name not in there),
    ]


def unknown(run: Record) -> str:
    """A sentence that the cause is unknown, and how the run differs from its recipe."""
    if likely := listed(run)[:4]:
        also = f"; also: {', '.join(likely[1:])}" if likely[1:] else ""
        return f" The cause is unknown. Most likely is {likely[0]}{also}."
    near = ": the components are the recipe's, and no setting is far from the recipe's"
    return f" The cause is unknown{near if _recipe(run) is not None else ''}."


def nearer(run: Record) -> str:
    """What to do for a policy nearer to the reference: a KL term with kl.place=none has no effect,
    but the loss may have a coefficient of its own."""
    if run.known("kl.place") != "none":
        value = run.known("kl.coef")
        return "raise kl.coef" if value is None else f"raise kl.coef (it is {value})"
    if run.has(names.REF_KL) and (beta := run.known("policy_loss.beta")) is not None:
        return f"raise policy_loss.beta (it is {beta}; kl.place=none)"
    return "set kl.place=loss with a small kl.coef (kl.place=none)"


def compare_first(run: Record) -> str:
    """Harmless advice for an unknown cause."""
    if any(s.words for s in suspects(run)):
        check = "Run `rlzoo check NAME` on that component. " if foreign(run) else ""
        return f"{check}`rlzoo doctor RUN --retrain` trains again with each difference reset."
    if foreign(run):
        return "Run `rlzoo check NAME` on that component, and train once without it."
    return "Train the same recipe with another seed, compare the runs, and read samples.jsonl."
