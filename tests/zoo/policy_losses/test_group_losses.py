"""Limits of VarGrad, GVPO, REAL, FIPO and PPO with the likelihood of right answers."""

import math

import pytest
import torch
from torch.testing import assert_close

from helpers.zoo import ZOO

F64 = torch.float64
BETA = 0.5


def group(rewards, log_probs, reference):
    """One group of one-token responses; each probability is free."""
    rewards = torch.tensor(rewards, dtype=F64)
    size = len(rewards)
    return {
        "log_probs": log_probs[:, None],
        "old_log_probs": reference[:, None],
        "ref_log_probs": reference[:, None],
        "advantages": (rewards - rewards.mean())[:, None],
        "sequence_scores": rewards,
        "response_mask": torch.ones(size, 1, dtype=F64),
        "group_ids": torch.zeros(size, dtype=torch.long),
    }


def push(name, columns, **options):
    """Minus the gradient of the mean over responses, (B,)."""
    leaf = columns["log_probs"].clone().requires_grad_()
    loss, _ = ZOO.policy_losses[name]({**columns, "log_probs": leaf}, **options)
    return -torch.autograd.grad(loss.sum() / len(leaf), leaf)[0][:, 0]


REWARDS = [0.0, 1.0, 0.3, -0.5]
REFERENCE = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=F64).log()


def test_group_variance_is_zero_at_the_tilted_reference_alone():
    tilted = (REFERENCE + torch.tensor(REWARDS, dtype=F64) / BETA).log_softmax(0)
    for name in ("vargrad", "gvpo"):
        best = group(REWARDS, tilted, REFERENCE)
        loss, _ = ZOO.policy_losses[name](best, beta=BETA)
        assert_close(loss, torch.zeros(4, 1, dtype=F64), rtol=0, atol=1e-25)
        assert push(name, best, beta=BETA).abs().max() < 1e-12
        other, _ = ZOO.policy_losses[name](group(REWARDS, tilted, tilted), beta=BETA)
        assert other.sum() > 0.1


def test_the_first_step_of_gvpo_is_that_of_rloo_times_beta():
    columns = group(REWARDS, REFERENCE, REFERENCE)
    rloo = 4 / 3 * columns["advantages"][:, 0]
    assert_close(push("gvpo", columns, beta=BETA), BETA * rloo / 4, rtol=1e-12, atol=1e-15)


def test_a_shift_of_the_groups_rewards_changes_nothing():
    columns = group(REWARDS, REFERENCE + 0.2 * torch.arange(4), REFERENCE)
    moved = {**columns, "advantages": columns["advantages"] + 7}
    for name in ("vargrad", "gvpo"):
        assert_close(push(name, columns), push(name, moved), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["vargrad", "gvpo", "tpo", "real"])
@pytest.mark.parametrize("dropped", [[3], [0, 2], [1, 2, 3]])
def test_a_response_without_an_action_is_no_member_of_its_group(name, dropped):
    columns = group(REWARDS, REFERENCE + 0.2 * torch.arange(4), REFERENCE)
    columns["sequence_scores"] = (columns["sequence_scores"] > 0.2).double()
    kept = [i for i in range(4) if i not in dropped]
    columns["response_mask"][dropped] = 0
    fewer = {key: x[kept] for key, x in columns.items()}
    found, wanted = 4 * push(name, columns), len(kept) * push(name, fewer)
    assert_close(found[kept], wanted, rtol=1e-12, atol=1e-15)
    assert not found[dropped].any()
    assert bool(wanted.any()) == (len(kept) > 1)


def test_real_holds_every_push_below_one_over_tau():
    for shift in (-40.0, -1.0, 0.0, 1.0, 40.0):
        moved = REFERENCE + shift * torch.tensor([1.0, -1, 0.5, 0], dtype=F64)
        columns = group([0.0, 1.0, 1.0, 0.0], moved, REFERENCE)
        found = 4 * push("real", columns, tau=0.5) / 4  # the group's loss is at each of 4 tokens
        assert (found[[1, 2]] >= 0).all()
        assert (found[[0, 3]] <= 0).all()
        assert found.abs().max() <= 2
    # At ratio 1: 1/tau divided by 1 and the number of those with the label.
    columns = group([0.0, 1.0, 0.0, 0.0], REFERENCE, REFERENCE)
    wanted = 2 * torch.tensor([-1 / 4, 1 / 2, -1 / 4, -1 / 4], dtype=F64)
    assert_close(push("real", columns, tau=0.5), wanted, rtol=1e-12, atol=1e-15)


def test_real_leaves_a_group_with_one_label_alone():
    for rewards in ([1.0, 1, 1, 1], [0.0, 0, 0, 0]):
        columns = group(rewards, REFERENCE - 0.3, REFERENCE)
        assert not push("real", columns).any()


def response(gaps, advantage):
    old = torch.full((1, len(gaps)), -3.0, dtype=F64)
    return {
        "old_log_probs": old,
        "log_probs": old + torch.tensor([gaps], dtype=F64),
        "advantages": torch.full_like(old, advantage),
        "response_mask": torch.ones_like(old),
    }


def test_fipo_is_dual_clip_at_the_first_step_and_without_weights():
    for advantage in (1.0, -1.0):
        first = response([0.0, 0.0, 0.0], advantage)
        later = response([0.1, -0.4, 2.4], advantage)
        for columns, options in ((first, {}), (later, {"weight_high": 1.0, "safe_ratio": 99.0})):
            plain = {"clip_low": 0.2, "clip_high": 0.28, "c": 10.0}
            wanted = ZOO.policy_losses["ppo_dual_clip"](columns, **plain)[0]
            found = ZOO.policy_losses["fipo"](columns, **options)[0]
            assert_close(found, wanted, rtol=1e-12, atol=1e-13)


def test_fipo_weighs_a_token_by_what_follows_it():
    columns = response([0.0, 0.0, math.log(1.1)], 1.0)
    weight = ZOO.policy_losses["fipo"](columns, half_life=1.0)[1]["pg_weight"]
    wanted = [[1.1**0.25, 1.1**0.5, 1.1]]  # a half-life of one action
    assert_close(weight, torch.tensor(wanted, dtype=F64), rtol=1e-12, atol=1e-13)


def test_fipo_drops_a_response_with_two_tokens_beyond_c():
    once, twice = response([3.0, 0.0, 0.0], -1.0), response([3.0, 3.0, 0.0], -1.0)
    assert ZOO.policy_losses["fipo"](once)[0].abs().min() > 0
    assert not ZOO.policy_losses["fipo"](twice)[0].any()


def test_the_likelihood_of_right_answers_is_a_mean_over_their_tokens():
    mask = torch.tensor([[1.0, 1, 0], [1, 1, 1], [1, 0, 0]], dtype=F64)
    old = -torch.arange(1.0, 10, dtype=F64).view(3, 3) / 10 * mask
    columns = {
        "old_log_probs": old,
        "log_probs": old,
        "advantages": torch.zeros(3, 3, dtype=F64),
        "sequence_scores": torch.tensor([1.0, 0, 1], dtype=F64),
        "response_mask": mask,
    }
    loss, _ = ZOO.policy_losses["ppo_nll"](columns, mu=0.1)
    token_mean = loss.sum() / 6
    assert_close(token_mean, torch.tensor(0.1 * (0.1 + 0.2 + 0.7) / 3, dtype=F64))
    clip = ZOO.policy_losses["ppo_clip"](columns, clip_high=0.28)[0]
    assert_close(ZOO.policy_losses["ppo_nll"](columns, mu=0.0)[0], clip)
