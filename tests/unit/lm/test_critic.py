"""A critic's columns, by hand."""

import math
from types import SimpleNamespace

import pytest
import torch

from rlzoo.lm.critic import Critic


def test_values_of_bins_are_before_each_token():
    logits = torch.tensor([[[0.0, 0.0], [0.0, math.log(3)], [0.0, 100.0]]])
    found = Critic.columns(SimpleNamespace(support=torch.tensor([0.0, 1.0])), logits)
    assert found["value_preds"].tolist() == [pytest.approx([0.5, 0.75])]
    assert torch.equal(found["value_logits"], logits[:, :2])
