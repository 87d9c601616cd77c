"""Checks every key against the core's keys and the options of the chosen components."""

import difflib
import math
from collections.abc import Mapping
from typing import Any

from rlzoo.errors import RecipeError, RlzooError
from rlzoo.plugin.component import KINDS, Component
from rlzoo.plugin.options import Option
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.elsewhere import meant
from rlzoo.recipe.files import Flat, list_configs
from rlzoo.recipe.keys import COLLECTIONS, KEYS, MANY, RETIRED, SECTIONS, WEIGHT

Declared = tuple[dict[str, Component], dict[str, Option], dict[str, tuple[Any, str]]]


def declared(merged: Flat, origins: Mapping[str, str], zoo: Zoo) -> Declared:
    """The chosen components by section (`estimator`, `rewards.verifier`); the option of every key
    of the core and of these; key -> its default, and whose it is. Raises RecipeError for a
    component that there is not."""
    wanted = []
    for section, kind in SECTIONS.items():
        key = f"{section}.name"
        if section == "kl" and str(merged.get(key, "")).lower() in ("false", "none", "off", "no"):
            raise RecipeError(f"kl ({origins.get(key, '?')}): to disable it, set kl.coef=0")
        if merged.get(key) is not None:
            wanted.append((section, kind, str(merged[key]), key))
    for section, kind in COLLECTIONS.items():
        keys = {k.split(".")[1]: k for k in merged if k.startswith(f"{section}.")}
        wanted += [(f"{section}.{name}", kind, name, key) for name, key in keys.items()]
    chosen: dict[str, Component] = {}
    options: dict[str, Option] = dict(KEYS)
    defaults: dict[str, tuple[Any, str]] = {}
    for section, kind, name, key in wanted:
        try:
            component = chosen[section] = zoo.shelves[kind][name]
        except RlzooError as error:
            names = sorted({*zoo.shelves[kind], *list_configs(section)})
            listed = f"available: {', '.join(names)}; add others: RLZOO_PLUGINS=FILE.py"
            known = f" ({listed})" if "did you" not in str(error) else ""
            line = f"{error}{_meant(name, zoo) or known}"
            raise RecipeError.at(key, origins.get(key, "?"), line, "unknown-component") from None
        for option in component.options.values():
            full = f"{section}.{option.name}"
            if full in KEYS or (component.kind == "rewards" and option.name == "weight"):
                raise RecipeError(
                    f"{component.label}: its option {option.name!r} has the same name as a core key"
                )
            options[full], defaults[full] = option, (option.default, f"{component.name}'s default")
        if component.kind == "rewards":
            options[f"{section}.weight"] = WEIGHT
            defaults[f"{section}.weight"] = (WEIGHT.default, "defaults")
    defaults |= {key: (None, "defaults") for key, option in KEYS.items() if option.allows(None)}
    return chosen, options, defaults


def validate(merged: Flat, origins: Mapping[str, str], zoo: Zoo) -> tuple[Flat, dict[str, str]]:
    """Every key's value as its type, with defaults filled in, and where each was set.

    Raises RecipeError: an unknown component or key, a value of the wrong type or range.
    """
    chosen, options, defaults = declared(merged, origins, zoo)
    checked: Flat = {}
    for key, value in merged.items():
        if key in chosen and value == {}:  # only a name: its options, if any, are keys below it
            if not any(name.startswith(f"{key}.") for name in options):
                checked[key] = value
        elif key not in options:
            line = _unknown(key, options, chosen, zoo)
            raise RecipeError.at(key, origins[key], line, "unknown-key")
        else:
            try:
                checked[key] = options[key].check(value)
            except ValueError as error:
                apart = isinstance(value, list) and ",".join(map(str, value))
                hint = f"; for a sweep, remove the brackets: {key}={apart}" if apart else ""
                kind = options[key].fault(value)
                raise RecipeError.at(key, origins[key], f"{error}{hint}", kind) from None
    set_at = {key: origins[key] for key in checked}
    for key in [key for key in options if key not in checked]:
        if key not in defaults:
            line = f"{key}: has no value, not even in defaults.yaml"
            raise RecipeError(line, key=key, kind="missing")
        checked[key], set_at[key] = defaults[key]
    if checked["model.path"] is None:
        line = "model: give model.name (a preset) or model.path (a folder)"
        raise RecipeError(line, key="model", kind="missing")
    sizes = [checked[f"rollout.{name}"] for name in ("prompts", "samples", "max_new_tokens")]
    if math.prod(sizes) > MANY * 128:
        text = " x ".join(map(str, sizes))
        line = f"rollout: prompts x samples x max_new_tokens is {text} tokens per step; it must be"
        line += f" at most {MANY * 128}"
        raise RecipeError(line, key="rollout", kind="out-of-range")
    return checked, set_at


def _unknown(
    key: str, options: Mapping[str, Option], chosen: Mapping[str, Component], zoo: Zoo
) -> str:
    """What is wrong with a key that there is not, and the nearest right one."""
    section, _, word = key.rpartition(".")
    if section in chosen:
        component = chosen[section]
        singular = KINDS[component.kind].singular
        other = [c.name for c in zoo.shelves[component.kind].values() if word in c.options]
        hint = f"; with it: {section}={', '.join(other)}" if 0 < len(other) < 5 else ""
        return f"{singular} {component.name!r} {component.no_option(word)}{hint}"
    if key in RETIRED:
        return f"is gone; remove it: {RETIRED[key][1]}"
    if key == "recipe":
        return (
            "a recipe's file is complete except for defaults.yaml and cannot include another; "
            "copy that file and change it"
        )
    if inside := sorted(k for k in options if k.startswith(key + ".") and "." not in key):
        return f"is a section with its own keys; set one of these: {', '.join(inside)}"
    for kind in KINDS if "." not in key else ():
        if has := [name for name, c in zoo.shelves[kind].items() if key in c.options]:
            return (
                f"is not a key; it is an option of {kind.replace('_', ' ')} that this recipe does "
                f"not use: {', '.join(has)}{_meant(key, zoo)}"
            )
    for section, kind in {**COLLECTIONS, **SECTIONS}.items():
        if key in zoo.shelves[kind].claims:
            way = f"{section}=[{key}]" if section in COLLECTIONS else f"{section}={key}"
            return f"is not a key; did you mean {way}?"
    return f"is not a key{_meant(key, zoo) or _nearest_key(key, options)}"


def _meant(key: str, zoo: Zoo) -> str:
    """A hint with rlzoo's key for the name that other trainers use."""
    here = meant(key, zoo)
    itself = here.endswith(f".{key}")  # an option that the recipe does not have
    return f"; did you mean {here!r}?" if here and not itself else ""


def _nearest_key(key: str, options: Mapping[str, Option]) -> str:
    """A single word is compared with the last words of keys, too: `lr` is near `actor.lr`."""
    word = key.rpartition(".")[2]
    known = [*SECTIONS, *COLLECTIONS, *options]  # `estimator=gae` is short for `estimator.name=gae`
    key, word = key.lower(), word.lower()
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6 if "." in key else 0.75)
    if not close:
        last = {k.rpartition(".")[2]: k for k in reversed([*options])}
        near = difflib.get_close_matches(word, list(last), n=1, cutoff=0.6)
        close = [last[name] for name in near]
    return f"; did you mean {close[0]!r}?" if close else ""
