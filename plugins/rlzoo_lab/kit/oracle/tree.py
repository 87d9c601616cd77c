"""The tree of all prefixes, and passes over it: from the leaves to the roots, and back."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rlzoo.errors import RlzooError

EOS = 0  # the token that ends an episode, in a tree that has one

MAX_STATES = 20_000  # a second or so for an estimator


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
        tokens = torch.full((self.states, self.horizon), -1)
        for depth in range(1, self.horizon):
            here = self.level(depth)
            tokens[here] = tokens[self.parent[here]]
            tokens[here, depth - 1] = self.token[here]
        return tokens


def make_tree(vocabulary: int, horizon: int, *, stops: bool = True, prompts: int = 1) -> Tree:
    """Raises RlzooError if there are more than `MAX_STATES` states."""
    for name, value, least in (
        ("vocabulary", vocabulary, 2 + stops), ("horizon", horizon, 1), ("prompts", prompts, 1)
    ):  # fmt: skip
        if value < least:
            raise RlzooError(f"--{name} must be at least {least}. Got {value}")
    # Prefixes of fewer than `horizon` tokens, none of them EOS.
    states = prompts * sum((vocabulary - stops) ** depth for depth in range(horizon))
    if states > MAX_STATES:
        raise RlzooError(
            f"too many states to enumerate: {states:,} at vocabulary {vocabulary}, horizon "
            f"{horizon}, {prompts} prompt{'s' * (prompts > 1)}; the limit is {MAX_STATES:,}. "
            "Lower --vocabulary, --horizon or --prompts"
        )
    child, starts = torch.full((states, vocabulary), -1), [0]
    parent, token = torch.full((states,), -1), torch.full((states,), -1)
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
    root = torch.full((states,), -1)
    root[:prompts] = torch.arange(prompts)
    for depth in range(1, horizon):
        level = slice(starts[depth], starts[depth + 1])
        root[level] = root[parent[level]]
    return Tree(vocabulary, horizon, prompts, stops, child, parent, token, root, tuple(starts))


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
