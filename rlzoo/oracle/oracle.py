"""Exact truth: a token MDP small enough to visit every prefix.

A state is a prompt plus the tokens so far, so the states are a tree: V, Q and A by one pass from
the leaves, visitation by one pass from the roots, and with them the exact gradient of the expected
return, of the KL and of the length, in the logits of every state. All complete episodes, with
their probabilities, are columns like any batch's: every estimator can be asked about all of them
at once.

S states, V tokens, B episodes, T steps. Everything is float64; a leading dimension (...) evaluates
several policies together.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from rlzoo.component import RlzooError
from rlzoo.contracts import call
from rlzoo.ops import at_last_action, masked_sum

EOS = 0  # the token that ends an episode, in a tree that has one
MAX_STATES, MAX_EPISODES = 20_000, 200_000  # a second or so for an estimator


# ---------------------------------------------------------------- the tree


def count_states(vocabulary: int, horizon: int, *, stops: bool, prompts: int = 1) -> int:
    """Prefixes of fewer than `horizon` tokens, none of them EOS."""
    ways = vocabulary - stops
    return prompts * sum(ways**depth for depth in range(horizon))


@dataclass(frozen=True)
class Tree:
    """Every prefix, level by level. `stops`: token 0 is EOS and ends an episode; the horizon does
    in any case.

    child: (S, V) the state that a token leads to, -1 where the episode ends.
    parent, token: (S,) where a state comes from, -1 at the roots; prompt: (S,) its root.
    starts: the first state of each level, and S.
    """

    vocabulary: int
    horizon: int
    prompts: int
    stops: bool
    child: Tensor
    parent: Tensor
    token: Tensor
    prompt: Tensor
    starts: tuple[int, ...]

    @property
    def states(self) -> int:
        return len(self.parent)

    def level(self, depth: int) -> slice:
        return slice(self.starts[depth], self.starts[depth + 1])

    @cached_property
    def depth(self) -> Tensor:
        sizes = torch.tensor(self.starts).diff()
        return torch.arange(self.horizon).repeat_interleave(sizes)

    @cached_property
    def prefixes(self) -> Tensor:
        """(S, T) the tokens before each state, -1 after them."""
        out = torch.full((self.states, self.horizon), -1)
        for depth in range(1, self.horizon):
            here = self.level(depth)
            out[here] = out[self.parent[here]]
            out[here, depth - 1] = self.token[here]
        return out


def make_tree(vocabulary: int, horizon: int, *, stops: bool = True, prompts: int = 1) -> Tree:
    """Raises RlzooError where there are more than `MAX_STATES`."""
    for name, value, least in (
        ("vocabulary", vocabulary, 2 + stops), ("horizon", horizon, 1), ("prompts", prompts, 1)
    ):  # fmt: skip
        if value < least:
            raise RlzooError(f"--{name} must be at least {least}. Got {value}")
    found = count_states(vocabulary, horizon, stops=stops, prompts=prompts)
    if found > MAX_STATES:
        raise RlzooError(
            f"too many states to enumerate: {found:,} at vocabulary {vocabulary}, horizon "
            f"{horizon}, {prompts} prompt{'s' * (prompts > 1)}; the limit is {MAX_STATES:,}: "
            "lower --vocabulary, --horizon or --prompts"
        )
    child, starts = torch.full((found, vocabulary), -1), [0]
    parent, token = torch.full((found,), -1), torch.full((found,), -1)
    size, first = prompts, int(stops)
    for depth in range(horizon):
        here = torch.arange(starts[-1], starts[-1] + size)
        starts.append(starts[-1] + size)
        if depth + 1 < horizon:
            size *= vocabulary - first
            below = torch.arange(starts[-1], starts[-1] + size)
            child[here, first:] = below.view(len(here), -1)
            parent[below] = here.repeat_interleave(vocabulary - first)
            token[below] = torch.arange(first, vocabulary).repeat(len(here))
    root = torch.full((found,), -1)
    root[:prompts] = torch.arange(prompts)
    for depth in range(1, horizon):
        level = slice(starts[depth], starts[depth + 1])
        root[level] = root[parent[level]]
    return Tree(
        vocabulary, horizon, prompts, stops, child, parent, token, root, tuple(starts)
    )  # fmt: skip


# ---------------------------------------------------------------- the oracle


@dataclass(frozen=True)
class Oracle:
    """A policy in a world, and what is exactly true of them.

    logits:    (S, V) of the policy
    rewards:   (S, V) mean reward of each choice; an outcome stands at the choice that ends
    coin:      (S, V) a fair coin adds or takes this much, which no state remembers; 0: certain
    reference: (S, V) logits of the KL's reference
    gamma:     of the return
    kl_coef:   the objective is J - kl_coef * KL(policy || reference)
    """

    tree: Tree
    logits: Tensor
    rewards: Tensor
    coin: Tensor
    reference: Tensor
    gamma: float = 1.0
    kl_coef: float = 0.0

    @cached_property
    def log_pi(self) -> Tensor:
        return self.logits.log_softmax(-1)

    @cached_property
    def pi(self) -> Tensor:
        return self.log_pi.exp()

    @cached_property
    def log_ratio(self) -> Tensor:
        """(S, V) log pi - log pi_ref: summed over an episode, its mean is the KL."""
        return self.log_pi - self.reference.log_softmax(-1)

    @cached_property
    def objective(self) -> Tensor:
        """(S, V) the reward whose policy gradient is that of the whole objective, KL and all."""
        return self.rewards - self.kl_coef * self.log_ratio

    @cached_property
    def visits(self) -> Tensor:
        """(S,) the probability that an episode passes through each state; sums to E[length]."""
        return visitation(self.tree, self.pi)

    @cached_property
    def q(self) -> Tensor:
        return action_values(self.tree, self.pi, self.objective, self.gamma)

    @cached_property
    def v(self) -> Tensor:
        return (self.pi * self.q).sum(-1)

    @cached_property
    def advantages(self) -> Tensor:
        return self.q - self.v[:, None]

    @property
    def expected_return(self) -> float:
        """J, without the KL."""
        return float(expected(self.tree, self.pi, self.rewards, self.gamma))

    @property
    def expected_length(self) -> float:
        return float(self.visits.sum())

    def gradient(self, rewards: Tensor | None = None) -> Tensor:
        """(S, V) d/d logits of the expected sum of `rewards` (S, V), the objective's by default:
        gamma^depth d(s) pi(a|s) A(s, a).

        Of the KL for `log_ratio` (which depends on the policy, but adds nothing by that), of the
        length for ones; both at gamma = 1.
        """
        if rewards is None:
            advantages = self.advantages
        else:
            q = action_values(self.tree, self.pi, rewards, self.gamma)
            advantages = q - (self.pi * q).sum(-1, keepdim=True)
        discount = self.gamma ** self.tree.depth.double()
        return (discount * self.visits)[:, None] * self.pi * advantages

    def kl(self) -> float:
        """KL(policy || reference) of whole responses, in nats."""
        return float((self.visits[:, None] * self.pi * self.log_ratio).sum())

    def kl_to(self, logits: Tensor) -> Tensor:
        """(...) KL(this policy || softmax(logits)) of whole responses, logits (..., S, V)."""
        gap = self.log_pi - logits.log_softmax(-1)
        return (self.visits[:, None] * self.pi * gap).sum((-1, -2))

    def improvement(self, logits: Tensor) -> Tensor:
        """(...) what the objective gains by going to softmax(logits), (..., S, V), exactly."""
        log_pi = logits.log_softmax(-1)
        pi = log_pi.exp()
        gained = self.rewards
        if self.kl_coef:
            gained = gained - self.kl_coef * (log_pi - self.reference.log_softmax(-1))
        before = expected(self.tree, self.pi, self.objective, self.gamma)
        return expected(self.tree, pi, gained, self.gamma) - before


def action_values(tree: Tree, pi: Tensor, rewards: Tensor, gamma: float = 1.0) -> Tensor:
    """Q (..., S, V) from the leaves to the roots; differentiable in pi and rewards."""
    levels: list[Tensor] = []
    v_below = pi.new_zeros(1)
    for depth in range(tree.horizon - 1, -1, -1):
        here = tree.level(depth)
        to = tree.child[here]
        ahead = v_below[..., (to - tree.starts[depth + 1]).clamp(min=0)] if levels else 0
        q = rewards[..., here, :] + gamma * torch.where(to >= 0, ahead, 0)
        v_below = (pi[..., here, :] * q).sum(-1)
        levels.append(q.expand(pi[..., here, :].shape))
    return torch.cat(levels[::-1], -2)


def expected(tree: Tree, pi: Tensor, rewards: Tensor, gamma: float = 1.0) -> Tensor:
    """(...) the expected (discounted) sum of rewards, prompts alike."""
    roots = slice(0, tree.prompts)
    q = action_values(tree, pi, rewards, gamma)[..., roots, :]
    return (pi[..., roots, :] * q).sum(-1).mean(-1)


def visitation(tree: Tree, pi: Tensor) -> Tensor:
    """d (..., S) from the roots to the leaves; differentiable in pi."""
    levels = [pi.new_full((*pi.shape[:-2], tree.prompts), 1 / tree.prompts)]
    for depth in range(1, tree.horizon):
        here = tree.level(depth)
        parent = tree.parent[here]
        above = levels[-1][..., parent - tree.starts[depth - 1]]
        levels.append(above * pi[..., parent, tree.token[here]])
    return torch.cat(levels, -1)


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


# ---------------------------------------------------------------- what column plugins may ask


class Resources:
    """`sample`, `score` and `tokenizer` of the enumerated world, for column plugins of a batch
    whose rows have the prompts `prompt` (B,).

    `random`: whether a draw was made: then a column is one draw, and must be made several times.
    """

    def __init__(self, oracle: Oracle, prompt: Tensor, generator: torch.Generator):
        self.oracle, self.prompt, self.generator = oracle, prompt, generator
        self.random = False

    def handles(self) -> dict[str, Any]:
        tree = self.oracle.tree

        def sample(
            prompt_ids, prompt_mask, *, max_new_tokens=None, greedy=False, rows=None, of=None
        ):
            return self._sample(prompt_ids, prompt_mask, max_new_tokens, greedy)

        sample.max_new_tokens = tree.horizon  # type: ignore[attr-defined]
        return {"sample": sample, "score": self._score, "tokenizer": _Tokenizer()}

    def states_after(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B,) the state that prompt and tokens (B, P) lead to; -1 where an episode has ended."""
        tree, roots = self.oracle.tree, self.oracle.tree.vocabulary
        at = torch.full((len(ids),), -1)
        for token, real in zip(ids.unbind(1), mask.bool().unbind(1), strict=True):
            below = tree.child[at.clamp(min=0), token.clamp(max=tree.vocabulary - 1)]
            moved = torch.where(token >= roots, token - roots, torch.where(at >= 0, below, -1))
            at = torch.where(real, moved, at)
        return at

    def _sample(self, ids: Tensor, mask: Tensor, limit: int | None, greedy: bool) -> dict[str, Any]:
        oracle, tree = self.oracle, self.oracle.tree
        at = self.states_after(ids, mask)
        self.random |= not greedy
        tokens, masks, log_probs = [], [], []
        for _ in range(min(limit or tree.horizon, tree.horizon)):
            here, alive = at.clamp(min=0), at >= 0
            if greedy:
                token = oracle.logits[here].argmax(-1)
            else:
                token = torch.multinomial(oracle.pi[here], 1, generator=self.generator)[:, 0]
            tokens.append(torch.where(alive, token, 0))
            masks.append(alive)
            log_probs.append(torch.where(alive, oracle.log_pi[here, token], 0))
            at = torch.where(alive, tree.child[here, token], -1)
        drawn, real = torch.stack(tokens, 1), torch.stack(masks, 1)
        texts = torch.where(real, drawn, -1).tolist()
        return {
            "response_ids": drawn,
            "response_mask": real.double(),
            "response_attention": real.double(),
            "terminated": at < 0,
            "truncated": at >= 0,
            "old_log_probs": torch.stack(log_probs, 1),
            "sampler_log_probs": torch.stack(log_probs, 1),
            "responses": ["".join(text_of(row)) for row in texts],
        }

    def _score(self, columns: Mapping[str, Any]) -> Tensor:
        tree = self.oracle.tree
        ids, mask = columns["response_ids"], columns["response_mask"].bool()
        at = self.prompt[columns.get("rows", torch.arange(len(ids)))]
        total = torch.zeros(len(ids), dtype=torch.float64)
        for token, real in zip(ids.unbind(1), mask.unbind(1), strict=True):
            here, acts = at.clamp(min=0), real & (at >= 0)
            token = token.clamp(max=tree.vocabulary - 1)
            gained, coin = self.oracle.rewards[here, token], self.oracle.coin[here, token]
            if bool((coin > 0).any()):
                self.random = True
                side = torch.randint(2, coin.shape, generator=self.generator) * 2 - 1
                gained = gained + coin * side
            total += torch.where(acts, gained, 0)
            at = torch.where(acts, tree.child[here, token], at)
        return total


class _Tokenizer:
    """Letters for tokens: enough for a plugin that decodes what it sampled."""

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(text_of(list(map(int, ids))))

    def batch_decode(self, rows: Any, **_: Any) -> list[str]:
        return [self.decode(row) for row in rows]


def supply(
    zoo: Any,
    names: Iterable[str],
    columns: dict[str, Any],
    handles: Mapping[str, Any],
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[str]:
    """Add to `columns` what column plugins can make of them, and of the handles, until `names` are
    there; returns those that cannot be, and for want of what."""

    def make(name: str) -> str:
        """An empty string, or what is missing."""
        if name in columns or name in handles:
            return ""
        plugin = zoo.columns.get(name)
        if plugin is None:
            return name
        for need in plugin.needs:
            if lack := make(need):
                return f"{name} (which needs {lack})"
        given = {n: columns[n] if n in columns else handles[n] for n in plugin.needs}
        given["response_mask"] = columns["response_mask"]
        value = call(plugin, given, plugin.check_options((options or {}).get(name, {})))
        like = columns["response_mask"].dtype
        floats = isinstance(value, Tensor) and value.is_floating_point()
        columns[name] = value.to(like) if floats else value
        return ""

    return [lack for name in names if (lack := make(name))]
