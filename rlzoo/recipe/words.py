"""Parses values on the command line; several values for one key are a sweep."""

import os
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlzoo.errors import RecipeError, nearest
from rlzoo.recipe.files import DEEPEST, find_config, list_configs, read_layer, refuse_odd_yaml


def read_value(key: str, text: str) -> Any:
    """The YAML value of a text; raises RecipeError, naming `key`."""
    try:
        text.encode()  # bytes of another locale
        if len(text) > DEEPEST or ":" in text:
            refuse_odd_yaml(text)
        loaded = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]))
        return loaded["value"]  # type: ignore[call-overload, index]
    except (yaml.YAMLError, ValueError, OmegaConfBaseException):
        short = text if len(text) < 80 else f"{text[:40]}...{text[-20:]}"
        ranged = "; for a sweep, write 0,0.5,1 or 0..4" if ":" in text else ""
        raise RecipeError(
            f"{key} (command line): cannot read the value {short!r}{ranged}"
        ) from None


def name_recipe(words: list[str]) -> list[str]:
    """`ppo_gae` and `my.yaml` as `recipe=ppo_gae` and `recipe=my.yaml`; all others as they are."""
    named = []
    for word in words:
        plain = "=" not in word and not os.path.isfile(os.path.join(word, "recipe.yaml"))
        if plain and (word.endswith((".yaml", ".yml")) or find_config("recipes", word)):
            word = f"recipe={word}"
        named.append(word)
    return named


def no_pair(word: str, others: list[str]) -> RecipeError:
    """The error for a word that is neither key=value nor a recipe's name."""
    if os.path.isfile(file := os.path.join(word, "recipe.yaml")):
        read_layer(Path(file))  # which refuses that of an imported run
        again = f"use `rlzoo resume {word}` to continue it, recipe={file} to repeat it"
        line = f"{word} is a run's folder; {again}; `rlzoo report {word}` reads it"
    elif os.path.isfile(word):
        line = f"{word} is a file; to train on its rows, write task={word}"
    elif any(other.startswith("recipe=") for other in others):
        line = f"expected key=value, got {word!r}"
    else:
        line = no_recipe(word)
    return RecipeError(line)


def no_recipe(name: str) -> str:
    """The error for a missing recipe, with the nearest name or where to look."""
    if "://" in name:
        return f"{name!r} is a URL; download it (curl -LO {name}), read it, then run the file"
    known = list_configs("recipes")
    hint = (
        nearest(name, known) or f"; `rlzoo recipes` lists them, `rlzoo plugins {name}` components"
    )
    return f"there is no recipe {name!r}{hint}"


def split_values(text: str) -> list[str]:
    """Split a value at its commas, except those inside brackets, braces and quotes. Several parts
    are a sweep."""
    parts, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        else:
            depth += (char in "[{(") - (char in "]})")
        if char == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]
