"""Text about an imported run, in the words of the trainer that made it."""

import re
from functools import cache
from pathlib import Path

import yaml

from rlzoo_lab import __file__ as LAB

SECTION = "|".join((
    "actor", "aggregation", "checkpoint", "critic", "estimator", "eval", "kl", "model",
    "policy_loss", "rollout", "stop", "task", "train",
))  # fmt: skip
KEY = re.compile(rf"\b(?:{SECTION})\.[a-z_]+(?:\.[a-z_]+)*(?![\w(/-]|\.\w)")


@cache
def _names(trainer: str) -> dict[str, str]:
    """Key of a recipe -> what `trainer` calls it, by the table that imports are read with."""
    table = Path(LAB).with_name("imports") / "trainers.yaml"
    theirs = yaml.safe_load(table.read_text(encoding="utf-8")).get(trainer, {})
    found: dict[str, str] = {}
    for name, key in theirs.get("settings", {}).items():
        found[key] = f"{found[key]} or {name}" if key in found else name
    return found | theirs.get("computed", {})


def in_words_of(trainer: str, text: str) -> str:
    """`text` with the trainer's names of settings; a key of rlzoo's for which none is known is
    called one. Unchanged without a trainer, or for logs that use rlzoo's names."""
    if not trainer or trainer == "rlzoo":
        return text
    names = _names(trainer)
    strange = dict.fromkeys(k for k in KEY.findall(text) if k not in names)
    text = KEY.sub(lambda key: names.get(key[0], key[0]), text)
    whose = f"rlzoo's, with no known name in {trainer}"
    return f"{text} ({', '.join(strange)}: {whose}.)" if strange else text
