"""The page's world of three tokens against the oracle."""

import math

import pytest
import torch

from helpers.javascript import ENGINE
from helpers.play import answers, source_of
from rlzoo_lab.kit.oracle import Oracle, make_tree
from rlzoo_lab.kit.oracle.bias import report
from rlzoo_lab.kit.oracle.episodes import enumerate_episodes, make_columns
from rlzoo_lab.kit.oracle.means import means
from rlzoo_lab.kit.oracle.subject import EstimatorInWorld

pytestmark = pytest.mark.skipif(ENGINE is None, reason="neither node nor chromium is installed")

SOURCE = source_of("advantage", "world")
FUNCTION = """({ task, p, gamma, critic, name, options, size }) => {
  const world = makeWorld(task, p, gamma, critic, 0.3);
  return { world: { ...world, all: undefined }, found: judge(name, world, options, size) }; }"""
ESTIMATORS = {
    "gae": {"lam": 0.7}, "td0": {}, "mc": {}, "n_step": {"n": 2}, "reinforce": {},
    "grpo": {"eps": 1e-6}, "rloo": {}, "dr_grpo": {}, "maxrl": {},
}  # fmt: skip
WORLDS = [("outcome", 0.6, 1.0, "errors", 4), ("dense", 0.3, 0.9, "zero", 3),
          ("first", 0.8, 0.8, "exact", 2), ("dense", 0.5, 1.0, "errors", 5)]  # fmt: skip


def close(got, want, where):
    got = torch.tensor(got, dtype=torch.float64)
    want = torch.as_tensor(want, dtype=torch.float64)
    assert float((got - want).abs().max()) < 1e-9, where


@pytest.mark.parametrize(("task", "p", "gamma", "critic", "size"), WORLDS)
def test_bias_and_variance_are_the_oracles(zoo, task, p, gamma, critic, size):
    def options_of(name):
        discount = {"gamma": gamma} if "gamma" in zoo.estimators[name].options else {}
        return {**ESTIMATORS[name], **discount}

    asked = [{"task": task, "p": p, "gamma": gamma, "critic": critic, "name": name,
              "options": options_of(name), "size": size} for name in ESTIMATORS]  # fmt: skip
    tree = make_tree(vocabulary=2, horizon=3, stops=False)
    logits = torch.tensor([math.log(1 - p), math.log(p)], dtype=torch.float64).expand(7, 2)
    for name, got in zip(ESTIMATORS, answers(SOURCE, FUNCTION, asked), strict=True):
        world, found = got["world"], got["found"]
        rewards = torch.tensor(world["rewards"], dtype=torch.float64)
        nothing = torch.zeros_like(rewards)
        oracle = Oracle(tree, logits, rewards, coin=nothing, reference=nothing, gamma=gamma)
        close(world["truth"]["v"], oracle.v, "v")
        close(world["truth"]["q"], oracle.q, "q")
        close(world["truth"]["advantages"], oracle.advantages, "advantages")
        close(world["truth"]["visits"], oracle.visits, "visits")
        episodes = enumerate_episodes(oracle)
        values = torch.tensor(world["values"], dtype=torch.float64)
        columns = make_columns(oracle, episodes, values, truncation="zero")
        subject = EstimatorInWorld(zoo.estimators[name], options_of(name), oracle, episodes,
                                   columns, samples=size)  # fmt: skip
        wanted = report(subject)
        close(found["mean"], means(subject).mean, name)
        for key in ("b_perp2", "bias2", "variance", "relative_variance", "scale"):
            close(found[key], getattr(wanted, key), (name, key))
        close(found["cosine"], wanted.own_cosine, name)


def test_the_tasks_pay_what_their_names_promise():
    asked = [{"task": t, "p": 0.5, "gamma": 1, "critic": "exact", "name": "mc", "size": 2,
              "options": {"gamma": 1}} for t in ("outcome", "dense", "first")]  # fmt: skip
    outcome, dense, first = (a["world"]["truth"]["v"][0] for a in answers(SOURCE, FUNCTION, asked))
    assert outcome == pytest.approx(1 / 8)
    assert dense == first == pytest.approx(1 / 2)
