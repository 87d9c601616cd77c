"""The column that an argument of a foreign function is, by its name.

Libraries agree on most of these names. `libraries` has the exceptions of each.
"""

from collections.abc import Iterable, Mapping

from rlzoo.plugin.columns import COLUMNS

# Column -> the names that it has elsewhere.
_ELSEWHERE = {
    "rewards": "token_level_rewards token_rewards per_token_rewards rewards reward",
    "scores": "token_level_scores",
    "sequence_rewards": "sequence_rewards outcome outcome_rewards returns_per_sequence",
    "response_mask": "response_mask loss_mask loss_masks action_mask completion_mask eos_mask "
    "mask masks",
    "group_ids": "group_ids index uid uids group_id group group_index prompt_index",
    "values": "values old_values value",
    "value_preds": "value_preds vpreds vpred new_values",
    "returns": "returns target targets",
    "log_probs": "log_probs log_prob logprobs logprob logps per_token_logps new_log_probs "
    "new_logprobs curr_logprobs cur_logprobs current_log_probs",
    "old_log_probs": "old_log_probs old_log_prob old_logprobs old_logps old_per_token_logps "
    "prev_logprobs prev_log_probs",
    "ref_log_probs": "ref_log_probs ref_log_prob ref_logprobs ref_logprob ref_logps "
    "ref_per_token_logps log_probs_base reference_logprobs base_log_probs",
    "sampler_log_probs": "sampler_log_probs rollout_log_probs rollout_logprobs "
    "generation_logprobs inference_logprobs",
    "advantages": "advantages advantage advs adv",
    "bootstrap_values": "bootstrap_values bootstrap_value last_values last_value",
    "truncated": "truncated",
    "terminated": "terminated",
    "greedy_scores": "reward_baselines",
    "sum_pi_squared": "sum_pi_squared",
    "entropy": "entropy entropies",
}
COLUMN_OF = {name: column for column, names in _ELSEWHERE.items() for name in names.split()}

LOSS = "a loss per token"  # what an aggregation averages: an input, but no column
GROUP_SIZE = "the size of a group"  # its rows are adjacent, and all groups have this many
_PSEUDO = {
    **dict.fromkeys(("loss_mat", "per_token_loss", "losses", "loss", "token_losses"), LOSS),
    **dict.fromkeys(("num_generations", "n_samples_per_prompt", "group_size"), GROUP_SIZE),
}

SETTINGS = ("config", "cfg", "args", "algo_config", "loss_config")  # arguments with many settings

# Given only if required: with them a function corrects for the sampler, or adds a KL.
_ONLY_IF_REQUIRED = ("sampler_log_probs", "ref_log_probs", "truncated", "terminated", "entropy")

REWARDS = ("rewards", "scores", "sequence_rewards", "sequence_scores", "score_components")


def columns_of(required: Iterable[str], optional: Iterable[str],
               own: Mapping[str, str]) -> dict[str, str]:  # fmt: skip
    """Argument -> column (or `LOSS`, `GROUP_SIZE`); `own` has those that are known otherwise.

    required, optional: the arguments without a default, and those whose default is None.
    """
    known = {**{n: n for n in COLUMNS}, **COLUMN_OF, **_PSEUDO, **own}
    required = list(required)
    found = {name: known[name] for name in required if name in known}
    for name in optional:
        column = known.get(name, "")
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
