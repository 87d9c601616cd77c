"""`mix`: each part as it is alone, its columns asked for once, in runs and in other trainers."""

import pytest
import torch

from helpers.estimator_batch import batch
from helpers.estimator_oracles import ORACLES
from helpers.zoo import ZOO
from rlzoo.errors import RlzooError
from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_bridges import calls
from rlzoo_bridges.hosts import HOSTS

EXACT = {"rtol": 1e-12, "atol": 1e-12}
MIX = ZOO.estimators["mix"]
MIXTURES = [
    {"parts": ["grpo", "gae"], "weights": [0.25, -2.0]},
    {"parts": ["gae_decoupled", "mc"], "weights": [1.0, 0.5], "normalize": [True, False]},
    {"parts": ["rloo", "maxrl"], "weights": [1.0, 3.0], "normalize": [True, True]},
    {"parts": ["vineppo"], "weights": [1.0], "normalize": [False]},
]


@pytest.mark.parametrize("options", MIXTURES)
def test_agrees_with_the_sum_of_its_parts_oracles(options):
    for seed in range(4):
        c = batch(seed)
        wanted = ORACLES["mix"](c, **options)
        wanted, returns = wanted if isinstance(wanted, tuple) else (wanted, None)
        found = MIX(c, **options)
        torch.testing.assert_close(found["advantages"], wanted, **EXACT)
        assert ("returns" in found) == (returns is not None)
        if returns is not None:
            torch.testing.assert_close(found["returns"], returns, **EXACT)


def test_one_part_of_weight_one_is_that_part_with_its_options():
    c = batch(1)
    for text, name, options in (
        ("gae( lam=0.3, gamma=0.9 )", "gae", {"lam": 0.3, "gamma": 0.9}),
        ("opo(leave_one_out=true)", "opo", {"leave_one_out": True}),
        ("rlzoo-llm/pkpo(baseline=leave_one_out)", "pkpo", {"baseline": "leave_one_out"}),
    ):
        found = MIX(c, parts=[text], weights=[1.0])
        wanted = ZOO.estimators[name](c, **options)
        assert found.keys() == wanted.keys()
        for key in found:
            torch.testing.assert_close(found[key], wanted[key], rtol=0, atol=0)


MINE = """
from rlzoo import hookimpl

def mine(sequence_rewards, response_mask):
    '''Source: a test.'''
    return sequence_rewards[:, None] * response_mask

@hookimpl
def register_estimators(register):
    register(mine)
"""


def test_parts_come_from_the_zoo_that_the_mix_is_in(tmp_path, golden):
    (tmp_path / "mine.py").write_text(MINE)
    zoo = load_zoo([tmp_path / "mine.py"])
    words = ["recipe=grpo", "estimator=mix", "estimator.parts=[mine,dr_grpo]"]
    chosen = make_plan(compose(words, zoo), zoo).estimator
    c = batch(3)
    alone = [zoo.estimators[name](c)["advantages"] for name in ("mine", "dr_grpo")]
    torch.testing.assert_close(chosen(c)["advantages"], 0.5 * (alone[0] + alone[1]), **EXACT)
    with golden.refuses(RlzooError):  # the shipped zoo knows none of it
        make_plan(compose(words, ZOO), ZOO)


def plan(*words):
    return make_plan(compose(["recipe=grpo", "estimator=mix", *words], ZOO), ZOO)


def test_a_run_makes_what_the_chosen_parts_need_and_no_more():
    groups = plan("estimator.parts=[grpo,rloo]")
    assert not groups.critic
    assert groups.estimator.needs.count("group_ids") == 1
    critic = plan("estimator.parts=[gae(lam=0.5),remax]", "rollout.samples=1")
    assert critic.critic
    assert {"values", "greedy_scores"} <= critic.needs
    assert "group_ids" not in critic.estimator.needs


@pytest.mark.parametrize(
    "options",
    [
        {"parts": ["grpo"]},
        {"parts": [], "weights": []},
        {"parts": ["grpoo"], "weights": [1.0]},
        {"parts": ["mix"], "weights": [1.0]},
        {"parts": ["gae(lam)"], "weights": [1.0]},
        {"parts": ["gae(lam=3)"], "weights": [1.0]},
        {"parts": ["gae(lam=0.5"], "weights": [1.0]},
        {"normalize": [True]},
    ],
)
def test_a_mix_that_cannot_work_is_refused_before_a_model_loads(options, golden):
    with golden.refuses(RlzooError):
        MIX(batch(0), **options)


def test_a_trainer_without_a_critic_takes_a_mix_of_group_estimators_only(golden):
    c, trl = batch(2), HOSTS["trl"]

    class Columns(dict):
        plugins = None

    options = {"parts": ["grpo", "dr_grpo"], "weights": [1.0, 2.0]}
    found, _ = calls.estimate(trl, "rlzoo/mix", Columns(c), options)
    torch.testing.assert_close(found, MIX(c, **options)["advantages"], **EXACT)
    with golden.refuses(RlzooError):
        calls.estimate(trl, "rlzoo/mix", Columns(c), {"parts": ["gae"], "weights": [1.0]})
