"""An artificial world with rewards like those of the pilot's task and a critic as good as the
pilot's. Its true gradient is known, and so is the cosine of each estimator's gradient with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rlzoo.mdp.batch import Batch
from rlzoo.mdp.noise import generator
from rlzoo.recipe.plan import Plan
from rlzoo.runs.metrics import EXPLAINED_VARIANCE, LENGTH
from rlzoo.step.columns import whitened
from rlzoo_lab.credit import first_gradient
from rlzoo_lab.oracle import Oracle, make_columns, make_tree, make_world
from rlzoo_lab.oracle.episodes import EpisodeTable

LONGEST = 9  # steps of a world of two tokens: 511 states

BATCHES = 48

EARLY = 0.05  # of what is paid: less before the last token counts as nothing


@dataclass(frozen=True)
class Facts:
    """The last step of a pilot: a world with similar rewards, the mean response length, the mean of
    V divided by the mean return, and the share of the returns' variance that V explains."""

    world: str
    length: float
    level: float
    explained: float


def facts_of(batch: Batch, metrics: Mapping[str, float]) -> Facts:
    """The world: `outcome` if only the last token has a reward; otherwise `words` if the earlier
    rewards are more than noise around 0, and `key_noise` if they are not."""
    on, scores = batch["response_mask"].bool(), batch["scores"].double()
    later = on.flip(1).cumsum(1).flip(1) > 1  # tokens that another follows
    before = scores[on & later]
    world = "outcome"
    if before.abs().sum() > EARLY * scores[on].abs().sum():
        lasting = before.mean().abs() > 3 * before.std() / len(before) ** 0.5
        world = "words" if lasting else "key_noise"
    level = metrics.get("values/mean", 0.0) / (metrics.get("returns/mean") or 1.0)
    explained = metrics.get(EXPLAINED_VARIANCE, 0.0)
    return Facts(world, metrics[LENGTH], *(min(max(x, 0.0), 1.0) for x in (level, explained)))


def cosines(plans: Sequence[Plan], facts: Facts, rows: int, samples: int) -> np.ndarray:
    """(C,) the mean cosine with the true gradient of the gradient of a batch of `rows`, computed
    with the recipe's whitening, loss and aggregation."""
    horizon = min(max(2, round(facts.length)), LONGEST)
    if facts.world == "words":  # of three tokens
        horizon = max(6, horizon - horizon % 3)
    oracle = make_world(facts.world, make_tree(vocabulary=2, horizon=horizon, stops=False))
    mean = (oracle.visits * oracle.v).sum() / oracle.visits.sum()
    critic = facts.level * mean + facts.explained * (oracle.v - mean)
    star, draw = oracle.gradient(), generator(0, "advise/standin")
    found = np.zeros((BATCHES, len(plans)))
    for k in range(BATCHES):
        episodes = _episodes(oracle, rows, draw)
        columns = make_columns(oracle, episodes, critic)
        columns["group_ids"] = torch.arange(rows) // samples
        for c, plan in enumerate(plans):
            raw = plan.estimator(columns)["advantages"]
            columns["entropy"] = torch.special.entr(oracle.pi).sum(-1)[episodes.states]
            columns["observation_nll"] = torch.zeros(rows, dtype=torch.float64)  # it has none
            pull = first_gradient(plan, columns, whitened(plan, columns, raw))
            g = torch.zeros_like(star)
            g.index_put_((episodes.states, episodes.actions), -pull, accumulate=True)
            g -= oracle.pi * g.sum(-1, keepdim=True)
            found[k, c] = (g * star).sum() / (g.norm() * star.norm()).clamp(min=1e-300)
    return found.mean(0)


def _episodes(oracle: Oracle, rows: int, draw: torch.Generator) -> EpisodeTable:
    """Rows of the policy, all as long as the world."""
    at = torch.zeros(rows, dtype=torch.long)
    steps = []
    for _ in range(oracle.tree.horizon):
        choice = torch.multinomial(oracle.pi[at], 1, generator=draw)[:, 0]
        side = 2 * torch.randint(2, (rows,), generator=draw) - 1
        steps.append((at, choice, oracle.rewards[at, choice] + side * oracle.coin[at, choice]))
        at = oracle.tree.child[at, choice].clamp(min=0)
    states, actions, scores = (torch.stack(x, 1) for x in zip(*steps, strict=True))
    flat = torch.full((rows,), 1 / rows, dtype=torch.float64)
    return EpisodeTable(states, actions, scores, flat, torch.zeros_like(at), flat.long() - 1)
