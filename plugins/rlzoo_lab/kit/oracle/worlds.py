"""Small made-up worlds for the oracle: where the reward is, and how noisy it is.

Each is a function of (tree, policy, generator) that gives rewards (S, V).
"""

import torch
from torch import Tensor

from rlzoo.errors import RlzooError, nearest
from rlzoo.mdp.noise import generator
from rlzoo_lab.kit.oracle.oracle import Oracle
from rlzoo_lab.kit.oracle.tree import Tree, visitation


def ends(tree: Tree) -> Tensor:
    """(S, V) 1 at each choice that ends an episode."""
    return (tree.child < 0).double()


def potential(tree: Tree, draw: torch.Generator) -> Tensor:
    """(S, V) the sum of a random worth of each choice, along the path: prefixes matter."""
    worth = torch.randn(tree.states, tree.vocabulary, generator=draw, dtype=torch.float64)
    total = worth.clone()
    for depth in range(1, tree.horizon):
        here = tree.level(depth)
        total[here] += total[tree.parent[here], tree.token[here]][:, None]
    return total


RIGHT = (0.3, 0.1, 0.6, 0.03, 0.9)  # how often the policy is right on the first prompts, in turn


def outcome(tree: Tree, pi: Tensor, draw: torch.Generator) -> Tensor:
    """1 for a correct episode, 0 for a wrong one; about 30 % are correct on the first prompt."""
    worth, last = potential(tree, draw), ends(tree)
    mass = visitation(tree, pi)[:, None] * pi * last
    rewards = torch.zeros_like(worth)
    for prompt in range(tree.prompts):
        states = tree.prompt == prompt
        order = worth[states].flatten().argsort(descending=True)
        share = mass[states].flatten()[order].cumsum(0) * tree.prompts
        right = torch.zeros(len(order), dtype=torch.float64)
        right[order] = (share <= RIGHT[prompt % len(RIGHT)]).double()
        rewards[states] = right.view(-1, tree.vocabulary)
    return rewards * last


def graded(tree: Tree, pi: Tensor, draw: torch.Generator) -> Tensor:
    """A real number at the end of an episode."""
    return potential(tree, draw) * ends(tree)


def dense(tree: Tree, pi: Tensor, draw: torch.Generator) -> Tensor:
    """A real number for each token."""
    return torch.randn(tree.states, tree.vocabulary, generator=draw, dtype=torch.float64)


COIN = 0.5


def key_noise(tree: Tree, pi: Tensor, draw: torch.Generator) -> Tensor:
    """1 at the end if the first token was the key; `make_world` adds a coin's noise in between."""
    first = tree.prefixes[:, 0]
    token = torch.where(tree.depth[:, None] > 0, first[:, None], torch.arange(tree.vocabulary))
    key = torch.randint(int(tree.stops), tree.vocabulary, (tree.prompts,), generator=draw)
    return ends(tree) * (token == key[tree.prompt][:, None])


WORLDS = {f.__name__: f for f in (outcome, graded, dense, key_noise)}
SPREAD = 1.0  # of the policy's logits
DRIFT = 0.5  # of the reference's logits from the policy's


def make_world(name: str, tree: Tree, *, seed: int = 0, kl_coef: float = 0.0) -> Oracle:
    """A world with a random policy: everything is a function of the seed."""
    if name not in WORLDS:
        known = ", ".join(WORLDS)
        raise RlzooError(
            f"--world: there is no world {name!r}{nearest(name, WORLDS)} (available: {known})"
        )
    shape = (tree.states, tree.vocabulary)

    def normal(stream: str) -> Tensor:
        return torch.randn(shape, generator=generator(seed, stream), dtype=torch.float64)

    logits = SPREAD * normal("diagnose/policy")
    reference = logits + DRIFT * normal("diagnose/reference")
    rewards = WORLDS[name](tree, logits.softmax(-1), generator(seed, "diagnose/rewards"))
    between = (tree.depth > 0)[:, None] & (tree.child >= 0) & (name == "key_noise")
    return Oracle(tree, logits, rewards, COIN * between.double(), reference, kl_coef=kl_coef)


def make_critic(kind: str, oracle: Oracle, *, size: float = 0.2, seed: int = 0) -> Tensor:
    """(S,) a critic's values: exact, zero, or noisy (with a normal error of `size` per state)."""
    if kind == "exact":
        return oracle.v
    if kind == "zero":
        return torch.zeros_like(oracle.v)
    draw = generator(seed, "diagnose/critic")
    return oracle.v + size * torch.randn(oracle.v.shape, generator=draw, dtype=torch.float64)
