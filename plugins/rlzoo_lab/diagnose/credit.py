"""Measures of each step that the doctor reads: whether scores agree with correctness, and whether
advantages and the loss's gradient follow them. A run finds them by an entry point of the group
`rlzoo.measures`; the step itself needs none.
"""

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from rlzoo.mdp.batch import take
from rlzoo.mdp.rules import right_rows
from rlzoo.ops import group_mean, masked_sum
from rlzoo.plugin.columns import Columns
from rlzoo.recipe.plan import Plan
from rlzoo.runs import metrics as names
from rlzoo.step.columns import loss_mask
from rlzoo.step.metrics import correlation
from rlzoo.step.update import policy_loss_gradient


def first_gradient(plan: Plan, batch: Columns, advantages: Tensor) -> Tensor:
    """d(policy loss)/d(log_probs), (B, T), of the update's first step: the ratio is 1, the
    correction and the mask of what counts are the run's. A loss that chooses tokens by `entropy`
    chooses by the batch's."""
    mask = loss_mask(plan, batch)
    columns = {
        **batch,
        "advantages": advantages,
        "response_mask": mask,
        "log_probs": batch["old_log_probs"],
    }
    weights = plan.aggregation({"response_mask": mask})
    return policy_loss_gradient(plan, columns, weights)[0]


def _noise(scores: Tensor, texts: Sequence[Hashable]) -> float | None:
    """Standard deviation of the scores of one text, as an answer to one prompt; None if no text
    comes twice."""
    number = {text: k for k, text in enumerate(dict.fromkeys(texts))}
    left = len(texts) - len(number)
    gap = scores.double() - group_mean(scores.double(), torch.tensor([number[t] for t in texts]))
    return (gap.square().sum() / left).sqrt().item() if left else None


def _pull(plan: Plan, batch: Columns) -> Tensor | None:
    """-d(policy loss)/d(log pi) at ratio 1, (B, T), its largest 1; None if advantages are all 0,
    of a loss over turns, which shares its push among a turn's tokens, and of one that reads what
    only an update makes."""
    known = {*batch, "log_probs"} - {"turn_ids"}
    if not known.issuperset(plan.policy_loss.needs) or not batch["raw_advantages"].any():
        return None
    pull = -first_gradient(plan, batch, batch["advantages"])
    return pull / pull.abs().max().clamp(min=1e-30)


RIGHT_ROWS = 64  # a verifier may be slow


def measure(plan: Plan, batch: Columns) -> dict[str, float]:
    """The measures of a step's batch, whose columns are on the host; those that do not apply are
    absent."""
    mask, total = batch["response_mask"], batch["sequence_scores"]
    every = torch.arange(0, len(mask), -(-len(mask) // RIGHT_ROWS))
    right = right_rows(plan, take(batch, every))
    asked = set(zip(batch["prompts"], map(str, batch["answers"]), strict=True))
    # A mean over each response's actions; one without any is left out.
    raw, some = batch["raw_advantages"], mask.bool()
    mean = masked_sum(raw, mask) / mask.sum(1).clamp(min=1)
    pull = _pull(plan, batch)
    follows = None if pull is None else correlation(pull[some], raw[some]) if pull.any() else 0.0
    marks = (batch["group_ids"].tolist(), batch["responses"], batch["terminated"].tolist())
    texts = list(zip(*marks, strict=True))  # one text that is cut off and one that ended are two
    found = {
        names.RIGHT: None if right is None else right.float().mean().item(),
        "response/distinct": len(set(batch["responses"])) / len(texts),
        names.DISTINCT_IN_GROUP: len(set(texts)) / len(texts),
        names.SCORE_NOISE: _noise(total, texts),
        names.PULL_CORR: follows,
        names.RIGHT_CORR: None if right is None else correlation(total[every], right),
        names.ADVANTAGE_CORR: correlation(total, mean),
        names.DISTINCT: len(asked) / len(batch["group_ids"].unique()),
    }
    return {name: x for name, x in found.items() if x is not None}
