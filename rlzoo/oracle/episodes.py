import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import RlzooError
from rlzoo.ops import at_last_action, masked_sum
from rlzoo.oracle.oracle import Oracle
from rlzoo.oracle.tree import MAX_EPISODES

# ---------------------------------------------------------------- episodes as columns


@dataclass(frozen=True)
class Episodes:
    """Every complete episode, and each outcome of its coins, as a row.

    states, actions: (B, T) int64, -1 off the mask; scores: (B, T); probability: (B,), sums to 1;
    end: (B,) the state in which a row was cut off, -1 where it ended by itself.
    """

    states: Tensor
    actions: Tensor
    scores: Tensor
    probability: Tensor
    prompt: Tensor
    end: Tensor

    @property
    def mask(self) -> Tensor:
        return self.states >= 0

    def select(self, rows: Tensor) -> "Episodes":
        """Some rows (R,), any number of times each."""
        parts = (self.states, self.actions, self.scores, self.probability, self.prompt, self.end)
        return Episodes(*(x[rows] for x in parts))


def enumerate_episodes(oracle: Oracle, cut: int | None = None) -> Episodes:
    """All episodes; `cut`: the length at which rows are truncated though the world goes on."""
    tree = oracle.tree
    at = torch.arange(tree.prompts)
    states = actions = torch.empty(tree.prompts, 0, dtype=torch.long)
    scores = torch.empty(tree.prompts, 0, dtype=torch.float64)
    log_p = torch.full((tree.prompts,), -math.log(tree.prompts), dtype=torch.float64)
    prompt, last = at, at
    for _ in range(min(cut or tree.horizon, tree.horizon)):
        # Each living row goes on in V ways, and in two of each where a coin is tossed.
        choices = torch.arange(tree.vocabulary)
        row, choice = (x.reshape(-1) for x in torch.meshgrid(_rows(at), choices, indexing="ij"))
        alive = at[row] >= 0
        keep = alive | (choice == 0)
        row, choice = row[keep], torch.where(alive, choice, -1)[keep]
        here = at[row].clamp(min=0)
        coin = torch.where(choice >= 0, oracle.coin[here, choice.clamp(min=0)], 0)
        sides = torch.where(coin > 0, 2, 1)
        side = 1 - 2 * (torch.arange(int(sides.sum())) - _repeat(sides.cumsum(0) - sides, sides))
        row, choice, here, coin = (_repeat(x, sides) for x in (row, choice, here, coin))
        lives = choice >= 0
        if len(row) > MAX_EPISODES:
            raise RlzooError(
                f"too many episodes to enumerate: more than {MAX_EPISODES:,} at vocabulary "
                f"{tree.vocabulary}, horizon {tree.horizon}: lower --vocabulary, --horizon or "
                "--prompts"
            )
        pick = choice.clamp(min=0)
        reward = oracle.rewards[here, pick] + torch.where(coin > 0, side * coin, 0)
        states = torch.cat([states[row], torch.where(lives, here, -1)[:, None]], 1)
        actions = torch.cat([actions[row], choice[:, None]], 1)
        scores = torch.cat([scores[row], torch.where(lives, reward, 0)[:, None]], 1)
        step = oracle.log_pi[here, pick] - math.log(2) * (coin > 0).double()
        log_p = log_p[row] + torch.where(lives, step, 0)
        prompt = prompt[row]
        last = torch.where(lives, oracle.tree.child[here, pick], -1)
        at = last
    return Episodes(states, actions, scores, log_p.exp(), prompt, last)


def _rows(x: Tensor) -> Tensor:
    return torch.arange(len(x))


def _repeat(x: Tensor, times: Tensor) -> Tensor:
    return x.repeat_interleave(times)


def make_columns(
    oracle: Oracle,
    episodes: Episodes,
    critic: Tensor,
    *,
    truncation: str = "bootstrap",
    truncation_penalty: float = 0.0,
    kl: Callable[[Mapping[str, Any]], Tensor] | None = None,
    kl_spread: str = "token",
) -> dict[str, Any]:
    """What a rollout of these episodes would hold, under the critic's values (S,).

    kl: a bound KL penalty that enters the reward, times the oracle's coefficient.
    """
    mask = episodes.mask
    real = mask.double()
    state, action = episodes.states.clamp(min=0), episodes.actions.clamp(min=0)

    def at(table: Tensor) -> Tensor:
        """(B, T) a table's entry at each step: (S,) by state, (S, V) by choice."""
        return torch.where(mask, table[state] if table.ndim == 1 else table[state, action], 0)

    truncated = episodes.end >= 0
    scores = episodes.scores
    if truncation == "penalty":
        scores = scores - at_last_action(truncation_penalty * truncated.double(), mask)
    bootstrap = torch.where(truncated, critic[episodes.end.clamp(min=0)], 0)
    total = masked_sum(scores, mask)
    full = (oracle.pi * oracle.log_ratio).sum(-1)
    pieces = [text_of(row) for row in episodes.actions.tolist()]
    columns: dict[str, Any] = {
        "response_mask": real,
        "response_attention": real,
        "response_ids": action,
        "prompt_ids": oracle.tree.vocabulary + episodes.prompt[:, None],
        "prompt_mask": torch.ones(len(mask), 1, dtype=torch.float64),
        "prompt_index": episodes.prompt,
        "group_ids": episodes.prompt,
        "prompts": [f"prompt {i}" for i in episodes.prompt.tolist()],
        "answers": [None] * len(mask),
        "responses": ["".join(row) for row in pieces],
        "response_tokens": pieces,
        "terminated": ~truncated,
        "truncated": truncated,
        "sampler_log_probs": at(oracle.log_pi),
        "old_log_probs": at(oracle.log_pi),
        "ref_log_probs": at(oracle.reference.log_softmax(-1)),
        "full_kl": at(full),
        "sum_pi_squared": at(oracle.pi.square().sum(-1)),
        "task_scores": scores,
        "scores": scores,
        "sequence_scores": total,
        "score_components": total[:, None],
        "score_weights": torch.ones(1, dtype=torch.float64),
        "values": at(critic),
        "bootstrap_values": bootstrap if truncation == "bootstrap" else torch.zeros_like(total),
    }
    rewards = scores
    if kl is not None:
        penalty = kl({**columns, "log_probs": columns["old_log_probs"]})
        if kl_spread == "last":
            penalty = at_last_action(masked_sum(penalty, mask), mask)
        rewards = scores - oracle.kl_coef * penalty
    columns["rewards"] = rewards
    columns["sequence_rewards"] = masked_sum(rewards, mask)
    return columns


def text_of(tokens: list[int]) -> list[str]:
    """A letter for each token, none for EOS or padding; only what asks for texts sees them."""
    return [chr(96 + t) if t > 0 else "" for t in tokens if t >= 0]
