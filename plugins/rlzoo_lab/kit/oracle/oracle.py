"""Exact values: a token MDP small enough to visit every prefix.

A state is a prompt plus the tokens so far, so the states are a tree: V, Q and A by one pass from
the leaves, visitation by one pass from the roots, and with them the exact gradient of the expected
return, of the KL and of the length, in the logits of every state. All complete episodes, with
their probabilities, are columns like any batch's: every estimator can be run on all of them
at once.

S states, V tokens, B episodes, T steps. Everything is float64; a leading dimension (...) evaluates
several policies together.
"""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from rlzoo_lab.kit.oracle.tree import Tree, action_values, expected, visitation


@dataclass(frozen=True)
class Oracle:
    """A policy in a world, and their exact values.

    logits:    (S, V) of the policy
    rewards:   (S, V) mean reward of each choice; an outcome is at the choice that ends
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
        """(S, V) the reward whose policy gradient is that of the whole objective, including KL."""
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

        For the KL `log_ratio` (which depends on the policy, but adds nothing by that), for the
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
        """(...) the exact gain of the objective from moving to softmax(logits), (..., S, V)."""
        log_pi = logits.log_softmax(-1)
        pi = log_pi.exp()
        gained = self.rewards
        if self.kl_coef:
            gained = gained - self.kl_coef * (log_pi - self.reference.log_softmax(-1))
        before = expected(self.tree, self.pi, self.objective, self.gamma)
        return expected(self.tree, pi, gained, self.gamma) - before
