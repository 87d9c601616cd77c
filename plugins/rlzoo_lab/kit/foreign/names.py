"""The column that an argument of a foreign function is, by its name.

Libraries agree on most of these names. `libraries` has the exceptions of each.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlzoo.plugin.columns import COLUMNS

# Column -> the names that it has elsewhere.
_ELSEWHERE = {
    "rewards": "token_level_rewards token_rewards per_token_rewards rewards reward",
    "scores": "token_level_scores",
    "sequence_rewards": "sequence_rewards outcome outcome_rewards returns_per_sequence",
    "response_mask": "response_mask loss_mask loss_masks action_mask completion_mask eos_mask "
    "mask masks response_masks valid_mask token_mask",
    "group_ids": "group_ids index uid uids group_id group group_index group_idx groups "
    "prompt_index prompt_uids",
    "values": "values old_values value",
    "value_preds": "value_preds vpreds vpred new_values values_pred value_pred pred_values",
    "returns": "returns target targets target_returns value_targets",
    "advantages": "advantages advantage advs adv",
    "bootstrap_values": "bootstrap_values bootstrap_value last_values last_value",
    "truncated": "truncated",
    "terminated": "terminated",
    "greedy_scores": "reward_baselines",
    "sum_pi_squared": "sum_pi_squared",
    "entropy": "entropy entropies",
}
COLUMN_OF = {name: column for column, names in _ELSEWHERE.items() for name in names.split()}
# Log-probs have too many names for a list: old_logps, logprobs_new, ref_per_token_logps.
_LOG_PROBS = re.compile(r"(?:(.+?)_)??(?:per_token_)?log_?p(?:rob)?s?(?:_(.+))?")
_WHOSE = {
    "log_probs": " new cur curr current policy pi actor",
    "old_log_probs": "old prev behavior behaviour",
    "ref_log_probs": "ref reference base",
    "sampler_log_probs": "rollout sampler generation inference",
}
_OF = {word: column for column, words in _WHOSE.items() for word in words.split(" ")}


def column_of(name: str) -> str:
    """Empty if the name is not known."""
    match = _LOG_PROBS.fullmatch(name)
    whose = _OF.get(match[1] or match[2] or "", "") if match else ""
    return name if name in COLUMNS else COLUMN_OF.get(name) or _PSEUDO.get(name) or whose


def is_size(name: str) -> bool:
    return _PSEUDO.get(name) == GROUP_SIZE


LOSS = "a loss per token"  # what an aggregation averages: an input, but no column
GROUP_SIZE = "the size of a group"  # its rows are adjacent, and all groups have this many
_PSEUDO = {
    **dict.fromkeys(("loss_mat", "per_token_loss", "losses", "loss", "token_losses"), LOSS),
    **dict.fromkeys(
        (
            "num_generations",
            "n_samples_per_prompt",
            "group_size",
            "k",
            "G",
            "num_samples",
            "n_samples",
            "samples_per_prompt",
            "n_rollouts",
            "num_rollouts",
        ),
        GROUP_SIZE,
    ),
}

SETTINGS = ("config", "cfg", "args", "algo_config", "loss_config")  # arguments with many settings

# Given only if required: with them a function corrects for the sampler, or adds a KL.
_ONLY_IF_REQUIRED = ("sampler_log_probs", "ref_log_probs", "truncated", "terminated", "entropy")

REWARDS = ("rewards", "scores", "sequence_rewards", "sequence_scores", "score_components")


def columns_of(required: Sequence[str], optional: Sequence[str],
               own: Mapping[str, Any]) -> dict[str, Any]:  # fmt: skip
    """Argument -> column (or `LOSS`, `GROUP_SIZE`); `own` has those that are known otherwise.

    required, optional: the arguments without a default, and those whose default is None.
    """
    known = {n: column_of(n) for n in [*required, *optional]} | {**own}
    found = {name: known[name] for name in required if known[name]}
    for name in optional:
        column = known[name]
        if name in own or (column and column not in _ONLY_IF_REQUIRED):
            found[name] = column
    names, columns = set(found), set(found.values())
    free = names - set(own)
    if "returns" in columns and "values" in free and not columns & set(REWARDS):
        found["values"] = "values" if "value_preds" in columns else "value_preds"
    if columns & set(REWARDS) and "log_probs" in columns:  # before any update
        found |= {n: "old_log_probs" for n in free if found[n] == "log_probs"}
    outcome = names & {"rewards", "reward"} & free
    if outcome and "values" not in columns and columns & {"group_ids", GROUP_SIZE}:
        found |= dict.fromkeys(outcome, "sequence_rewards")  # tried with a reward per token, too
    if set(columns) & set(REWARDS) and "group_ids" not in columns:
        found |= dict.fromkeys(free & {"prompts", "prompt_ids"}, "group_ids")
    only = columns - {"response_mask"}
    if len(found) == 2 and "response_mask" in columns and only <= {"advantages", "values"}:
        found |= {n: "raw_advantages" for n in free if found[n] in only}  # a whitening
    return found


def kind_of(columns: Iterable[str]) -> str:
    """The kind of a function with these columns; empty if they do not determine it."""
    has = set(columns)
    if {"log_probs", "advantages"} <= has:
        return "policy_losses"
    if {"value_preds", "returns"} <= has:
        return "value_losses"
    if has & set(REWARDS):
        return "estimators"
    if {"log_probs", "ref_log_probs"} <= has:
        return "kl_penalties"
    if LOSS in has:
        return "aggregations"
    return "columns" if "raw_advantages" in has else ""
