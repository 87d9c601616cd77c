"""The columns of a batch: names, shapes, meanings and origins. No torch here.

B trajectories, T response positions, P prompt positions, K components or bins. Index t of a
(B, T) column means "the state before token t, and the choice of token t". Off `response_mask`
every (B, T) column is exactly 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Columns = Mapping[str, Any]  # by name: tensors, and lists where the shape is "list"


@dataclass(frozen=True)
class Column:
    """A named tensor (or list) of a batch.

    shape: "B", "BT", "BP", "BK", "BTK", "K", or "list" (B Python objects).
    stage: the first stage at which it exists, one of `STAGES`.
    """

    name: str
    shape: str
    stage: str
    meaning: str


# In the order in which a training step makes them; a component may use what its own stage
# or an earlier one holds.
STAGES = ("rollout", "score", "column", "estimate", "update")

_BY_STAGE = {
    "rollout": {
        "prompts": ("list", "prompt texts, as the policy reads them"),
        "messages": ("list", "prompts as chat messages: lists of role and content"),
        "answers": ("list", "the correct answers"),
        "responses": ("list", "response texts, without EOS"),
        "response_tokens": ("list", 'each action token, decoded separately; EOS is ""'),
        "turns": ("list", "texts of the turns, policy and environment alternating"),
        "prompt_ids": ("BP", "prompt tokens, left-padded (int64)"),
        "prompt_mask": ("BP", "1 on prompt tokens, 0 on padding"),
        "response_ids": ("BT", "response tokens, right-padded (int64)"),
        "response_mask": ("BT", "1 where the policy chose the token"),
        "response_attention": ("BT", "1 on response tokens and observations, 0 on padding"),
        "domains": ("list", 'the domain of a prompt, or ""'),
        "prompt_index": ("B", "the prompt's index in its data set"),
        "group_ids": ("B", "equal for samples of the same draw of a prompt"),
        "terminated": ("B", "the episode ended with EOS, or its environment ended it"),
        "truncated": ("B", "the episode reached the length limit"),
        "noise": ("BT", "uniform in [0, 1), a function of (seed, step, row, position)"),
        "turn_ids": ("BT", "the turn of a conversation that a token belongs to, from 1"),
        "state_keys": ("BT", "equal where the environment's state is the same (int64)"),
        "sampler_log_probs": ("BT", "log-probability under the sampling distribution"),
        "old_log_probs": ("BT", "log softmax(logits / temperature) of the policy at rollout"),
        "sampler_log_pi": ("BTK", "log-probability of every token under the sampling distribution"),
        "kept_tokens": ("BTK", "the tokens that sampling kept: bits, from the lowest (uint8)"),
    },
    "score": {
        "task_scores": ("BT", "score of the task's own verifier"),
        "score_components": ("BK", "masked sum of each reward, before its weight"),
        "score_weights": ("K", "the weight of each reward"),
        "scores": ("BT", "weighted rewards before KL; an outcome is at the last action"),
        "sequence_scores": ("B", "masked sum of `scores`"),
    },
    "column": {
        "ref_log_probs": ("BT", "log-probability under the frozen reference"),
        "full_kl": ("BT", "KL(policy, reference) over the whole vocabulary"),
        "teacher_log_probs": ("BT", "log-probability under the frozen teacher"),
        "teacher_kl": ("BT", "KL(policy, teacher) over the whole vocabulary"),
        "sum_pi_squared": ("BT", "sum of squared token probabilities of the policy at rollout"),
        "old_entropy": ("BT", "entropy of the policy's next-token distribution at rollout"),
        "values": ("BT", "V(s_t), computed before token t is chosen"),
        "bootstrap_values": ("B", "V after the last action: 0 if terminated, V(s_T) if truncated"),
    },
    "estimate": {
        "rewards": ("BT", "`scores` minus coef * KL where KL is placed in the reward"),
        "sequence_rewards": ("B", "masked sum of `rewards`"),
    },
    "update": {
        "raw_advantages": ("BT", "output of the estimator"),
        "advantages": ("BT", "advantages after whitening"),
        "returns": ("BT", "the critic's target"),
        "log_probs": ("BT", "log-probability under the current policy, with gradient"),
        "log_pi": ("BTK", "log-probability of every token under the current policy, with gradient"),
        "entropy": ("BT", "entropy of the current next-token distribution, with gradient"),
        "observation_nll": ("B", "mean -log pi of a response's observations, with gradient"),
        "value_preds": ("BT", "V(s_t) of the current critic, with gradient"),
        "value_logits": ("BTK", "logits of a critic with K bins, with gradient"),
        "value_support": ("K", "the values of the critic's K bins"),
    },
}
COLUMNS: dict[str, Column] = {
    name: Column(name, shape, stage, meaning)
    for stage, columns in _BY_STAGE.items()
    for name, (shape, meaning) in columns.items()
}

# The tokens themselves and where they are: observations inside a response keep theirs.
KEPT_OFF_MASK = ("response_ids", "response_mask", "response_attention")

# Columns that a conversation's environment may take: prompts and turns, texts only.
TOLD = ("prompts", "messages", "answers", "prompt_index", "turns")

# Columns that bring a gradient into a component; all others are numbers to it.
WITH_GRADIENT = ("log_probs", "log_pi", "entropy", "observation_nll", "value_preds", "value_logits")

# Columns and resources that stand for a model: a component that needs one makes the run build it.
MODELS = {
    "critic": ("values", "bootstrap_values", "value_preds", "value_logits", "value_support"),
    "reference": ("ref_log_probs", "full_kl", "reference"),
    "teacher": ("teacher_log_probs", "teacher_kl", "teacher"),
}

# Handles that a column plugin or a sampler may take as well as columns, supplied by the core.
RESOURCES: dict[str, str] = {
    "uniforms": "noise (B, max_new_tokens) for a sampler",
    "sample": "sample(prompt_ids, prompt_mask, ...) -> columns; every token is counted",
    "score": "score(columns) -> sequence scores (B,) of other responses to prompts of the task",
    "policy": "the policy, frozen while columns are computed; "
    "`log_prob_stats(columns, want=('entropy',))` -> log_probs and entropy (B, T)",
    "reference": "the frozen reference policy",
    "teacher": "the frozen teacher, with the policy's tokenizer",
    "tokenizer": "the tokenizer",
    "memory": "a dict of JSON values, passed from step to step and saved in checkpoints",
}
