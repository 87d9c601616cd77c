"""Recipes: find, compose, validate, and record where each value came from.  No torch here.

    defaults.yaml < presets of the chosen model and task < recipe file < command line

Without a model, a teacher or a task in these two, bare.yaml chooses a model and a task.

Each layer is a flat mapping from dotted keys to values, so that merging is an update and every
value keeps its origin. `KEYS` lists the core's own; the options of a component come from its
signature. Each error is one line: the key, where it was set, and the nearest valid word.
"""

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlzoo.errors import RecipeError, first_line, nearest
from rlzoo.plugin.permissions import secret
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.files import (
    Flat,
    Layer,
    config_dirs,
    describe,
    find_config,
    flatten,
    list_configs,
    read_layer,
)
from rlzoo.recipe.keys import COLLECTIONS, KEYS, SECTIONS, TREES, Config
from rlzoo.recipe.validate import declared, validate
from rlzoo.recipe.words import name_recipe, no_pair, no_recipe, read_value, split_values

COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Recipe:
    """A resolved recipe: `config.train.steps`, and where each dotted key's value came from.

    written: where a recipe reads environment variables, the text (`${oc.env:NAME}`) of each key
        with a reference: this text is stored and shown, never the variable's value.
    chosen: where each component of a collection was set (`loggers.wandb`), not a key itself.
    """

    name: str
    config: Config
    origins: Mapping[str, str]
    written: Mapping[str, Any] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)

    def value(self, key: str) -> Any:
        """The value of a dotted key, or a section."""
        return OmegaConf.select(cast(DictConfig, self.config), key)

    def options(self, section: str) -> dict[str, Any]:
        """The options of the component that `section` chooses."""
        node = cast(dict[str, Any], OmegaConf.to_container(self.value(section)))
        return {k: v for k, v in node.items() if f"{section}.{k}" not in KEYS}

    def blame(self, key: str) -> str:
        """`key (where it was set)`, the start of an error."""
        return f"{key} ({self.origins.get(key) or self.chosen.get(key, 'defaults')})"

    def to_yaml(self) -> str:
        return f"# {self.name}\n" + OmegaConf.to_yaml(OmegaConf.create(self.stored()))

    def stored(self) -> dict[str, Any]:
        """The whole recipe as it is stored."""
        tree: Any = OmegaConf.to_container(self.config)
        for key, value in self.written.items():
            *parents, leaf = key.split(".")
            reduce(getitem, parents, tree)[leaf] = value
        return tree


def compose(words: list[str], zoo: Zoo, *, need_recipe: bool = True) -> Recipe:
    """The recipe that `words` (`recipe=ppo_gae`, `key=value`, ...) describe; raises RecipeError.

    need_recipe: False for an environment, which needs no algorithm and uses the defaults.
    """
    words = [new for word in name_recipe(words) for new in of_a_file(word, zoo)]
    file, words = _recipe_file(words, need_recipe)
    defaults = find_config("", "defaults")
    if defaults is None:
        raise RecipeError(f"there is no defaults.yaml in {', '.join(map(str, config_dirs()))}")
    # The defaults name all sets as a saved recipe does; their presets are still to come.
    layers = [replace(read_layer(defaults), saved=False)]
    layers += [*([read_layer(file)] if file else []), _command_line(words)]
    named = {key.split(".")[0] for layer in layers[1:] for key in layer.values}
    if named.isdisjoint({"model", "teacher", "task"}) and (bare := find_config("", "bare")):
        layers.insert(1, read_layer(bare))
    name = (file or defaults).stem
    if file and file.name == "recipe.yaml":  # a resolved recipe keeps its name in its first line
        name = (describe(file).split() or [name])[0].replace("/", "_")  # and in no other folder
    _drop_replaced(layers)
    merged, origins = _merge([layers[0], *_presets(layers), *layers[1:]])
    resolved, written = _resolve(merged, origins)
    if shorts := [key for key in layers[-1].values if "." not in key and key not in WHOLE]:
        known = declared(resolved, origins, zoo)[1]
        for short, key in full_keys(shorts, known, layers[-1].values).items():
            merged[key], origins[key] = merged.pop(short), origins.pop(short)
        resolved, written = _resolve(merged, origins)
    for key in NO_FILE:  # only the command line may run a model's own code or replace a run
        if resolved.get(key, False) is not False and origins[key] != COMMAND_LINE:
            resolved[key] = False
            origins[key] = f"only the command line can set this, not {origins[key]}"
    chosen: dict[str, str] = {}
    for key in filter(lambda key: key.split(".")[0] in COLLECTIONS, origins):
        chosen.setdefault(".".join(key.split(".")[:2]), origins[key])
        chosen.setdefault(key.split(".")[0], origins[key])
    merged, origins = validate(resolved, origins, zoo)
    empty: dict[str, Any] = {section: {} for section in COLLECTIONS}
    config = OmegaConf.create(empty | nest(merged))
    OmegaConf.set_readonly(config, True)
    return Recipe(name, cast(Config, config), origins, written, chosen)


