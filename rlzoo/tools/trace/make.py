import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import TraceError
from rlzoo.lm.models import Models
from rlzoo.mdp.batch import Batch
from rlzoo.ops import td_lambda
from rlzoo.recipe.plan import Plan
from rlzoo.rollout.advantages import add_advantages, loss_mask
from rlzoo.show.numbers import number
from rlzoo.show.text import readable
from rlzoo.tools.trace.explain import explain_credit, explain_shared
from rlzoo.tools.trace.trace import Credit, Numbers, Token, Trace

CREDITED = ("raw_advantages", "advantages", "returns")  # columns that an estimator makes


# ---------------------------------------------------------------- a row of a batch


def _credit_key(plan: Plan) -> str:
    config = plan.recipe.config
    options = sorted(plan.estimator.options.items())
    return repr((plan.estimator.name, options, config.whiten, config.whiten_ddof))


@torch.no_grad()
def make_trace(
    source: str,
    batch: Batch,
    plans: Sequence[Plan],
    row: int,
    *,
    kl_coef: float | None,
    models: Models | None = None,
    scored: bool = True,
    made: Mapping[str, Mapping[str, Tensor]] | None = None,
) -> Trace:
    """Row `row` of a batch that has everything but advantages, which each plan's estimator adds.

    made: advantages and returns that are there already, by `_credit_key`.
    """
    if not 0 <= row < batch.rows:
        raise TraceError(f"--row {row}: the batch has responses 0 to {batch.rows - 1}")
    plan = plans[0]
    kl = _kl(plan, batch)
    seen = batch["response_attention" if "response_attention" in batch else "response_mask"]
    length = int(seen[row].nonzero().max()) + 1 if bool(seen[row].any()) else 0
    action = batch["response_mask"][row, :length].bool().tolist()

    def cut(column: Tensor) -> Numbers:
        values = column[row, :length].tolist()
        return [v if a else None for v, a in zip(values, action, strict=True)]

    columns: dict[str, Tensor] = {}
    for name in ("log_probs", "old_log_probs", "ref_log_probs"):
        if name in batch:
            columns[name] = batch[name]
    if kl is not None:
        columns["kl"] = kl
    if scored and (models or not torch.equal(batch["scores"], batch["rewards"])):
        columns["scores"] = batch["scores"]
    if scored:
        columns["rewards"] = batch["rewards"]
    if "values" in batch:
        columns["values"] = batch["values"]
    if "log_probs" in batch and "old_log_probs" in batch:
        columns["ratio"] = (batch["log_probs"] - batch["old_log_probs"]).exp()
    texts = _texts(models, batch, row, length)
    traced = Trace(
        source=source,
        row=row,
        rows=batch.rows,
        prompt=batch["prompts"][row] if "prompts" in batch else None,
        answer=batch["answers"][row] if "answers" in batch and scored else None,
        score=batch["sequence_scores"][row].item() if scored else None,
        tokens=[Token(t, text, action[t]) for t, text in enumerate(texts)],
        columns={name: cut(column) for name, column in columns.items()},
        bootstrap=batch["bootstrap_values"][row].item() if "values" in batch else None,
        ending=_ending(plan, batch, row),
        credits=[],
    )  # fmt: skip
    if not scored:
        return traced
    traced.derivations = explain_shared(plan, batch, row, kl=kl, kl_coef=kl_coef)
    labels = _labels(plans)
    for plan, label in zip(plans, labels, strict=True):
        whole = copy.deepcopy(batch)
        stored = (made or {}).get(_credit_key(plan))
        if stored:
            whole.update(stored)
        else:
            add_advantages(plan, whole)
        traced.credits.append(_credit(plan, whole, row, label, cut))
    return traced


