"""Corners of the zoo where a component once took one thing for another."""

import math

import pytest
import torch

import rlzoo
from helpers.worlds import sampled, world_of
from rlzoo.ops import absolute
from rlzoo.plugin.component import read_component
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan

ZOO = rlzoo.load_zoo()


# ---------------------------------------------------------------- texts of actions, observations


def test_a_step_ends_at_the_action_that_holds_the_separator():
    mask = torch.tensor([[1.0, 1, 0, 0, 1, 1, 1, 1], [0, 1, 1, 0, 0, 0, 0, 0]])
    columns = {"response_mask": mask, "response_tokens": [[*"a.b.c", ""], [".", "."]]}
    steps = ZOO.columns["branch_steps"](columns, separator=".")
    assert steps[0, mask[0] > 0].tolist() == [0, 0, 1, 1, 2, 2]
    assert steps[1, mask[1] > 0].tolist() == [0, 1]
    assert not steps[mask == 0].any()


def test_steps_of_a_conversation_end_where_the_policy_said_so():
    words = ["columns.branch_steps.separator=1", "rollout.prompts=4", "device=cpu"]
    batch = sampled(world_of(ZOO, words, recipe="turn_gae")).batch
    mask = batch["response_mask"].bool()
    assert ((~mask[:, :-1]) & mask[:, 1:]).any()  # there are observations between actions
    for i, texts in enumerate(batch["response_tokens"]):
        want = [sum("1" in text for text in texts[:k]) for k in range(len(texts))]
        assert batch["branch_steps"][i, mask[i]].tolist() == want


def test_http_scores_the_actions_of_a_conversation(monkeypatch):
    from rlzoo_zoo.rewards import http as module

    def ask(self, path="", body=None, hint=""):
        return {"scores": [[1.0 + i for i in range(len(row))] for row in tokens]}

    monkeypatch.setattr(module.Endpoint, "ask", ask)
    mask = torch.tensor([[1.0, 1, 0, 0, 1, 1], [1, 0, 0, 1, 0, 0]])
    tokens = [[*"abc", ""], ["a", ""]]
    columns = {"prompts": ["", ""], "responses": ["", ""], "answers": [None, None],
               "response_tokens": tokens, "response_mask": mask}  # fmt: skip
    send = ["response_tokens"]
    scores = ZOO.rewards["http"](columns, url="http://here", per_token=True, send=send)
    assert scores.tolist() == [[1, 2, 0, 0, 3, 4], [1, 0, 0, 2, 0, 0]]


# ---------------------------------------------------------------- rounding is not a direction


def test_absolute_has_the_sign_for_a_gradient_but_at_rounding():
    x = torch.tensor([-2.0, -1e-7, 0, 1e-7, 5e-4, 0.3], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(absolute(x).sum(), x)
    assert torch.equal(absolute(x), x.abs())
    torch.testing.assert_close(slope, torch.tensor([-1, -1e-4, 0, 1e-4, 0.5, 1]).double())


def test_kl_cov_gives_the_plain_gradient_at_ratio_one():
    old = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).abs().neg()
    advantages = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    for noise in (1e-7, -1e-7):
        log_probs = (old + noise).requires_grad_()
        columns = {"log_probs": log_probs, "old_log_probs": old, "advantages": advantages,
                   "response_mask": torch.ones(4, 6)}  # fmt: skip
        loss, metrics = ZOO.policy_losses["kl_cov"](columns, fraction=0.3)
        assert metrics["pg_clipfrac_cov"].sum() > 3
        (gradient,) = torch.autograd.grad(loss.sum(), log_probs)
        torch.testing.assert_close(gradient, -advantages, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    "rewards", [[1e6, 1e6 + 0.9], [1e-7, 9e-7], [1000, 1000.0005], [-1e9, -1e9 + 1]]
)
def test_a_group_is_flat_by_its_rounding_not_by_its_mean(rewards):
    x, ids = torch.tensor(rewards, dtype=torch.float64), torch.zeros(2, dtype=torch.long)
    assert not rlzoo.group_degenerate(x, ids).any()
    columns = {"sequence_rewards": x, "response_mask": torch.ones(2, 1).double(), "group_ids": ids}
    want = 0.5 * (rewards[1] - rewards[0])
    want /= want * math.sqrt(2) + 1e-6
    got = ZOO.estimators["grpo"](columns)["advantages"][:, 0]
    torch.testing.assert_close(got, torch.tensor([-want, want]).double(), rtol=1e-4, atol=0)
    shaken = x[:1] * torch.tensor([1, 1 + 4e-16], dtype=torch.float64)
    assert rlzoo.group_degenerate(shaken, ids).all()
    assert rlzoo.group_degenerate(x[:1].float() * torch.tensor([1, 1 + 2e-7]), ids).all()


def test_in_half_precision_rewards_that_differ_are_signal():
    ids = torch.zeros(2, dtype=torch.long)
    columns = {"response_mask": torch.ones(2, 1), "group_ids": ids, "score_weights": torch.ones(1)}
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.tensor([1.0, 0.98]).to(dtype)
        assert not rlzoo.group_degenerate(x, ids).any()
        assert rlzoo.group_degenerate(torch.ones(2).to(dtype), ids).all()
        halved = {n: c.to(dtype) if c.is_floating_point() else c for n, c in columns.items()}
        got = ZOO.estimators["gdpo"]({**halved, "score_components": x[:, None]})["advantages"]
        assert got[0, 0] > 0.5
        assert got[1, 0] < -0.5


