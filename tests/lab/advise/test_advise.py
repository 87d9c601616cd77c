"""`rlzoo advise`: its numbers against worlds whose truth is known, and what it says."""

import json

import numpy as np
import pytest
import torch

from rlzoo.cli import main
from rlzoo.recipe.plan import make_plan
from rlzoo.runs.metrics import LENGTH
from rlzoo_lab.advise.quality import weigh
from rlzoo_lab.advise.standin import Facts, cosines, facts_of
from rlzoo_lab.data.variants import variants
from rlzoo_lab.oracle import (
    EstimatorInWorld,
    enumerate_episodes,
    make_columns,
    make_tree,
    make_world,
    report,
)

ASKED = ["recipe=ppo_gae", "estimator=gae,rloo", "estimator.lam=0,1", "kl.place=none"]


def plans_of(zoo, *words):
    return [make_plan(recipe, zoo) for recipe in variants([*ASKED, *words], [], zoo)]


def test_a_stand_in_agrees_with_the_exact_diagnosis(zoo):
    """Rows are drawn one by one there, and enumerated here; no whitening in either."""
    facts = Facts("key_noise", 5.0, 0.0, 0.0)
    found = cosines(plans_of(zoo, "whiten=none"), facts, 64, 4)
    oracle = make_world("key_noise", make_tree(vocabulary=2, horizon=5, stops=False))
    episodes = enumerate_episodes(oracle)
    columns = make_columns(oracle, episodes, torch.zeros_like(oracle.v))
    for cosine, (name, options) in zip(
        found, (("gae", {"lam": 0.0}), ("gae", {"lam": 1.0}), ("rloo", {})), strict=True
    ):
        subject = EstimatorInWorld(zoo.estimators[name], options, oracle, episodes, columns)
        exact = report(subject, sizes=(64,)).batches[64]["cosine"]
        assert cosine == pytest.approx(exact, abs=0.06)
    assert found[0] < 0.2 < 0.6 < min(found[1:])  # the coins drown what lam = 0 hears


def gradients(direction, noise, n, generator):
    return direction + noise * generator.standard_normal((n, len(direction)))


def test_the_pilot_finds_the_cosine_of_a_batch_without_the_truth():
    """Of an unbiased estimator, one with less noise, a biased one and a longer one."""
    draw = np.random.default_rng(0)
    truth, aside = np.zeros(24), np.zeros(24)
    truth[0] = aside[1] = 1.0
    kinds = [(truth, 1.5), (truth, 0.5), (0.6 * truth + 0.8 * aside, 0.1), (5 * truth, 2.5)]
    found = np.stack([gradients(mean, sd, 400, draw) for mean, sd in kinds])
    unbiased = gradients(truth, 1.0, 400, draw)
    batch = 8
    exact = [m @ truth / np.sqrt(m @ m + 24 * sd**2 / batch) for m, sd in kinds]
    advice = weigh(np.array(exact), found, unbiased, batch)
    assert advice.pilot == pytest.approx(exact, abs=0.05)
    assert (np.abs(advice.pilot - exact) < 4 * advice.pilot_se).all()
    assert advice.direction > 10
    wrong = weigh(np.array([0.9, 0.6, 0.6, 0.6]), found, unbiased, batch)
    assert wrong.both.argmax() in (1, 3)  # equal but for the scale, which does not matter
    assert wrong.both[0] < wrong.world[0] - 0.1


def test_a_short_pilot_leaves_the_choice_to_the_world():
    draw = np.random.default_rng(1)
    found = np.stack([gradients(np.eye(24)[0], 30.0, 4, draw) for _ in range(3)])
    advice = weigh(np.array([0.5, 0.8, 0.6]), found, gradients(np.eye(24)[0], 30, 4, draw), 4)
    assert advice.direction < 2
    assert advice.both.argmax() == 1
    assert advice.both == pytest.approx(advice.world, abs=0.1)
    silent = weigh(np.array([0.5, 0.8]), np.zeros((2, 4, 24)), found[0], 4)
    assert silent.both == pytest.approx(silent.world)  # no group had any signal


@pytest.mark.parametrize(
    ("scores", "world"),
    [
        ([[0, 0, 1.0], [0, 0, 0], [0, 1.0, 9], [0, 0, 0]], "outcome"),  # 9 is behind the end
        ([[0.5, -0.5, 1.0], [-0.5, 0.5, 0], [0.5, 0, 9], [-0.5, 0.5, 0]], "key_noise"),
        ([[0.3, 0.3, 0.3], [0.3, 0, 0.3], [0.3, 0.3, 9], [0.3, 0.3, 0]], "words"),
    ],
)
def test_the_world_is_chosen_by_where_rewards_stand(scores, world):
    batch = {
        "response_mask": torch.tensor([[1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 1, 1.0]]),
        "scores": torch.tensor(scores),
    }
    batch["scores"] *= batch["response_mask"]
    metrics = {LENGTH: 2.75, "values/mean": 0.3, "returns/mean": 0.6}
    facts = facts_of(batch, metrics)
    assert (facts.world, facts.length, facts.explained) == (world, 2.75, 0.0)
    assert facts.level == pytest.approx(0.5)


@pytest.mark.landing
def test_advice_on_a_task_whose_answer_is_known(capsys):
    """key_door: the first token decides and coins follow, so that lam = 0 hears nothing."""
    words = [*ASKED, "task=key_door", "model=nano", "rollout.prompts=16", "train.tokens=7000"]
    assert main(["advise", *words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in said["estimators"]}
    assert set(rows) == {"gae lam=0", "gae lam=1", "rloo"}
    assert said["world"] == "key_noise"
    assert said["choice"] != "gae lam=0"
    assert (
        rows["gae lam=0"]["both"] + 2 * rows["gae lam=0"]["behind_se"] < rows["gae lam=1"]["both"]
    )
    assert 0 < said["tokens"] <= 700
    assert said["critic"] == [0.0]  # its head starts at zero
    assert f"estimator={said['choice'].split()[0]}" in said["command"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["train.steps=5"], "--share: 0.1 of train.steps=5 is less than one step"),
        (["train.steps=null", "train.minutes=1"], "set the run's budget"),
        (["train.steps=20", "--share=0"], "--share must be in (0, 1]. Got 0"),
        (["train.steps=20", "estimator=vineppo"], "can be evaluated; needs branch_steps"),
    ],
)
def test_a_pilot_that_cannot_be_is_one_line(words, line, capsys):
    assert main(["advise", "recipe=ppo_gae", "task=key_door", "model=nano", *words]) != 0
    assert line in capsys.readouterr().err
