"""What a step logs of things that hold in any sound run: the first ratio, credit, trust."""

import dataclasses

import pytest
import torch

from helpers.rewards_for_tests import LETTERS
from helpers.worlds import rolled, sampled, world_of
from rlzoo.runs.metrics import NO_SIGNAL
from rlzoo.step.metrics import batch_metrics
from rlzoo.step.update import make_optimizers, update
from rlzoo_lab.diagnose.credit import measure

FIRST = "actor/first_ratio_gap"


def put(batch, name, value):
    """A bug: a column that is there already, changed."""
    batch.data[name] = value


def test_the_first_ratio_is_one_however_many_updates_follow(zoo, words):
    words = [*words, *LETTERS, "actor.lr=0.05", "train.epochs=2"]
    world = world_of(zoo, words)
    sound = update(world, sampled(world), make_optimizers(world.engine, world.plan), 0, 0.1)
    assert sound[FIRST] < 1e-5
    assert abs(sound["actor/ratio_mean"] - 1) > 1e-3  # the later ones are far from it

    world = world_of(zoo, words)
    experience = sampled(world)
    mask = experience.batch["response_mask"]
    put(experience.batch, "old_log_probs", experience.batch["old_log_probs"] - 0.01 * mask)
    stale = update(world, experience, make_optimizers(world.engine, world.plan), 0, 0.1)
    assert stale[FIRST] == pytest.approx(0.01, rel=1e-2)


def test_credit_is_what_its_words_say(zoo, words):
    """On a batch whose scores, rightness and advantages are put there."""
    world = world_of(zoo, words, "grpo")
    batch = rolled(world)
    mask, n = batch["response_mask"], batch.rows
    half = (torch.arange(n) % 2).float()
    put(batch, "responses", ["12" if h else "no" for h in half])
    put(batch, "answers", ["12"] * n)
    put(batch, "terminated", torch.ones(n, dtype=torch.bool))
    ends = torch.zeros_like(mask)
    ends[torch.arange(n), mask.sum(1).long() - 1] = 1.0
    sign = 2 * half - 1

    def logged(scores, advantages):
        put(batch, "scores", scores)
        put(batch, "sequence_scores", scores.sum(1))
        put(batch, "raw_advantages", advantages)
        return batch_metrics(world.plan, batch) | measure(world.plan, batch)

    fine = logged(ends * half[:, None], mask * sign[:, None])
    assert fine["score/right_corr"] == pytest.approx(1)
    assert fine["raw_advantages/score_corr"] == pytest.approx(1)
    assert fine["prompts/distinct"] == 1.0
    assert fine["response/right"] == 0.5
    assert fine["response/distinct"] == 2 / n  # two texts
    assert fine["group/distinct"] == pytest.approx(2 * 4 / n)
    assert fine["score/noise"] == 0.0
    noisy = logged(ends * torch.arange(n)[:, None], mask)
    # Each of two texts comes twice in a group of four rows, two rows apart: +-1 about its mean.
    assert noisy["score/noise"] == pytest.approx(2**0.5)
    first = torch.zeros_like(mask)
    first[:, 0] = half
    wrong = logged(-first, mask * sign[:, None])
    assert wrong["score/right_corr"] == pytest.approx(-1)
    assert wrong["raw_advantages/score_corr"] == pytest.approx(-1)
    put(batch, "prompts", [batch["prompts"][0]] * n)
    put(batch, "answers", [str(i) for i in batch["group_ids"].tolist()])
    assert logged(ends, mask)["prompts/distinct"] == 1.0  # one prompt, and other hidden answers
    put(batch, "answers", ["12"] * n)
    flat = logged(0 * mask, mask)
    assert {"score/right_corr", "raw_advantages/score_corr"}.isdisjoint(flat)
    assert flat["prompts/distinct"] == pytest.approx(1 / 4)


def test_trust_in_what_happened_falls_with_lambda(zoo, words):
    found = []
    for lam in (1.0, 0.5, 0.0):
        world = world_of(zoo, [*words, *LETTERS, f"estimator.lam={lam}"])
        with torch.no_grad():
            world.engine.critic.head.weight.normal_(generator=torch.Generator().manual_seed(0))
        found.append(batch_metrics(world.plan, rolled(world))["critic/mc_corr"])
    assert found[0] == pytest.approx(1, abs=1e-5)
    assert found[0] > found[1] > found[2]


def test_the_loss_follows_advantages_or_not(zoo, words):
    """As it is, with its sign turned, detached; what it pulls is not what whitening made."""
    found = []
    for change in (lambda x: x, lambda x: -x, lambda x: x.detach()):
        world = world_of(zoo, [*words, *LETTERS])
        batch = rolled(world)
        put(batch, "advantages", change(batch["advantages"]))
        plain = world.plan.policy_loss
        plan = dataclasses.replace(world.plan, policy_loss=Changed(plain, change))
        put(batch, "advantages", batch["raw_advantages"])
        found.append(measure(plan, batch).get("actor/pull_corr"))
    assert found[0] > 0.9
    assert found[1] == pytest.approx(-found[0])
    assert found[2] == 0.0


class Changed:
    """A policy loss whose loss per token is changed."""

    def __init__(self, plain, change):
        self.plain, self.change = plain, change

    def __getattr__(self, name):
        return getattr(self.plain, name)

    def __call__(self, columns):
        loss, metrics = self.plain(columns)
        return self.change(loss), metrics


def test_groups_without_signal_are_counted_once_each(zoo, words):
    world = world_of(zoo, words, "grpo")
    batch = rolled(world)
    groups = batch["group_ids"]
    varied = torch.arange(batch.rows).float()
    put(batch, "sequence_scores", torch.where(groups == groups[0], 0.0, varied))
    expected = 1 / len(groups.unique())
    assert batch_metrics(world.plan, batch)[NO_SIGNAL] == pytest.approx(expected)
