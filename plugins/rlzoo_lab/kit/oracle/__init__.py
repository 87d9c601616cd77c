"""The oracle: token MDPs small enough to compute exact values from every prefix.

May import `mdp`, `runs` and the layers below; no language model.

    bias       bias and variance of any estimator compared with the exact values
    episodes   every episode of a world, with its probability and columns
    means      exact means of an estimator's output over all groups of episodes
    oracle     V, Q and advantages of every prefix, from a task's own score
    subject    an estimator and a recipe's loss on a world's episodes
    tree       a world as a tree of prefixes; values by backward recursion
    worlds     artificial worlds: where the reward is, and how noisy it is
"""

from rlzoo_lab.kit.oracle.bias import report
from rlzoo_lab.kit.oracle.episodes import enumerate_episodes, make_columns
from rlzoo_lab.kit.oracle.oracle import Oracle
from rlzoo_lab.kit.oracle.subject import EstimatorInWorld
from rlzoo_lab.kit.oracle.tree import make_tree
from rlzoo_lab.kit.oracle.worlds import make_critic, make_world

__all__ = [
    "EstimatorInWorld",
    "Oracle",
    "enumerate_episodes",
    "make_columns",
    "make_critic",
    "make_tree",
    "make_world",
    "report",
]
