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

_TABLE = """
prompts           | list | rollout  | prompt texts, as the policy reads them
messages          | list | rollout  | prompts as chat messages: lists of role and content
answers           | list | rollout  | the correct answers
responses         | list | rollout  | response texts, without EOS
response_tokens   | list | rollout  | each action token, decoded separately; EOS is ""
turns             | list | rollout  | texts of the turns, policy and environment alternating
prompt_ids        | BP   | rollout  | prompt tokens, left-padded (int64)
prompt_mask       | BP   | rollout  | 1 on prompt tokens, 0 on padding
response_ids      | BT   | rollout  | response tokens, right-padded (int64)
response_mask     | BT   | rollout  | 1 where the policy chose the token
response_attention | BT  | rollout  | 1 on response tokens and observations, 0 on padding
domains           | list | rollout  | the domain of a prompt, or ""
prompt_index      | B    | rollout  | the prompt's index in its data set
group_ids         | B    | rollout  | equal for samples of the same draw of a prompt
terminated        | B    | rollout  | the episode ended with EOS, or its environment ended it
truncated         | B    | rollout  | the episode reached the length limit
noise             | BT   | rollout  | uniform in [0, 1), a function of (seed, step, row, position)
turn_ids          | BT   | rollout  | the turn of a conversation that a token belongs to, from 1
state_keys        | BT   | rollout  | equal where the environment's state is the same (int64)
sampler_log_probs | BT   | rollout  | log-probability under the sampling distribution
old_log_probs     | BT   | rollout  | log softmax(logits / temperature) of the policy at rollout
task_scores       | BT   | score    | score of the task's own verifier
score_components  | BK   | score    | masked sum of each reward, before its weight
score_weights     | K    | score    | the weight of each reward
scores            | BT   | score    | weighted rewards before KL; an outcome is at the last action
sequence_scores   | B    | score    | masked sum of `scores`
ref_log_probs     | BT   | column   | log-probability under the frozen reference
full_kl           | BT   | column   | KL(policy, reference) over the whole vocabulary
teacher_log_probs | BT   | column   | log-probability under the frozen teacher
teacher_kl        | BT   | column   | KL(policy, teacher) over the whole vocabulary
sum_pi_squared    | BT   | column   | sum of squared token probabilities of the policy at rollout
old_entropy       | BT   | column   | entropy of the policy's next-token distribution at rollout
values            | BT   | column   | V(s_t), computed before token t is chosen
bootstrap_values  | B    | column   | V after the last action: 0 if terminated, V(s_T) if truncated
rewards           | BT   | estimate | `scores` minus coef * KL where KL is placed in the reward
sequence_rewards  | B    | estimate | masked sum of `rewards`
raw_advantages    | BT   | update   | output of the estimator
advantages        | BT   | update   | advantages after whitening
returns           | BT   | update   | the critic's target
log_probs         | BT   | update   | log-probability under the current policy, with gradient
entropy           | BT   | update   | entropy of the current next-token distribution, with gradient
observation_nll   | B    | update   | mean -log pi of a response's observations, with gradient
value_preds       | BT   | update   | V(s_t) of the current critic, with gradient
value_logits      | BTK  | update   | logits of a critic with K bins, with gradient
value_support     | K    | update   | the values of the critic's K bins
"""

COLUMNS: dict[str, Column] = {}
for _line in _TABLE.strip().splitlines():
    _name, _shape, _stage, _meaning = (part.strip() for part in _line.split("|", 3))
    COLUMNS[_name] = Column(_name, _shape, _stage, _meaning)

# The tokens themselves and where they are: observations inside a response keep theirs.
KEPT_OFF_MASK = ("response_ids", "response_mask", "response_attention")

# Columns that a conversation's environment may take: prompts and turns, texts only.
TOLD = ("prompts", "messages", "answers", "prompt_index", "turns")

# Columns that bring a gradient into a component; all others are numbers to it.
WITH_GRADIENT = ("log_probs", "entropy", "observation_nll", "value_preds", "value_logits")

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

# The latest stage whose columns exist when a component of a kind is called.
STAGE_OF_KIND: dict[str, str] = {
    "tasks": "rollout",
    "samplers": "rollout",
    "rewards": "score",
    "columns": "column",
    "estimators": "estimate",
    "kl_penalties": "update",
    "policy_losses": "update",
    "value_losses": "update",
    "aggregations": "update",
    "loggers": "update",
    "executors": "rollout",
}
