"""A method with its new part switched off is the method that it was built on."""

import pytest
import torch

from helpers.zoo import ZOO
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.kit.checks.made_up import made_up

SEEDS = (0, 3, 4)  # with right and wrong responses in a group
# loss, its options -> the loss that it then is, its options, and what the gradient is times
LOSSES = [
    ("drpo", {"eps": 1e12}, "surrogate", {}, 1.0),
    ("delightful", {"eta": 1e12}, "reinforce", {}, 0.5),
    ("opsm", {"delta": 1e9}, "ppo_clip", {"clip_high": 0.2}, 1.0),
    ("high_entropy", {"fraction": 1.0}, "ppo_clip", {"clip_high": 0.28}, 1.0),
    ("ripo", {"delta_low": 0.9, "delta_high": 0.9, "ratio_min": 0.8, "ratio_max": 1.2},
     "ppo_clip", {"clip_low": 0.2, "clip_high": 0.2}, 1.0),
    ("dis", {"clip_low": 1.0, "clip_high": 1e9}, "surrogate", {}, 1.0),
    ("ipo", {"threshold": 1.0, "kl_coef": 0.0}, "surrogate", {}, 1.0),
    ("m2po", {"threshold": 1e9}, "surrogate", {}, 1.0),
    ("cppo", {"budget": 1.0, "weight_min": 1.0}, "dppo_tv", {}, 1.0),
]  # fmt: skip
ESTIMATORS = [
    ("mopd", {"alpha": 0.0}, "opd", {}),
    ("iw_opd", {"weight_max": 1.0}, "opd", {}),
    ("gigpo", {"step_weight": 0.0}, "dr_grpo", {}),
    ("vtrace", {"lam": 1.0}, "mc", {}),
    ("prime", {}, "rloo", {}),
    ("sdpo", {}, "opd", {}),
    ("rlsd", {"strength": 0.0}, "grpo", {}),
    ("vopd", {}, "opd", {}),
]


def batch(seed):
    """Every column; where a method reads a column of its own, that says nothing new."""
    c = made_up(ZOO, seed)
    c["sampler_log_probs"] = c["old_log_probs"]
    c["implicit_rewards"] = torch.zeros_like(c["rewards"])
    c["self_teacher_log_probs"] = c["teacher_log_probs"]
    c["teacher_kl"] = torch.zeros_like(c["rewards"])
    c["sequence_rewards"] = c["sequence_scores"]
    return c


def gradient(name, c, options):
    leaf = c["log_probs"].clone().requires_grad_()
    loss = ZOO.policy_losses[name]({**c, "log_probs": leaf}, **options)
    return torch.autograd.grad(loss[0].sum(), leaf)[0]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "options", "known", "known_options", "times"), LOSSES,
                         ids=[case[0] for case in LOSSES])  # fmt: skip
def test_a_loss_without_its_new_part(name, options, known, known_options, times, seed):
    c = batch(seed)
    found, want = gradient(name, c, options), gradient(known, c, known_options)
    assert want.abs().max() > 0.1
    torch.testing.assert_close(found, times * want, rtol=1e-9, atol=1e-9)
    switched_on = {"opsm": {"delta": 0.0}, "m2po": {"threshold": 1e-4}}.get(name, {})
    assert not torch.allclose(gradient(name, c, switched_on), times * want)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "options", "known", "known_options"), ESTIMATORS,
                         ids=[case[0] for case in ESTIMATORS])  # fmt: skip
def test_an_estimator_without_its_new_part(name, options, known, known_options, seed):
    c = batch(seed)
    found, want = (ZOO.estimators[n](c, **o)["advantages"] for n, o in
                   ((name, options), (known, known_options)))  # fmt: skip
    assert want.abs().max() > 0.1
    torch.testing.assert_close(found, want, rtol=1e-9, atol=1e-9)


def test_ppo_with_a_penalty_has_the_gradient_of_its_objective():
    """Of -E_old[r A] + coef KL(pi, pi_old) at one state, over all tokens; at pi = pi_old, of the
    surrogate alone."""
    plan = make_plan(compose(["recipe=ppo_penalty", "model=tiny"], ZOO), ZOO)
    coef, draw = plan.recipe.config.kl.coef, torch.Generator().manual_seed(0)
    assert plan.own_reference
    old, moved, advantages = torch.randn(3, 7, generator=draw, dtype=torch.float64)
    for logits in (old, old + 0.7 * moved):
        logits = logits.clone().requires_grad_()
        log_pi, log_old = logits.log_softmax(-1), old.log_softmax(-1)
        columns = {"log_probs": log_pi, "old_log_probs": log_old, "ref_log_probs": log_old,
                   "advantages": advantages}  # fmt: skip
        columns = {name: x[:, None] for name, x in columns.items()}
        terms = plan.policy_loss(columns)[0] + coef * plan.kl(columns)
        found = torch.autograd.grad((log_old.exp() * terms[:, 0]).sum(), logits)[0]
        log_pi = logits.log_softmax(-1)
        gain = (log_pi.exp() * advantages).sum()
        kl = (log_pi.exp() * (log_pi - log_old)).sum()
        (want,) = torch.autograd.grad(coef * kl - gain, logits, retain_graph=True)
        torch.testing.assert_close(found, want, rtol=0, atol=1e-12)
    assert not torch.allclose(want, torch.autograd.grad(-gain, logits)[0])
