"""Gradients are summed over ranks in place, and of weights that a rank had no row for, too."""

from types import SimpleNamespace

import torch
from torch import nn

from rlzoo.accel.ranks import Ranks


def test_all_gradients_are_summed_in_place(monkeypatch):
    def both(x, async_op):  # the other rank has the same
        x.mul_(2)
        return SimpleNamespace(wait=lambda: None)

    monkeypatch.setattr(torch.distributed, "all_reduce", both)
    network = nn.Sequential(nn.Linear(4, 2), nn.Linear(3, 3).double())
    network[0].bias.requires_grad_(False)
    given = torch.full_like(network[1].weight, 3.0)
    network[1].weight.grad = given
    Ranks(0, 2).sum_gradients([network])
    assert network[1].weight.grad is given
    assert given.eq(6).all()
    assert network[0].weight.grad.eq(0).all()
    assert network[0].bias.grad is None
