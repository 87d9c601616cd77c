"""One row of a batch as a `Trace`: its columns and the output of each estimator."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import UsageError
from rlzoo.mdp.batch import Batch
from rlzoo.mdp.rules import token_texts
from rlzoo.recipe.plan import Plan
from rlzoo.step.columns import add_advantages, loss_mask
from rlzoo_lab.diagnose.trace.explain import (
    explain_credit,
    explain_policy_loss,
    explain_shared,
    td_errors,
)
from rlzoo_lab.diagnose.trace.trace import CREDITED, Credit, Numbers, Token, Trace
from rlzoo_lab.view.numbers import number, option_text

Cut = Callable[[Tensor], Numbers]  # the row's numbers of a column (B, T), None off its actions


def check_row(row: int, rows: int) -> None:
    if not 0 <= row < rows:
        raise UsageError(f"--row {row}: the batch has responses 0 to {rows - 1}")


@torch.no_grad()
def make_trace(
    source: str,
    batch: Batch,
    plans: Sequence[Plan],
    row: int,
    *,
    kl_coef: float | None,
    tokenizer: Any = None,
    texts: Sequence[str] | None = None,
    kl: Tensor | None = None,
    scored: bool = True,
    made: tuple[Plan, Mapping[str, Tensor]] | None = None,
) -> Trace:
    """Trace row `row` of a batch without advantages, which each plan's estimator adds.

    tokenizer: None for typed numbers; `texts` are then the row's tokens, if any were typed.
    kl: (B, T) if typed; otherwise it is computed if the batch has the columns for it.
    scored: whether the correct answer is known; if not, no estimator is called. No estimator is
        called for typed advantages either.
    made: a plan, and the columns `CREDITED` that it computed.
    """
    check_row(row, batch.rows)
    seen = batch["response_attention" if "response_attention" in batch else "response_mask"][row]
    length = int(seen.nonzero().max()) + 1 if bool(seen.any()) else 0
    action = batch["response_mask"][row, :length].bool().tolist()

    def cut(column: Tensor) -> Numbers:
        values = column[row, :length].tolist()
        return [v if a else None for v, a in zip(values, action, strict=True)]

    penalty = "the KL" if kl is not None or not plans[0].kl else plans[0].kl.name
    kl = _kl(plans[0], batch) if kl is None else kl
    if tokenizer is not None:
        texts = _texts(tokenizer, batch, row, length)
    texts = (texts or [""] * length)[:length]
    traced = Trace(
        source=source,
        row=row,
        rows=batch.rows,
        prompt=batch["prompts"][row] if "prompts" in batch else None,
        answer=batch["answers"][row] if "answers" in batch and scored else None,
        score=batch["sequence_scores"][row].item() if scored and "scores" in batch else None,
        tokens=[Token(t, text, action[t]) for t, text in enumerate(texts)],
        columns={name: cut(x) for name, x in _columns(batch, kl, scored).items()},
        bootstrap=batch["bootstrap_values"][row].item() if "values" in batch else None,
        ending=_ending(plans[0], batch, row),
        credits=[],
    )
    if scored:
        traced.derivations = explain_shared(
            plans[0], batch, row, kl=kl, kl_coef=kl_coef, penalty=penalty
        )
    if "advantages" in batch:
        traced.credits.append(_typed_credit(plans[0], batch, row, cut))
    elif scored:
        for plan, label in zip(plans, _labels(plans), strict=True):
            whole = copy.deepcopy(batch)
            if made and _credit_key(plan) == _credit_key(made[0]) and made[1]:
                whole.update(made[1])
            else:
                add_advantages(plan, whole)
            traced.credits.append(_credit(plan, whole, row, label, cut))
    return traced


def _columns(batch: Batch, kl: Tensor | None, scored: bool) -> dict[str, Tensor]:
    """The part of a batch that is shown for every estimator."""
    names = ["log_probs", "old_log_probs", "ref_log_probs", "values"]
    columns = {name: batch[name] for name in names if name in batch}
    if kl is not None:
        columns["kl"] = kl
    typed = "response_ids" not in batch
    there = ["scores", "rewards"] if scored else []
    if typed and "rewards" in batch and torch.equal(batch["scores"], batch["rewards"]):
        there.remove("scores")
    columns |= {name: batch[name] for name in there if name in batch}
    if "log_probs" in batch and "old_log_probs" in batch:
        columns["ratio"] = (batch["log_probs"] - batch["old_log_probs"]).exp()
    return columns


def _credit_key(plan: Plan) -> tuple[Any, ...]:
    """The settings other than the batch on which advantages depend."""
    config = plan.recipe.config
    return plan.estimator.name, dict(plan.estimator.options), config.whiten, config.whiten_ddof


def _typed_credit(plan: Plan, batch: Batch, row: int, cut: Cut) -> Credit:
    if lost := [name for name in plan.policy_loss.needs if name not in batch]:
        raise UsageError(f"policy_loss={plan.policy_loss.name} needs --{' and --'.join(lost)}")
    loss, _ = plan.policy_loss({**batch, "response_mask": loss_mask(plan, batch)})
    return Credit(
        label="typed",
        name=plan.policy_loss.name,
        options=dict(plan.policy_loss.options),
        summary=plan.policy_loss.component.summary,
        columns={"advantages": cut(batch["advantages"]), "policy_loss": cut(loss)},
        clipped=_clipped(plan, batch, cut),
        whitened="",
        derivations=[explain_policy_loss(plan, batch, row, loss)],
    )


def _credit(plan: Plan, batch: Batch, row: int, label: str, cut: Cut) -> Credit:
    columns = {n: batch[n] for n in CREDITED if n in batch}
    if "values" in plan.estimator.needs:
        columns = {"delta": td_errors(batch, plan.estimator.gamma), **columns}
    return Credit(
        label=label,
        name=plan.estimator.name,
        options=dict(plan.estimator.options),
        summary=plan.estimator.component.summary,
        columns={name: cut(column) for name, column in columns.items()},
        clipped=_clipped(plan, batch, cut),
        whitened=_whitened(plan, batch, row),
        derivations=explain_credit(plan, batch, row, columns),
    )


def _kl(plan: Plan, batch: Batch) -> Tensor | None:
    """The recipe's penalty at rollout (B, T); without one the log-ratio to a reference."""
    if "ref_log_probs" not in batch or "old_log_probs" not in batch:
        return None
    if plan.kl and all(n in batch for n in plan.kl.needs if n != "log_probs"):
        return plan.kl({**batch, "log_probs": batch["old_log_probs"]})
    return batch["old_log_probs"] - batch["ref_log_probs"]


