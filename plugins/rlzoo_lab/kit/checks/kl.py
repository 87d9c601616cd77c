"""Checks of KL penalties against the exact KL: a vocabulary small enough to enumerate.

Value and gradient are checked separately because they are independent: the reward uses the value,
the loss the gradient. Each state has a policy softmax(logits) and a reference; each action of each
state is a response of one token, so that a mean under the policy is a sum over actions.
"""

from itertools import pairwise

import torch
from torch import Tensor

from rlzoo_lab.kit.checks import slope
from rlzoo_lab.kit.checks.functions import float64_is_kept
from rlzoo_lab.kit.checks.losses import rounding_is_harmless
from rlzoo_lab.kit.checks.made_up import Columns
from rlzoo_lab.kit.checks.slope import backward_is_the_slope
from rlzoo_lab.kit.checks.subject import NotApplicable, Subject, small

STATES, VOCABULARY = 6, 7


def value_is_a_divergence(s: Subject) -> str:
    """Its mean under the policy is 0 at the reference and grows with the distance from it."""
    note = ""
    for _ in s.variants():
        reference, direction = _logits(0), _logits(1)
        means, exact = [], []
        for distance in (0.0, 0.3, 0.6, 1.0):
            logits = reference + distance * direction
            columns, policy = _enumerated(s, logits, reference)
            penalty = s.call(columns)["penalty"].view(STATES, VOCABULARY)
            means.append((policy * penalty).sum(-1))
            exact.append(_kl(logits, reference))
            if distance == 0:
                small(penalty, 1e-9, "is {} where policy = reference")
        for near, far in pairwise(means):
            fault = "its mean falls as the policy leaves the reference: sign flipped?"
            assert (far - near).min() > 1e-9, fault
        if not s.options:
            unbiased = torch.allclose(torch.stack(means), torch.stack(exact), atol=1e-9)
            note = "value: the reverse KL in expectation" if unbiased else "value: not the KL"
    return note


def gradient_leads_to_the_reference(s: Subject) -> str:
    """As a loss: the gradient of the reverse KL, of the forward KL, none in expectation (reported),
    or at least one that lowers the reverse KL. The message names it."""
    note = ""
    reference = _logits(0)
    logits = reference + 0.7 * _logits(1)
    reverse = _slope(lambda x: _kl(x, reference), logits)
    forward = _slope(lambda x: _kl(reference, x), logits)
    for _ in s.variants():
        if (near := _gradient(s, reference.clone(), reference)) is not None:
            small(near, 1e-9, "as a loss, pushes the policy away from the reference")
        got = _gradient(s, logits, reference)
        if got is None:
            return "gradient: none, because it is a constant in the loss"
        if torch.allclose(got, reverse, atol=1e-9):
            said = "gradient: reverse KL"
        elif torch.allclose(got, forward, atol=1e-9):
            said = "gradient: forward KL"
        elif float(got.abs().max()) < 1e-9:
            said = "gradient: zero in expectation, useless as a loss"
        else:
            along = float((got * reverse).sum() / (got.norm() * reverse.norm()))
            assert along > 0.1, f"as a loss, raises the KL (cosine {along:.2f} with its gradient)"
            said = f"gradient: not a KL's, but its cosine with the reverse KL's is {along:.2f}"
        note = note or said
    return note


def gradient_is_the_slope(s: Subject) -> None:
    """If it is weighted by a ratio to `old_log_probs`, its gradient is the slope of its value: no
    target carries one. Other penalties may be straight-through."""
    if "old_log_probs" not in s.needs:
        raise NotApplicable("does not use old_log_probs, so it may be straight-through")
    slope.gradient_is_the_slope(s)


def rounding_moves_no_gradient(s: Subject) -> None:
    """As a loss with policy = reference, rounding of 1e-7 hardly changes its gradient."""
    s.require("log_probs")
    for columns in s.trials():
        anchor = "teacher_log_probs" if "teacher_log_probs" in s.needs else "ref_log_probs"
        rounding_is_harmless(s, columns, anchor)


def _logits(seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(STATES, VOCABULARY, generator=draw, dtype=torch.float64)


def _kl(logits: Tensor, other: Tensor) -> Tensor:
    """KL(softmax(logits) || softmax(other)) of each state."""
    gap = logits.log_softmax(-1) - other.log_softmax(-1)
    return (logits.softmax(-1) * gap).sum(-1)


def _slope(f, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(f(x).sum(), x)
    return gradient


def _enumerated(s: Subject, logits: Tensor, reference: Tensor) -> tuple[Columns, Tensor]:
    """Columns of every (state, action) as a row with T = 1, and the policy (S, V)."""
    count = STATES * VOCABULARY
    one = torch.ones(count, 1, dtype=torch.float64)
    columns = s.batch(mask=one, groups=torch.arange(count))
    log_probs = logits.log_softmax(-1)
    for name in ("log_probs", "old_log_probs", "sampler_log_probs"):
        columns[name] = log_probs.reshape(count, 1)
    columns["old_log_probs"] = columns["sampler_log_probs"] = columns["log_probs"].detach()
    # The reference or the teacher: what the penalty is to. The full KL is made at rollout: a
    # number by the time of the loss.
    kl = _kl(logits, reference).detach().repeat_interleave(VOCABULARY)[:, None]
    for name in ("ref_log_probs", "teacher_log_probs"):
        columns[name] = reference.log_softmax(-1).reshape(count, 1)
    columns["full_kl"] = columns["teacher_kl"] = kl
    columns["entropy"] = (
        -(log_probs.exp() * log_probs).sum(-1).repeat_interleave(VOCABULARY)[:, None]
    )
    return columns, log_probs.exp()


def _gradient(s: Subject, logits: Tensor, reference: Tensor) -> Tensor | None:
    """d/d logits of the mean penalty under a policy held fixed; None if there is none.

    Fails where the gradient of each single token is 0 though a gradient was let in: lost on the
    way, or cancelled by one that leaks through the reference.
    """
    logits = logits.detach().requires_grad_()
    with torch.enable_grad():
        columns, policy = _enumerated(s, logits, reference)
        penalty = s.call(columns)["penalty"]
        if not penalty.requires_grad:
            return None
        (each,) = torch.autograd.grad(penalty.square().sum() + penalty.sum(), logits,
                                      retain_graph=True)  # fmt: skip
        apart = bool((logits - reference).abs().max() > 0)
        assert not apart or bool(each.any()), "no gradient at any token: detached?"
        mean = (policy.detach().reshape(-1, 1) * penalty).sum()
        (gradient,) = torch.autograd.grad(mean, logits)
    return gradient


ALL = (
    value_is_a_divergence, gradient_leads_to_the_reference, gradient_is_the_slope,
    rounding_moves_no_gradient, backward_is_the_slope, float64_is_kept,
)  # fmt: skip
