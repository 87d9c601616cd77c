"""Gradients are summed over ranks a few messages at a time, in place."""

import torch
from torch import nn

from rlzoo.accel import ranks


def test_small_gradients_go_together_and_all_are_summed(monkeypatch):
    sent = []

    def both(x):  # the other rank has the same
        sent.append(x.numel())
        x.mul_(2)

    monkeypatch.setattr(torch.distributed, "all_reduce", both)
    monkeypatch.setattr(ranks, "BUCKET", 30)
    layers = [nn.Linear(4, 2), nn.Linear(2, 40), nn.Linear(3, 3).double(), nn.Linear(3, 3)]
    network = nn.Sequential(*layers)
    weights = list(network.parameters())
    for i, weight in enumerate(weights[1:], 1):
        weight.grad = torch.full_like(weight, float(i))
    ranks.Ranks(0, 2).sum_gradients([network])
    assert sent == [10, 80, 40, 12, 12]  # none beyond 30 but alone, dtypes apart
    assert weights[0].grad.eq(0).all()  # this rank had none
    for i, weight in enumerate(weights[1:], 1):
        assert weight.grad.eq(2 * i).all()
        assert weight.grad.shape == weight.shape