@pytest.mark.parametrize("gap", [9e-7, 1e-12])
def test_otb_has_the_flatness_of_the_others(gap):
    """Equal weights: its baseline is the group's mean, as `dr_grpo`'s."""
    ones = torch.ones(3, 2, dtype=torch.float64)
    columns = {
        "rewards": torch.tensor([[0, 0], [0, gap], [0, 0.0]], dtype=torch.float64),
        "response_mask": torch.tensor([[1, 1], [1, 1], [0, 0.0]], dtype=torch.float64),
        "group_ids": torch.tensor([0, 0, 0]),
        "old_log_probs": 0.5 * ones.log(), "sum_pi_squared": 2 * ones,
    }  # fmt: skip
    got = ZOO.estimators["otb"](columns)["advantages"]
    want = gap / 2 * torch.tensor([[-1, -1], [1, 1], [0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=0)
    noise = {**columns, "rewards": columns["rewards"] * 1e-16 / gap + 0}
    assert not ZOO.estimators["otb"](noise)["advantages"].any()


# ---------------------------------------------------------------- who may leave rows out


@pytest.mark.parametrize("couples", ["group", "batch"])
def test_what_leaves_rows_out_may_not_couple_them(couples, golden):
    def normed(log_probs, advantages):
        """Source: here."""
        return -log_probs * advantages / advantages.std()

    with golden.refuses(rlzoo.RlzooError):
        read_component("policy_losses", normed, "a test", couples=couples, needs_signal=True)


# ---------------------------------------------------------------- recipes, warnings, sources


def plan_of(*words):
    return make_plan(compose(list(words), ZOO), ZOO)


@pytest.mark.parametrize("estimator", ["maxrl", "pkpo", "gdpo"])
def test_kl_that_the_estimator_does_not_read_is_said(estimator):
    words = ("recipe=ppo_gae", f"estimator={estimator}", "kl.place=reward")
    (warning,) = plan_of(*words).warnings
    assert "kl.place=reward" in warning
    assert repr(estimator) in warning
    for place in ("none", "loss"):
        assert not any("reads none" in w for w in plan_of(*words[:2], f"kl.place={place}").warnings)
    assert not plan_of(*words[:2], "kl.coef=0").warnings
    assert not plan_of("recipe=rloo").warnings  # of sequence_rewards, KL is in them


def test_no_correction_is_advised_where_the_estimator_weighs():
    assert not plan_of("recipe=impala").warnings
    assert "off-policy" in plan_of("recipe=impala", "estimator=gae").warnings[0]
    (warning,) = plan_of("recipe=impala", "correction=tis").warnings
    assert "correction=tis" in warning
    assert "twice" in warning


def test_recipes_do_what_their_components_say():
    assert plan_of("recipe=gpg").one_update  # nothing corrects for a second step
    cispo = plan_of("recipe=cispo").policy_loss
    tiny = torch.tensor([[-9.0]])
    columns = {"log_probs": tiny, "old_log_probs": 0 * tiny, "advantages": tiny / 9}
    loss, metrics = cispo({**columns, "response_mask": torch.ones(1, 1)})
    assert not metrics["pg_clipfrac_low"].any()
    torch.testing.assert_close(loss, tiny.exp() * tiny)


@pytest.mark.parametrize(("name", "said"), [("vapo", "likelihood"), ("turn_gae", "each token")])
def test_departures_stand_in_the_recipe(name, said):
    from rlzoo.recipe.files import list_configs

    text = list_configs("recipes")[name].read_text()
    comments = " ".join(line for line in text.splitlines() if line.startswith("#"))
    assert said in comments


def test_gigpo_compares_rows_where_verl_agent_compares_turns():
    # Two turns of a right row, six of a wrong one, no state twice.
    turns = torch.tensor([[1, 2, 2, 2, 2, 2], [1, 2, 3, 4, 5, 6]])
    mask = torch.tensor([[1.0, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]])
    rewards = torch.zeros(2, 6)
    rewards[0, 1] = 1
    columns = {"rewards": rewards, "response_mask": mask, "group_ids": torch.zeros(2).long(),
               "sequence_rewards": torch.tensor([1.0, 0]), "turn_ids": turns,
               "state_keys": torch.arange(12).view(2, 6)}  # fmt: skip
    found = ZOO.estimators["gigpo"](columns)["advantages"]
    assert found[:, 0].tolist() == [0.5, -0.5]  # over turns: .75 and -.25
    assert "verl-agent" in ZOO.estimators["gigpo"].doc


def test_prime_leaves_one_out_as_the_paper_does():
    r = torch.tensor([[0.3, 0.1], [0.1, 0.3]])
    columns = {"implicit_rewards": r, "sequence_scores": torch.zeros(2),
               "response_mask": torch.ones(2, 2), "group_ids": torch.zeros(2).long()}  # fmt: skip
    found = ZOO.estimators["prime"](columns)["advantages"]
    torch.testing.assert_close(found, torch.tensor([[0.0, -0.1], [0.0, 0.1]]))
    # The code of the authors and verl: r n / (n - 1) less the sum of all means over n - 1.
    theirs = (2 * r - 0.4).flip(1).cumsum(1).flip(1)
    torch.testing.assert_close(theirs, torch.tensor([[0.0, -0.2], [0.0, 0.2]]))
    assert "authors' code" in ZOO.estimators["prime"].doc