# First words that stand for themselves; another without a dot is the end of a longer key.
WHOLE = {"recipe", "model", *SECTIONS, *COLLECTIONS, *(key.split(".")[0] for key in KEYS)}


def full_keys(
    shorts: Iterable[str], known: Iterable[str], given: Collection[str]
) -> dict[str, str]:
    """Short key -> the only key that ends in it, if there is one. Raises RecipeError where several
    do, or where that key is `given` as well."""
    full = {}
    for short in shorts:
        ends = [key for key in known if key.rpartition(".")[2] == short]
        if len(ends) > 1:
            line = f"is ambiguous; use {' or '.join(ends)}"
            raise RecipeError.at(short, COMMAND_LINE, line, "ambiguous")
        for key in ends:
            if key in given:
                line = f"{key} is given twice; {short} is short for it"
                raise RecipeError(line, key=key, kind="given-twice")
            full[short] = key
    return full


def of_a_file(word: str, zoo: Zoo) -> list[str]:
    """`task=rows.jsonl` as `task=NAME task.path=rows.jsonl`, and `rewards=file.py:f` as
    `rewards=[NAME] rewards.NAME.function=file:f`, if only one component has such an option."""
    section, _, value = word.partition("=")
    kind = {**SECTIONS, **COLLECTIONS}.get(section)
    function = re.fullmatch(r"([\w./]+?)(?:\.py)?(:[A-Za-z_]\w*)", value)
    if section in COLLECTIONS and value.endswith(".py") and os.path.isfile(value):
        raise RecipeError(f"{word}: write {word}:FUNCTION, with the name of the function")
    if kind is None or not (function or os.path.isfile(value)) or value in zoo.shelves[kind]:
        return [word]
    option = "function" if function else "path"
    takers = [name for name, c in zoo.shelves[kind].items() if option in c.options]
    if len(takers) != 1:
        return [word]
    [name] = takers
    text = function[1].replace("/", ".") + function[2] if function else value
    many = section in COLLECTIONS
    place = f"{section}.{name}" if many else section
    return [f"{section}={f'[{name}]' if many else name}", f"{place}.{option}={json.dumps(text)}"]


def _recipe_file(words: list[str], needed: bool) -> tuple[Path | None, list[str]]:
    """The recipe's file, if one is chosen, and the other words."""
    for word in words:
        if "=" not in word[1:]:
            raise no_pair(word, words)
    chosen = [w.removeprefix("recipe=") for w in words if w.startswith("recipe=")]
    rest = [w for w in words if not w.startswith("recipe=")]
    if len(chosen) > 1:
        line = f"recipe is given twice: {' and '.join(chosen)}"
        raise RecipeError(line, key="recipe", kind="given-twice")
    if not chosen:
        if needed:
            count = len(list_configs("recipes"))
            line = f"give a recipe, for example ppo_gae; `rlzoo recipes` lists all {count}"
            for run in [w.removeprefix("resume=") for w in words if w.startswith("resume=")]:
                line = f"resume={run}: write `rlzoo resume {run}`"
            raise RecipeError(line, key="recipe", kind="missing")
        return None, rest
    [name] = chosen
    if name.endswith((".yaml", ".yml")):
        if os.path.isfile(name):
            return Path(name), rest
        line = no_recipe(name) if "://" in name else f"recipe: there is no file {name}"
    elif file := find_config("recipes", name):
        return file, rest
    else:
        sweep = f"recipe={name} is a sweep over recipes; use `rlzoo sweep`"
        line = sweep if "," in name else no_recipe(name)
    raise RecipeError(line, key="recipe", kind="not-found")


def _command_line(words: list[str]) -> Layer:
    values: Flat = {}
    for word in words:
        key, text = word.split("=", 1)
        key = key.strip()
        if key != "run.dir" and len(split_values(text)) > 1:  # a folder's name may hold a comma
            raise RecipeError(f"{key}={text} is sweep syntax; use `rlzoo sweep` to run each value")
        flat = flatten({key: read_value(key, text)})
        # What is given again goes to the end: the last word counts, in its own place.
        values = {k: v for k, v in values.items() if k not in flat} | flat
    return Layer(COMMAND_LINE, values)


def _drop_replaced(layers: list[Layer]) -> None:
    """Drop what a higher layer replaces: a model's path or name, because these exclude each other,
    and the options of a component instead of which it chooses another."""
    for path, name in (("model.path", "model.name"), ("teacher.path", "teacher.name")):
        for i in reversed(range(len(layers))):
            given = [k for k in (path, name) if layers[i].values.get(k) is not None]
            if len(given) > 1 and layers[i].origin == COMMAND_LINE:
                raise RecipeError(f"{name} and {path} ({COMMAND_LINE}): give only one of them")
            if given:
                for layer in layers[:i]:
                    layer.values.pop({path: name, name: path}[given[0]], None)
                break
    for section in SECTIONS:
        chosen, current = [], None
        for layer in layers:
            current = layer.values.get(f"{section}.name", current)
            chosen.append(current)
        for layer in (layer for layer, x in zip(layers, chosen, strict=True) if x != current):
            for key in [k for k in layer.values if k.startswith(f"{section}.") and k not in KEYS]:
                del layer.values[key]


