"""The kit's finite differences hold still what a function detaches, and nothing else."""

import torch

from rlzoo.plugin.component import read_component
from rlzoo_lab.kit import checks


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.exp()


def own_backward(log_probs, old_log_probs, advantages):
    """Source: here."""
    return -advantages * Exp.apply(log_probs - old_log_probs)


def weighted(log_probs, old_log_probs, advantages):
    """Source: here."""
    return -(log_probs - old_log_probs).exp().clamp(max=1.2).detach() * advantages * log_probs


def without_a_graph(log_probs, old_log_probs, advantages):
    """Source: here."""
    with torch.no_grad():
        weight = (log_probs - old_log_probs).exp()
    return -weight * advantages * log_probs


def by_a_number(log_probs, old_log_probs, advantages):
    """Source: here."""
    top = float((log_probs - old_log_probs).max().detach())
    return -advantages * (log_probs - old_log_probs).exp() / (1 + abs(top))


def data(log_probs, old_log_probs, advantages):
    """Source: here."""
    return -advantages * log_probs * (log_probs.data - old_log_probs).exp()


def test_what_is_detached_is_held_still(zoo):
    for function in (own_backward, weighted, without_a_graph, by_a_number, data):
        component = read_component("policy_losses", function, "a test", couples="batch")
        (found,) = [
            r for r in checks.run_checks(component, zoo) if r.name == "backward_is_the_slope"
        ]
        assert found.passed, (function.__name__, found.message)
