"""VIMPO: what its two parts are, and what of them is left where."""

import pytest
import torch

from helpers.zoo import ZOO
from rlzoo_lab.kit.checks.made_up import made_up

VIMPO = ZOO.policy_losses["vimpo"]


def columns(seed=0):
    found = made_up(ZOO, seed)
    found["advantages"] = (found["sequence_scores"] - 0.4)[:, None] * found["response_mask"]
    return found


def gradient(given, **options):
    leaf = given["log_probs"].clone().requires_grad_()
    loss, _ = VIMPO({**given, "log_probs": leaf}, **options)
    weights = ZOO.aggregations["token_mean"](given)
    total = (weights * loss).sum()
    return total, torch.autograd.grad(total, leaf)[0]


def test_the_value_loss_is_the_mean_over_responses():
    """1/2 [sum_t (rho_t - sg kappa_t) - (R - mean R)]^2, whatever the lengths."""
    given = columns()
    mask = given["response_mask"]
    leaf = given["log_probs"].clone().requires_grad_()
    delta = 0.2 * (leaf - given["ref_log_probs"] - given["full_kl"]) * mask
    acts = mask.sum(1) > 0
    target = (given["advantages"] * mask).sum(1) / mask.sum(1).clamp(min=1)
    want = ((delta.sum(1) - target).square() / 2)[acts].mean()
    total, slope = gradient(given, beta=0.2, actor_coef=0.0)
    torch.testing.assert_close(total, want)
    torch.testing.assert_close(slope, torch.autograd.grad(want, leaf)[0])


def test_a_policy_that_is_its_value_is_left_alone():
    """Where the log-ratios add up to what the reward says, the value part has no gradient."""
    given = columns()
    mask = given["response_mask"]
    length = mask.sum(1, keepdim=True).clamp(min=1)
    given["log_probs"] = (given["ref_log_probs"] + given["full_kl"]
                          + given["advantages"] / 0.2 / length) * mask  # fmt: skip
    _, slope = gradient(given, beta=0.2, actor_coef=0.0)
    assert slope.abs().max() < 1e-12
    _, metrics = VIMPO(given, beta=0.2)
    assert metrics["pg_value_error"].abs().max() < 1e-12


def test_the_actor_reads_no_reward():
    """Its part is the same for other advantages, and 0 at the reference."""
    given = columns()
    other = {**given, "advantages": -2 * given["advantages"]}
    parts = []
    for some in (given, other):
        with_actor, without = (gradient(some, beta=0.2, actor_coef=a)[1] for a in (1.0, 0.0))
        parts.append(with_actor - without)
    torch.testing.assert_close(*parts)
    assert parts[0].abs().max() > 1e-3
    given["ref_log_probs"] = given["log_probs"] = given["old_log_probs"]
    given["full_kl"] = torch.zeros_like(given["full_kl"])
    still = (
        gradient(given, beta=0.2, actor_coef=1.0)[1] - gradient(given, beta=0.2, actor_coef=0)[1]
    )
    assert still.abs().max() < 1e-12


def test_the_recipe_takes_one_step_per_batch(zoo):
    from rlzoo.recipe.compose import compose
    from rlzoo.recipe.plan import make_plan

    plan = make_plan(compose(["recipe=vimpo"], zoo), zoo)
    assert plan.one_update
    assert plan.reference
    assert plan.critic is False or plan.critic is None
    assert plan.estimator.name == "dr_grpo"


@pytest.mark.parametrize("seed", [0, 1])
def test_whitening_is_over_the_mini_batch(seed):
    """Twice the log-ratios, the same push: but for the authors' 1e-8 beside the variance."""
    given = columns(seed)
    given["old_log_probs"] = given["log_probs"]
    pushes = [gradient(given, beta=beta, actor_coef=1.0)[1] - gradient(given, beta=beta, actor_coef=0.0)[1]  # noqa: E501
              for beta in (0.2, 0.4)]  # fmt: skip
    torch.testing.assert_close(*pushes, rtol=1e-4, atol=1e-8)