def _presets(layers: list[Layer]) -> list[Layer]:
    """The preset files of the chosen model, teacher and task; they replace the name that chose
    them. A teacher is a preset of a model, of which it takes the path."""
    presets = []
    for section, folder in (("model", "model"), ("teacher", "model"), ("task", "task")):
        key = f"{section}.name"
        chosen = next((ly for ly in reversed(layers) if key in ly.values), None)
        if chosen is None or chosen.saved or (name := chosen.values[key]) is None:
            continue  # what a saved name stands for is in the file, too
        if not isinstance(name, str | int | float):
            raise RecipeError.at(key, chosen.origin, f"must be a str. Got {name!r}", "wrong-type")
        file = find_config(folder, str(name))
        if file:
            preset = read_layer(file)
            if section == "teacher":
                path = preset.values.get("model.path")
                preset = replace(preset, values={"teacher.path": path})
            presets.append(preset)
            if key in preset.values:
                for layer in layers:
                    layer.values.pop(key, None)
        elif folder == "model":
            known = list_configs("model")
            line = f"there is no model {name!r}{nearest(str(name), known)} (available: "
            line += f"{', '.join(known)}; for a folder or a hub id, use {section}.path)"
            raise RecipeError.at(key, chosen.origin, line, "unknown-component")
    return presets


def _merge(layers: list[Layer]) -> tuple[Flat, dict[str, str]]:
    merged: Flat = {}
    origins: dict[str, str] = {}
    for layer in layers:
        for key, value in layer.values.items():
            if key.endswith("!"):
                for old in [k for k in merged if k.startswith(key[:-1] + ".")]:
                    del merged[old], origins[old]
                continue
            *above, name = key.split(".")
            if (tree := ".".join(above)) in TREES:  # an entry: `model.chat_args.NAME=value`
                key, value = tree, {**(merged.get(tree) or {}), name: value}
            merged[key] = value
            origins[key] = layer.origin
    one = re.compile(rf"({'|'.join(COLLECTIONS)})\.[^.]+")  # of a collection, as `loggers.wandb`
    for key in [k for k, v in merged.items() if v is None and one.fullmatch(k)]:
        for old in [k for k in merged if k == key or k.startswith(key + ".")]:
            del merged[old], origins[old]
    return merged, origins


def nest(flat: Flat) -> dict[str, Any]:
    """Dotted keys as nested mappings."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *parents, leaf = key.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise RecipeError(f"{key}: {parent} is {node!r}, a value without keys")
        if isinstance(value, dict):
            node.setdefault(leaf, dict(value))  # a copy: what is put into it must not show in flat
        else:
            node[leaf] = value
    return tree


TRUST = "model.trust_remote_code"
NO_FILE = (TRUST, "run.overwrite")


# `${key}`, and `${oc.env:NAME}` with a default or without one.
_PLAIN = re.compile(r"\$\{\s*[\w.\[\]-]+\s*\}")
_ENV = re.compile(r"\$\{\s*oc\.env\s*:\s*(\w+)\s*(?:,[^${}]*)?\}")


def _resolve(merged: Flat, origins: dict[str, str]) -> tuple[Flat, Flat]:
    """Interpolations (`${rollout.prompts}`) filled in; and where environment variables are read,
    all of them as they are written. Raises RecipeError for a variable that the command line does
    not allow, and for any other resolver."""
    variables, written, resolved = False, {k: v for k, v in merged.items() if "${" in str(v)}, {}
    for key, value in merged.items():
        if value == "???" or (not isinstance(value, str) and "'???'" in str(value)):
            line = "has no value; replace ??? with one"
            raise RecipeError.at(key, origins[key], line, "missing")
    for key, value in written.items():
        for name in _ENV.findall(str(value)):
            variables = True
            try:
                secret(name)
            except RecipeError as error:
                line = f"{value!r}: {error}"
                raise RecipeError.at(key, origins[key], line, "not-allowed") from None
        if "${" in _PLAIN.sub("", _ENV.sub("", str(value))):
            line = f"{value!r}: a value may refer only to ${{another.key}} or ${{oc.env:NAME}}"
            raise RecipeError.at(key, origins[key], line, "not-allowed")
    config = OmegaConf.create(nest(merged)) if written else OmegaConf.create()
    for key, value in written.items():
        try:
            node = OmegaConf.select(config, key, throw_on_resolution_failure=True)
            is_config = OmegaConf.is_config(node)
            resolved[key] = OmegaConf.to_container(node, resolve=True) if is_config else node
        except OmegaConfBaseException as error:
            line = f"{value!r}: {first_line(error)}"
            raise RecipeError.at(key, origins[key], line, "bad-reference") from None
        if "${" in str(resolved[key]):
            line = f"{value!r} refers to a value that is itself a reference"
            raise RecipeError.at(key, origins[key], line, "bad-reference")
    return merged | resolved, written if variables else {}
