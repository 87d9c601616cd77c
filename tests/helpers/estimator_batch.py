"""A made-up batch with every column that an estimator may need."""

import torch

from helpers.estimator_oracles import all_runs
from rlzoo.ops import masked_sum

F64 = torch.float64


def batch(seed, rows=9, steps=7, kind="holes"):
    """Every column an estimator may ask for: float64, scattered groups, some rows empty."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=draw, dtype=F64)

    def whole(high, *shape):
        return torch.randint(0, high, shape, generator=draw)

    mask = (torch.arange(steps) < whole(steps + 1, rows, 1)).to(F64)
    if kind == "holes":
        mask *= (torch.rand(rows, steps, generator=draw) < 0.7).to(F64)
    elif kind == "full":
        mask = torch.ones(rows, steps, dtype=F64)
    old = -3 * torch.rand(rows, steps, generator=draw, dtype=F64) - 0.05
    columns = {
        "response_mask": mask,
        "group_ids": whole(max(1, rows // 3), rows) * 17 - 5,
        "rewards": normal(rows, steps) * mask,
        "values": normal(rows, steps) * mask,
        "bootstrap_values": normal(rows) * whole(2, rows),
        "old_log_probs": old * mask,
        "sampler_log_probs": (old + 0.5 * normal(rows, steps)) * mask,
        "sum_pi_squared": torch.rand(rows, steps, generator=draw, dtype=F64) * mask,
        "score_components": torch.stack([normal(rows), whole(2, rows).to(F64)], 1),
        "score_weights": torch.tensor([1.0, 0.3], dtype=F64),
        "sequence_scores": whole(2, rows).to(F64),
        "greedy_scores": normal(rows),
        "branch_values": normal(rows, steps) * mask,
        "branch_steps": whole(2, rows, steps).cumsum(1) * mask,
        "implicit_rewards": normal(rows, steps) * mask,
        "turn_ids": (1 + whole(2, rows, steps).cumsum(1)) * mask.long(),
        "state_keys": whole(3, rows, steps) * mask.long(),
        "optimal_values": normal(rows),
        "history": normal(rows),
    }
    columns["sequence_rewards"] = masked_sum(columns["rewards"], mask)
    # A step's tokens share the value of the state in which it begins.
    for i, t, s in all_runs(columns["branch_steps"], mask):
        columns["branch_values"][i, t] = columns["branch_values"][i, s]
    return columns