def _credit(plan: Plan, batch: Batch, row: int, label: str, cut: Any) -> Credit:
    columns = {n: batch[n] for n in CREDITED if n in batch}
    if "values" in plan.estimator.needs:
        columns = {"delta": delta(plan, batch), **columns}
    marks = _clipped(plan, batch)
    clipped = None
    if marks is not None:
        per_mark = {word: cut(mark) for word, mark in marks.items()}
        clipped = [
            _mark({w: m[t] for w, m in per_mark.items()})
            for t in range(len(cut(columns["advantages"])))
        ]
    return Credit(
        label=label,
        name=plan.estimator.name,
        options=dict(plan.estimator.options),
        summary=plan.estimator.component.summary,
        columns={name: cut(column) for name, column in columns.items()},
        clipped=clipped,
        whitened=_whitened(plan, batch, row),
        derivations=explain_credit(plan, batch, row, columns),
    )


def delta(plan: Plan, batch: Mapping[str, Any]) -> Tensor:
    """delta_t = r_t + gamma V_next - V_t (B, T), gamma the estimator's or 1."""
    gamma = plan.gamma
    return td_lambda(
        batch["rewards"], batch["values"], batch["bootstrap_values"], batch["response_mask"],
        gamma=gamma, lam=0.0,
    )  # fmt: skip


def _kl(plan: Plan, batch: Batch) -> Tensor | None:
    """The recipe's penalty at rollout (B, T); without one the log-ratio to a reference."""
    if "ref_log_probs" not in batch or "old_log_probs" not in batch:
        return None
    if plan.kl and all(n in batch for n in plan.kl.needs if n != "log_probs"):
        return plan.kl({**batch, "log_probs": batch["old_log_probs"]})
    return batch["old_log_probs"] - batch["ref_log_probs"]


def _clipped(plan: Plan, batch: Batch) -> dict[str, Tensor] | None:
    """What the policy loss says of clipping: word -> (B, T), from its metrics `*clipfrac*`."""
    if "log_probs" not in batch or any(n not in batch for n in plan.policy_loss.needs):
        return None
    mask = loss_mask(plan, batch)
    _, metrics = plan.policy_loss({**batch, "response_mask": mask})
    found = {
        n.partition("clipfrac")[2].strip("_"): m for n, m in metrics.items() if "clipfrac" in n
    }
    return found or None


def _mark(values: Mapping[str, float | None]) -> str:
    """`no`, `yes`, or the kind of clipping where the loss tells kinds apart."""
    if all(v is None for v in values.values()):
        return ""
    kinds = [word for word, v in values.items() if v and word]
    return ", ".join(kinds) or ("yes" if any(values.values()) else "no")


def _whitened(plan: Plan, batch: Batch, row: int) -> str:
    config = plan.recipe.config
    if config.whiten == "none":
        return ""
    rows = batch["response_mask"] > 0
    if config.whiten == "group":
        rows = rows[batch["group_ids"] == batch["group_ids"][row]]
    n = int(rows.sum())
    return f"whitened over the {n:,} action token{'s' * (n != 1)} of the {config.whiten}"


def _labels(plans: Sequence[Plan]) -> list[str]:
    """Short names that tell the plans' estimators apart: options only where they differ."""
    labels = []
    for plan in plans:
        same = [p for p in plans if p.estimator.name == plan.estimator.name]
        told = [
            f"{name}={_short(value)}"
            for name, value in plan.estimator.options.items()
            if any(p.estimator.options[name] != value for p in same)
        ]
        labels.append(" ".join([plan.estimator.name, *told]))
    return labels


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _ending(plan: Plan, batch: Batch, row: int) -> str:
    if "bootstrap_values" not in batch:
        return ""
    after = number(batch["bootstrap_values"][row].item())
    if bool(batch["truncated"][row]):
        mode = plan.recipe.config.rollout.truncation
        how = f"was cut off at the length limit (rollout.truncation={mode})"
        how = how if "response_ids" in batch else "goes on"
    else:
        how = "ended"
    return f"after the last token it {how}, so what follows is worth {after}"


def _texts(models: Models | None, batch: Batch, row: int, length: int) -> list[str]:
    if models is None:
        return [""] * length
    tokenizer = models.tokenizer
    ids = batch["response_ids"][row, :length].tolist()
    pieces = tokenizer.convert_ids_to_tokens(ids)
    special = set(tokenizer.all_special_ids)
    return [
        piece if i in special else readable(tokenizer.decode([i], skip_special_tokens=False), piece)
        for i, piece in zip(ids, pieces, strict=True)
    ]
