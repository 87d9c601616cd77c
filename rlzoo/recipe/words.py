"""Values as they are written on the command line; a value that is several is swept."""

from copy import deepcopy
from functools import lru_cache
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlzoo.errors import RecipeError


def read_value(key: str, text: str) -> Any:
    """The value that a text stands for, as YAML has it; raises RecipeError, naming `key`."""
    try:
        return deepcopy(_value(text))
    except (yaml.YAMLError, OmegaConfBaseException):
        raise RecipeError(f"{key} (command line): cannot read the value {text!r}") from None


@lru_cache
def _value(text: str) -> Any:
    loaded = OmegaConf.from_dotlist([f"value={text}"])
    return OmegaConf.to_container(loaded)["value"]  # type: ignore[call-overload, index]


def read_options(words: list[str]) -> dict[str, Any]:
    """Options of one component from `option=value` words."""
    for word in words:
        if "=" not in word:
            raise RecipeError(f"expected option=value, got {word!r}")
    pairs = [word.split("=", 1) for word in words]
    return {key.strip(): read_value(key.strip(), text) for key, text in pairs}


def split_values(text: str) -> list[str]:
    """A swept value at its commas, those inside brackets, braces and quotes apart."""
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


def has_sweep(text: str) -> bool:
    """Whether a value is several, for `rlzoo sweep`."""
    return len(split_values(text)) > 1
