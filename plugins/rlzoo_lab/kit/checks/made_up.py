"""Synthetic seeded batches with every column, in shapes that break faulty components.

Ragged responses, holes (observations inside a response), a full row, a row with one action, a row
with none, scattered groups, and one group of one. Outside the mask everything is 0, as in any
batch. Scores are 0/1 per response, spread over its tokens, so that outcome-based methods work and
index errors become visible.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlzoo.mdp.batch import take
from rlzoo.ops import at_last_action, masked_sum
from rlzoo.plugin.call import zero_off_mask
from rlzoo.plugin.columns import COLUMNS, KEPT_OFF_MASK

Columns = dict[str, Any]

STEPS, PROMPT = 12, 4  # T, P
BINS, PARTS = 9, 2  # K of a critic with bins, K of the rewards
GROUPS = (7, 3, 7, 40, 3, 40, 7, 5, 40, 3, 7, 40, 3)  # scattered; 5 is a group of one
SOLVED = (0.0, 0.5, 0.5, 0.8)  # how often the samples of each group are right

PER_TOKEN_REWARDS = ("rewards", "scores", "task_scores")

REWARD_COLUMNS = (*PER_TOKEN_REWARDS, "sequence_rewards", "sequence_scores", "score_components")

RIGHT = 1.0  # what a right response earns


def made_up(
    zoo: Any,
    seed: int = 0,
    *,
    mask: Tensor | None = None,
    groups: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> Columns:
    """Every column of the core and of `zoo`'s column plugins; floats are of `dtype`."""
    draw = torch.Generator().manual_seed(seed)
    groups = torch.tensor(GROUPS) if groups is None else groups
    mask = ragged(len(groups), draw) if mask is None else mask
    rows, steps = mask.shape

    def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=draw, dtype=torch.float64)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return scale * torch.randn(*shape, generator=draw, dtype=torch.float64)

    acts = mask.sum(-1) > 0  # (B,)
    truncated = (uniform(rows) < 0.4) & acts
    old = -uniform(rows, steps, low=0.05, high=4.0)
    kl = normal(rows, steps, scale=0.05)
    _, which = torch.unique(groups, return_inverse=True)
    solved = torch.tensor(SOLVED, dtype=torch.float64)[which % len(SOLVED)]
    outcome = (uniform(rows) < solved).to(torch.float64)
    scores = spread(outcome, mask, draw)
    parts = torch.stack([outcome, (uniform(rows) < 0.5).to(torch.float64)], 1)  # (B, 2)
    spare = (1 - old.exp()).square() * uniform(rows, steps)  # the tokens that were not chosen
    columns: Columns = {
        "response_mask": mask,
        "prompts": [f"{group}+{group}=" for group in groups.tolist()],
        "answers": [str(2 * group) for group in groups.tolist()],
        "responses": ["x" * int(n) for n in mask.sum(-1)],
        "response_tokens": [["x"] * int(n) for n in mask.sum(-1)],
        "prompt_ids": torch.randint(3, 90, (rows, PROMPT), generator=draw),
        "prompt_mask": torch.ones(rows, PROMPT, dtype=torch.float64),
        "response_ids": torch.randint(3, 90, (rows, steps), generator=draw),
        "response_attention": mask.flip(1).cummax(1).values.flip(1),
        "prompt_index": groups.clone(),
        "group_ids": groups.clone(),
        "terminated": ~truncated & acts,
        "truncated": truncated,
        "noise": uniform(rows, steps),
        "turn_ids": 1 + (torch.arange(steps) >= steps // 2).long().expand(rows, steps),
        "state_keys": torch.randint(1, 4, (rows, steps), generator=draw),
        "sampler_log_probs": old + normal(rows, steps, scale=0.1),
        "old_log_probs": old,
        "task_scores": scores,
        "score_components": parts,
        "score_weights": torch.tensor([1.0, 0.5], dtype=torch.float64),
        "scores": scores,
        "sequence_scores": outcome * acts,
        "ref_log_probs": old + normal(rows, steps, scale=0.3),
        "full_kl": uniform(rows, steps, high=0.3),
        "sum_pi_squared": (2 * old).exp() + spare,
        "values": uniform(rows, steps, low=0.05, high=0.95),
        "bootstrap_values": torch.where(truncated, uniform(rows, low=0.05, high=0.95), 0),
        "rewards": scores - kl,
        "raw_advantages": normal(rows, steps),
        "advantages": normal(rows, steps),
        "returns": uniform(rows, steps, low=0.05, high=0.95),
        "log_probs": old + normal(rows, steps, scale=0.2),
        "entropy": uniform(rows, steps, high=3.0),
        "value_preds": uniform(rows, steps, low=0.05, high=0.95),
        "value_logits": normal(rows, steps, BINS),
        "value_support": torch.linspace(-0.5, 1.5, BINS, dtype=torch.float64),
        "teacher_log_probs": old + normal(rows, steps, scale=0.5),
        "teacher_kl": uniform(rows, steps, high=0.5),
    }
    for name, plugin in zoo.columns.items():
        columns.setdefault(name, exotic(plugin, draw, mask))
    columns["old_entropy"] = uniform(rows, steps, high=3.0)
    for name, column in COLUMNS.items():  # one that the core has and this table not yet
        if name not in columns and name != "sequence_rewards":
            columns[name] = noise(column.shape, draw, mask)
    columns = {name: _as_in_a_batch(zoo, name, x, mask, dtype) for name, x in columns.items()}
    columns["sequence_rewards"] = masked_sum(columns["rewards"], mask)
    return columns


def _as_in_a_batch(zoo: Any, name: str, x: Any, mask: Tensor, dtype: torch.dtype) -> Any:
    """Floats of `dtype`; exact zeros off the mask, where a batch has them."""
    if not isinstance(x, Tensor):
        return x
    if shape_of(zoo, name) in ("BT", "BTK") and name not in KEPT_OFF_MASK:
        x = zero_off_mask(x, mask)
    return x.to(dtype) if x.is_floating_point() else x


def exotic(plugin: Any, draw: torch.Generator, mask: Tensor) -> Any:
    """The column of a plugin: its registered example, or seeded noise of its shape."""
    if plugin.example is not None:
        return plugin.example(draw, *mask.shape)
    return noise(plugin.shape, draw, mask)


def noise(shape: str, draw: torch.Generator, mask: Tensor) -> Any:
    rows, steps = mask.shape
    if shape == "list":
        return [f"item {i}" for i in range(rows)]
    size = {"B": (rows,), "BT": (rows, steps), "BTK": (rows, steps, BINS), "K": (BINS,),
            "BK": (rows, PARTS), "BP": (rows, PROMPT)}  # fmt: skip
    return torch.randn(size[shape], generator=draw, dtype=torch.float64)


def ragged(rows: int, draw: torch.Generator) -> Tensor:
    """A mask (B, T): a full row, one action, none, one with holes, and the rest as drawn."""
    length = torch.randint(2, STEPS + 1, (rows, 1), generator=draw)
    mask = torch.arange(STEPS) < length
    hole = torch.rand(rows, STEPS, generator=draw) < 0.25
    mask &= ~(hole & (torch.arange(rows) % 3 == 0)[:, None])  # a third of the rows
    mask[:, 0] |= ~mask.any(1)
    special = torch.zeros(4, STEPS, dtype=torch.bool)
    special[0] = True
    special[1, 0] = True
    special[3, [0, 1, 4, 5, 8]] = True  # two holes
    picks = torch.randperm(rows, generator=draw)[:4]
    mask[picks] = special[: len(picks)]
    return mask.to(torch.float64)


def spread(total: Tensor, mask: Tensor, draw: torch.Generator) -> Tensor:
    """Scores (B, T) that sum to total (B,) exactly: sixteenths which cancel, total at the end."""
    parts = torch.randint(-8, 9, mask.shape, generator=draw).to(torch.float64) / 16 * mask
    return parts + at_last_action(total - parts.sum(-1), mask)


def shape_of(zoo: Any, name: str) -> str:
    if name in COLUMNS:
        return COLUMNS[name].shape
    return zoo.columns[name].shape if name in zoo.columns else ""


def rows_of(zoo: Any, columns: Mapping[str, Any], index: Tensor) -> Columns:
    """Some rows, in the order of `index` (R,)."""
    whole = {name: x for name, x in columns.items() if shape_of(zoo, name) == "K"}
    return take({n: x for n, x in columns.items() if n not in whole}, index) | whole


def rows_replaced(zoo: Any, columns: Columns, other: Columns, replace: Tensor) -> Columns:
    """`columns` with the rows `replace` (B,) bool taken from `other`; the groups stay."""
    mixed: Columns = {}
    for name, x in columns.items():
        if name in ("group_ids", "prompt_index") or shape_of(zoo, name) == "K":
            mixed[name] = x
        elif isinstance(x, list):
            pairs = zip(x, other[name], replace.tolist(), strict=True)
            mixed[name] = [b if swap else a for a, b, swap in pairs]
        else:
            mixed[name] = torch.where(replace.view(-1, *[1] * (x.ndim - 1)), other[name], x)
    return mixed


def widened(zoo: Any, columns: Columns, at: int, count: int, fill: float = 0.0) -> Columns:
    """`count` additional positions with mask 0 before position `at`; `fill` is their value."""
    wide: Columns = dict(columns)
    for name, x in columns.items():
        if shape_of(zoo, name) not in ("BT", "BTK"):
            continue
        filler = x.new_zeros(x.shape[0], count, *x.shape[2:])
        if name == "response_attention":
            filler = x[:, at : at + 1].expand(-1, count) if at < x.shape[1] else filler
        elif name != "response_mask" and (x.is_floating_point() or fill == fill):
            filler = filler + fill if x.is_floating_point() else filler + int(fill)
        wide[name] = torch.cat([x[:, :at], filler, x[:, at:]], 1)
    return wide


def paid_more(
    columns: Columns, row: int, at: int, amount: float, *, in_sum: bool = True
) -> Columns:
    """`columns` in which one action's reward, and its response's sum, is greater by `amount`."""
    more = {n: x.clone() if isinstance(x, Tensor) else x for n, x in columns.items()}
    for name in PER_TOKEN_REWARDS:
        more[name][row, at] += amount
    if in_sum:
        for name in ("sequence_rewards", "sequence_scores"):
            more[name][row] += amount
        more["score_components"][row, 0] += amount
    return more


def paid(columns: Columns, outcome: Tensor) -> Columns:
    """`columns` in which each response gets `outcome` (B,) at its last action, without KL."""
    mask = columns["response_mask"]
    outcome = outcome.to(mask.dtype)
    return {
        **columns,
        **dict.fromkeys(PER_TOKEN_REWARDS, at_last_action(outcome, mask)),  # (B, T)
        **dict.fromkeys(("sequence_rewards", "sequence_scores"), outcome),
        "score_components": outcome[:, None].expand(-1, PARTS).clone(),
    }
