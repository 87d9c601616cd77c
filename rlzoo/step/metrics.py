"""The metrics of a batch: a flat mapping, with verl's names where verl has the same metric."""

from collections.abc import Mapping

import torch
from torch import Tensor

from rlzoo.mdp.batch import Batch
from rlzoo.ops import (
    group_degenerate,
    group_mean,
    masked_mean,
    masked_sum,
    masked_var,
    td_lambda,
)
from rlzoo.recipe.plan import Plan
from rlzoo.runs import metrics as names


def _spread(name: str, x: Tensor, std: Tensor) -> dict[str, float]:
    """mean, std, min and max of the numbers x (N,)."""
    return {
        f"{name}/mean": x.mean().item(),
        f"{name}/std": std.item(),
        f"{name}/min": x.min().item(),
        f"{name}/max": x.max().item(),
    }


def correlation(x: Tensor, y: Tensor) -> float | None:
    """Correlation of two (N,); None if one of them does not vary."""
    x, y = (z.double() - z.double().mean() for z in (x, y))
    size = (x.square().sum() * y.square().sum()).sqrt().item()
    return (x * y).sum().item() / size if size > 1e-9 * len(x) else None


def critic_metrics(plan: Plan, batch: Mapping[str, Tensor]) -> dict[str, float]:
    """V against Monte Carlo returns G: in all, and at the prompt."""
    mask, values = batch["response_mask"], batch["values"]
    if not mask.any():
        return {}
    to_go = td_lambda(batch["rewards"], values, batch["bootstrap_values"], mask,
                      gamma=plan.estimator.gamma, lam=1)  # fmt: skip
    v, g, place = (x[mask.bool()].double() for x in (values, values + to_go, mask.cumsum(1) - 1))
    # Against its own lambda-returns a critic would be judged by itself.
    out = {names.EXPLAINED_VARIANCE: explained(v, g)}
    out[names.VALUE_BIAS] = float((v - g).mean())
    trust = correlation(batch["raw_advantages"][batch["response_mask"].bool()], g - v)
    out |= {} if trust is None else {names.MC_CORR: trust}
    v, g = v[place == 0], g[place == 0]  # of rows that have an action
    groups = batch["group_ids"][batch["response_mask"].any(1)]
    out[names.PROMPT_EXPLAINED] = explained(v, g)
    if len(groups) > len(groups.unique()):  # several samples of a prompt: one state, many returns
        within = (g - group_mean(g, groups)).square().sum() / (len(g) - len(groups.unique()))
        spread = float(g.var()) if len(g) > 1 else 0.0
        out[names.PROMPT_CEILING] = max(0.0, 1 - float(within) / spread) if spread > 1e-12 else 0.0
    return out


def batch_metrics(plan: Plan, batch: Batch) -> dict[str, float]:
    """Statistics of the rollout and of the estimator's advantages."""
    mask = batch["response_mask"]
    out = {
        names.REWARD: batch["sequence_scores"].mean().item(),
        names.TRUNCATED: batch["truncated"].float().mean().item(),
        "response/eos": batch["terminated"].float().mean().item(),
    }
    rows = {
        "score": batch["sequence_scores"],
        "rewards": batch["sequence_rewards"],
        "response_length": mask.sum(1),
        "prompt_length": batch["prompt_mask"].sum(1),
    }
    rows |= {"turns": batch["turn_ids"].amax(1)} if "turn_ids" in batch else {}
    for name, x in rows.items():
        out |= _spread(name, x.float(), x.float().std(correction=0))
    # A group is counted once: weigh each row by one over its group's size.
    _, inverse, counts = torch.unique(batch["group_ids"], return_inverse=True, return_counts=True)

    def flat(scores: Tensor) -> float:
        """The share of groups with equal scores."""
        alike = group_degenerate(scores, batch["group_ids"]).float()
        return ((alike / counts[inverse]).sum() / len(counts)).item()

    out[names.NO_SIGNAL] = flat(batch["sequence_scores"])
    if len(plan.rewards) > 1:
        for name, part in zip(plan.rewards, batch["score_components"].unbind(1), strict=True):
            out |= {f"score/{name}": part.mean().item(), f"{names.NO_SIGNAL}/{name}": flat(part)}
    for name in ("advantages", "raw_advantages", "returns", "values"):
        if name in batch and mask.any():
            std = masked_var(batch[name], mask).sqrt()
            out |= _spread(name, batch[name][mask.bool()], std)
    if "values" in batch:
        out |= critic_metrics(plan, batch)
    for name, other in ((names.REF_KL, "ref_log_probs"), ("actor/teacher_kl", "teacher_log_probs")):
        if other in batch and not (plan.own_reference and other == "ref_log_probs"):
            out[name] = masked_mean(batch["old_log_probs"] - batch[other], mask).item()
    if "ref_log_probs" in batch and not plan.own_reference:
        gap = batch["old_log_probs"] - batch["ref_log_probs"]
        out[names.REF_KL_PER_RESPONSE] = masked_sum(gap, mask).mean().item()
    return out


def explained(values: Tensor, returns: Tensor) -> float:
    """1 - Var(G - V) / Var(G) of values V and returns G (N,); 0 if G does not vary."""
    spread = _variance(returns)
    return 1 - _variance(returns - values) / spread if spread >= 1e-12 else 0.0


def _variance(x: Tensor) -> float:
    return float((x - float(x.sum() / len(x))).square().sum() / len(x))
