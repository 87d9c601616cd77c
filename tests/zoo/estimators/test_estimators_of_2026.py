"""Limits and worked examples of SoftmaxGRPO, RAFT, SPO and the blended baseline."""

import itertools

import pytest
import torch

from helpers.zoo import ZOO

F64 = torch.float64


def group(rewards, values=None):
    rewards = torch.tensor(rewards, dtype=F64)
    mask = torch.ones(len(rewards), 1, dtype=F64)
    return {
        "sequence_rewards": rewards,
        "sequence_scores": rewards,
        "response_mask": mask,
        "group_ids": torch.zeros(len(rewards), dtype=torch.long),
        "values": mask * (0.0 if values is None else values),
    }


def advantages(name, columns, **options):
    return ZOO.estimators[name](columns, **options)["advantages"][:, 0]


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_softmax_grpo_lies_between_maxrl_and_dr_grpo():
    columns = group([0.0, 1.0, 0.0, 1.0, 0.0])
    close(advantages("softmax_grpo", columns, tau=1e-3), advantages("maxrl", columns))
    hot = 1e6 * advantages("softmax_grpo", columns, tau=1e6)
    close(hot, advantages("dr_grpo", columns), 1e-5)


def test_softmax_grpo_sums_to_zero_and_does_not_overflow():
    for tau in (1e-4, 0.3, 50.0):
        found = advantages("softmax_grpo", group([-900.0, 3.0, 2.9, 900.0]), tau=tau)
        assert abs(found.sum()) < 1e-12
        assert found.min() >= -1
        assert found.max() <= 3


@pytest.mark.parametrize("p", [0.1, 0.6])
def test_raft_has_the_expected_gradient_of_the_success_rate(p):
    cases = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)), dtype=F64)
    chance = torch.where(cases > 0, torch.tensor(p, dtype=F64), 1 - p).prod(1)
    found = advantages("raft", group(cases.flatten().tolist())).view(-1, 3)
    slope = (chance * (found * (cases - p)).mean(1)).sum()  # d log pi / d theta = r - p
    close(slope, torch.tensor(p * (1 - p), dtype=F64))


def test_blend_takes_the_critics_value_until_the_group_contradicts_it():
    # G = 4, rewards 0 and 1: s = 1/16, so a difference of up to 0.25 is not significant.
    rewards = torch.tensor([1.0, 0, 1, 0], dtype=F64)
    for value in (0.3, 0.5, 0.74):
        close(advantages("blend", group(rewards.tolist(), value)), rewards - value)
    # V = 0: D = 0.25 - 0.0625 and w = 0.75, so b = 0.375.
    close(advantages("blend", group(rewards.tolist(), 0.0)), rewards - 0.375)
    # Rewards of -1 and 1, as in the paper: s = 1/4, D = 4 - 1/4, w = 15/16, b = 1 - 2/16.
    columns = group([1.0, 1, 1, 1], -1.0)
    close(advantages("blend", columns, low=-1.0), torch.full((4,), 2 / 16, dtype=F64))


def test_the_blends_weight_minimises_the_error_of_its_baseline():
    rewards, value = [1.0, 1, 1, 0], 0.1
    noise, error = 1 / 16, (0.75 - 0.1) ** 2 - 1 / 16
    weights = torch.linspace(0, 1, 100_001, dtype=F64)
    best = weights[(weights**2 * noise + (1 - weights) ** 2 * error).argmin()]
    baseline = 1 - advantages("blend", group(rewards, value))[0]
    assert baseline.item() == pytest.approx((best * 0.75 + (1 - best) * value).item(), abs=1e-5)


def test_the_blends_critic_learns_the_return_and_a_lone_response_is_compared_with_it():
    found = ZOO.estimators["blend"](group([1.0], 0.3))
    close(found["advantages"], torch.tensor([[0.7]], dtype=F64))
    close(found["returns"], torch.tensor([[1.0]], dtype=F64))


def test_a_response_without_an_action_has_no_share_in_the_blends_value():
    columns = group([1.0, 1, 0, 0], 0.4)
    columns["response_mask"][3] = columns["values"][3] = 0
    found = advantages("blend", columns)  # abs(m - V) = 0.1: not significant, so b = V
    close(found, torch.tensor([0.6, 0.6, -0.4, 0], dtype=F64))


def test_blend_refuses_a_reward_range_without_width(golden):
    with golden.refuses(ValueError):
        ZOO.estimators["blend"].refuse({"low": 1.0, "high": 1.0})


@pytest.mark.parametrize("value", [0.5, -3.0])
def test_spo_without_a_history_is_grpo_with_the_batch_as_one_group(value):
    columns = group([0.0, 1.0, 0.25, 1.0])
    columns["history"] = torch.full((4,), value, dtype=F64)
    close(advantages("spo", columns), advantages("grpo", columns, eps=1e-8))


def test_spo_compares_each_response_with_its_own_prompts_history():
    columns = group([1.0, 1.0, 1.0, 0.0])  # two easy prompts, a hard one that was solved, and not
    columns["history"] = torch.tensor([0.9, 0.9, 0.1, 0.1], dtype=F64)
    found = advantages("spo", columns)  # d = 0.1, 0.1, 0.9, -0.1: mean 0.25, sum of squares 0.59
    close(found, torch.tensor([-0.15, -0.15, 0.65, -0.35], dtype=F64) / (0.59 / 3) ** 0.5, 1e-6)
    columns["history"] = columns["sequence_rewards"] - 0.3
    assert not advantages("spo", columns).any()
