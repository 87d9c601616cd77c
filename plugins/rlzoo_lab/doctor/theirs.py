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

# Keys that an import computes from several of a trainer's settings.
COMPUTED = {
    "trl": {"rollout.prompts": "generation_batch_size / num_generations (PPO: batch_size)",
            "train.minibatches": "steps_per_generation / gradient_accumulation_steps",
            "policy_loss.clip_high": "epsilon_high or cliprange", "train.steps": "max_steps",
            "actor.betas": "(adam_beta1, adam_beta2)", "aggregation.name": "loss_type"},
    "verl": {"train.minibatches": "data.train_batch_size / ppo_mini_batch_size",
             "kl.place": "use_kl_loss or use_kl_in_reward"},
}  # fmt: skip


@cache
def _names(trainer: str) -> dict[str, str]:
    """Key of a recipe -> what `trainer` calls it, by the table that imports are read with."""
    table = Path(LAB).with_name("imports") / "trainers.yaml"
    theirs = yaml.safe_load(table.read_text(encoding="utf-8")).get(trainer, {}).get("settings", {})
    found: dict[str, str] = {}
    for name, key in theirs.items():
        found[key] = f"{found[key]} or {name}" if key in found else name
    return found | COMPUTED.get(trainer, {})


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
