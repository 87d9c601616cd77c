import difflib
from collections.abc import Mapping
from typing import Any

from rlzoo.errors import RecipeError, RlzooError, nearest
from rlzoo.plugin.component import KINDS, Component
from rlzoo.plugin.options import Option
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.files import Flat
from rlzoo.recipe.keys import COLLECTIONS, KEYS, SECTIONS, WEIGHT

# ---------------------------------------------------------------- validating


def _validate(merged: Flat, origins: dict[str, str], zoo: Zoo) -> None:
    """Check every key against `KEYS` and the chosen components; fill in their defaults."""
    options: dict[str, Option] = dict(KEYS)
    fallback: dict[str, tuple[Any, str]] = {}
    owners: dict[str, Component] = {}
    wanted = []
    for section, kind in SECTIONS.items():
        name = merged.get(f"{section}.name")
        if name is not None:
            wanted.append((section, f"{section}.name", kind, str(name)))
    for section, kind in COLLECTIONS.items():
        names = {k.split(".")[1]: k for k in merged if k.startswith(f"{section}.")}
        wanted += [(f"{section}.{name}", key, kind, name) for name, key in names.items()]
    for section, key, kind, name in wanted:
        component = _component(zoo, kind, name, key, origins)
        owners[section] = component
        for option in component.options.values():
            full = f"{section}.{option.name}"
            if full in KEYS:
                raise RecipeError(
                    f"{component.label}: its option {option.name!r} has the name of a core key"
                )
            options[full] = option
            fallback[full] = (option.default, f"{component.name}'s default")
        if section.startswith("rewards."):
            options[f"{section}.weight"] = WEIGHT
            fallback[f"{section}.weight"] = (WEIGHT.default, "defaults")
        if merged.get(section) == {} and (component.options or section.startswith("rewards.")):
            del merged[section], origins[section]
    for key in list(merged):
        if key not in options:
            if merged[key] == {} and key in owners:
                continue
            raise RecipeError(_unknown(key, origins[key], options, owners))
        try:
            merged[key] = options[key].check(merged[key])
        except ValueError as error:
            raise RecipeError(f"{key} ({origins[key]}): {error}") from None
    for key in KEYS:
        if key not in merged:
            merged[key] = None if None in _arms(KEYS[key]) else _missing(key)
            origins[key] = "defaults"
    for key, (value, origin) in fallback.items():
        if key not in merged:
            merged[key], origins[key] = value, origin
    if merged["model.name"] is None and merged["model.path"] is None:
        raise RecipeError("model: give model.name (a preset) or model.path (a folder)")


def _arms(option: Option) -> tuple[Any, ...]:
    try:
        option.check(None)
    except ValueError:
        return ()
    return (None,)


def _missing(key: str) -> Any:
    raise RecipeError(f"{key}: has no value, not even in defaults.yaml")


def _component(zoo: Zoo, kind: str, name: str, key: str, origins: Mapping[str, str]) -> Component:
    try:
        return zoo.shelves[kind][name]
    except RlzooError as error:
        known = ", ".join(zoo.shelves[kind])
        raise RecipeError(
            f"{key} ({origins.get(key, '?')}): {error} (there are: {known})"
        ) from None


def _unknown(key: str, origin: str, options: Mapping[str, Option], owners: Mapping) -> str:
    section, _, word = key.rpartition(".")
    if section in owners:
        component = owners[section]
        singular = KINDS[component.kind].singular
        has = ", ".join(component.options) or "none"
        close = nearest(word, component.options)
        return (
            f"{key} ({origin}): {singular} {component.name!r} has no option {word!r}"
            f" (it has: {has}){close}"
        )
    tops = {k.split(".")[0] for k in options}
    if "." not in key and key in tops:
        inside = ", ".join(sorted(k for k in options if k.startswith(key + ".")))
        return f"{key} ({origin}): holds keys, not a value: {inside}"
    return f"{key} ({origin}): no such key{_nearest_key(key, options)}"


def _nearest_key(key: str, options: Mapping[str, Option]) -> str:
    close = difflib.get_close_matches(key, list(options), n=1, cutoff=0.6)
    if not close:  # the right word under the wrong roof: `lr` -> `actor.lr`
        word = key.rpartition(".")[2]
        close = [k for k in options if k.rpartition(".")[2] == word][:1]
        close = close or difflib.get_close_matches(word, list(options), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
