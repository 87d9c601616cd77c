"""Command-line arguments that are a path or one component's options."""

import json
from typing import Any

from rlzoo.errors import RecipeError
from rlzoo.recipe.words import read_value


def quoted(value: Any) -> str:
    """Quotes any text as the value of an argument: `model.path="runs/lam=0,5/model"`."""
    return json.dumps(str(value), ensure_ascii=False)


def read_options(words: list[str]) -> dict[str, Any]:
    """Options of one component from `option=value` words."""
    for word in words:
        if "=" not in word:
            raise RecipeError(f"expected option=value, got {word!r}")
    pairs = [word.split("=", 1) for word in words]
    return {key.strip(): read_value(key.strip(), text) for key, text in pairs}