def _clipped(plan: Plan, batch: Batch, cut: Cut) -> list[str] | None:
    """How the policy loss clips each token, by its metrics `*clipfrac*` and `pg_kept`, in a word:
    `no`, `yes`, the kind of clipping if the loss distinguishes kinds, or `left out`."""
    if "log_probs" not in batch or any(n not in batch for n in plan.policy_loss.needs):
        return None
    _, metrics = plan.policy_loss({**batch, "response_mask": loss_mask(plan, batch)})
    marks = {
        n.partition("clipfrac")[2].strip("_"): cut(m) for n, m in metrics.items() if "clipfrac" in n
    }

    if "pg_kept" in metrics:
        marks["left out"] = cut(1 - metrics["pg_kept"])

    def word(values: tuple[float | None, ...]) -> str:
        if all(v is None for v in values):
            return ""
        kinds = [kind for kind, v in zip(marks, values, strict=True) if v and kind]
        return ", ".join(kinds) or ("yes" if any(values) else "no")

    return [word(values) for values in zip(*marks.values(), strict=True)] if marks else None


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
    """Short names that distinguish the plans' estimators: options only if they differ."""
    labels = []
    for plan in plans:
        same = [p for p in plans if p.estimator.name == plan.estimator.name]
        told = [
            f"{name}={option_text(value)}"
            for name, value in plan.estimator.options.items()
            if any(p.estimator.options[name] != value for p in same)
        ]
        labels.append(" ".join([plan.estimator.name, *told]))
    return labels


def _ending(plan: Plan, batch: Batch, row: int) -> str:
    if "bootstrap_values" not in batch:
        return ""
    after = number(batch["bootstrap_values"][row].item())
    if bool(batch["truncated"][row]):
        mode = plan.recipe.config.rollout.truncation
        how = f"was cut off at the length limit (rollout.truncation={mode})"
        how = how if "response_ids" in batch else "continues"
    else:
        how = "ended"
    return f"after the last token it {how}, so the value of what follows is {after}"


def _texts(tokenizer: Any, batch: Batch, row: int, length: int) -> list[str]:
    ids = batch["response_ids"][row, :length].tolist()
    texts = token_texts(tokenizer, ids)
    return [texts[i] for i in ids]
