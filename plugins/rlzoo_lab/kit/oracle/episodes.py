"""All complete episodes of a small world as rows, with the columns of a rollout."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import RlzooError
from rlzoo.ops import at_last_action, less_penalty, masked_sum
from rlzoo.plugin.call import call
from rlzoo_lab.kit.oracle.oracle import Oracle

MAX_EPISODES = 200_000  # a second or so for an estimator


@dataclass(frozen=True)
class EpisodeTable:
    """Every complete episode, and each outcome of its coins, as a row.

    states, actions: (B, T) int64, -1 off the mask; scores: (B, T); probability: (B,), sums to 1;
    end: (B,) the state in which a row was cut off, or -1 if it ended with EOS.
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

    def reached(self, states: int) -> Tensor:
        """(states,) whether any row visits the state before rows are truncated."""
        reached = torch.zeros(states, dtype=torch.bool)
        reached[self.states[self.mask]] = True
        return reached


def enumerate_episodes(oracle: Oracle, cut: int | None = None) -> EpisodeTable:
    """All episodes; `cut`: the length at which rows are truncated although the world continues."""
    tree = oracle.tree
    at = prompt = torch.arange(tree.prompts)
    states = actions = torch.empty(tree.prompts, 0, dtype=torch.long)
    scores = torch.empty(tree.prompts, 0, dtype=torch.float64)
    log_p = torch.full((tree.prompts,), -math.log(tree.prompts), dtype=torch.float64)
    for _ in range(min(cut or tree.horizon, tree.horizon)):
        # Each living row continues in V ways, and in two of each where a coin is tossed.
        ways = torch.where(at >= 0, tree.vocabulary, 1)
        row, choice = _numbered(ways)
        here, alive = at[row].clamp(min=0), at[row] >= 0
        tosses = alive & (oracle.coin[here, choice] > 0)
        again, tails = _numbered(1 + tosses.long())
        row, choice, here, alive, tosses = (x[again] for x in (row, choice, here, alive, tosses))
        if len(row) > MAX_EPISODES:
            raise RlzooError(
                f"too many episodes to enumerate: more than {MAX_EPISODES:,} at vocabulary "
                f"{tree.vocabulary}, horizon {tree.horizon}. Lower --vocabulary, --horizon or "
                "--prompts"
            )
        coin = torch.where(tosses, (1 - 2 * tails) * oracle.coin[here, choice], 0)
        reward = torch.where(alive, oracle.rewards[here, choice] + coin, 0)
        step = oracle.log_pi[here, choice] - math.log(2) * tosses.double()
        states = torch.cat([states[row], torch.where(alive, here, -1)[:, None]], 1)
        actions = torch.cat([actions[row], torch.where(alive, choice, -1)[:, None]], 1)
        scores = torch.cat([scores[row], reward[:, None]], 1)
        log_p = log_p[row] + torch.where(alive, step, 0)
        prompt = prompt[row]
        at = torch.where(alive, tree.child[here, choice], -1)
    return EpisodeTable(states, actions, scores, log_p.exp(), prompt, at)


def _numbered(times: Tensor) -> tuple[Tensor, Tensor]:
    """Each index as often as in `times` (N,), and which of its copies: 0, 1, ..."""
    index = torch.arange(len(times)).repeat_interleave(times)
    return index, torch.arange(len(index)) - (times.cumsum(0) - times)[index]


def make_columns(
    oracle: Oracle,
    episodes: EpisodeTable,
    critic: Tensor,
    *,
    truncation: str = "bootstrap",
    truncation_penalty: float = 0.0,
    kl: Callable[[Mapping[str, Any]], Tensor] | None = None,
    kl_spread: str = "token",
) -> dict[str, Any]:
    """The columns of a rollout of these episodes, under the critic's values (S,).

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
    # A letter for each token, none for EOS; only functions that need texts use them.
    pieces = [
        [chr(96 + t) if t else "" for t in row if t >= 0] for row in episodes.actions.tolist()
    ]
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
        "old_entropy": at(-(oracle.pi * oracle.log_pi).sum(-1)),
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
        rewards = less_penalty(scores, penalty, mask, coef=oracle.kl_coef, spread=kl_spread)
    columns["rewards"] = rewards
    columns["sequence_rewards"] = masked_sum(rewards, mask)
    return columns


def supply(
    zoo: Any,
    names: Iterable[str],
    columns: dict[str, Any],
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[str]:
    """Add what column plugins can make of `columns` until `names` are there; returns those that
    cannot be computed, with the missing inputs."""

    def make(name: str) -> str:
        """The missing resource, or an empty string."""
        if name in columns:
            return ""
        plugin = zoo.columns.get(name)
        if plugin is None:
            return name
        for need in plugin.needs:
            if lack := make(need):
                return f"{name} (which needs {lack})"
        inputs = {n: columns[n] for n in (*plugin.needs, "response_mask")}
        value = call(plugin, inputs, plugin.check_options((options or {}).get(name, {})))
        like = columns["response_mask"].dtype
        floats = isinstance(value, Tensor) and value.is_floating_point()
        columns[name] = value.to(like) if floats else value
        return ""

    return [lack for name in names if (lack := make(name))]
