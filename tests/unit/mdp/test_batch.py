"""A batch holds exact zeros off the mask."""

import torch

from rlzoo.mdp.batch import Batch


def test_what_is_added_is_zero_off_the_mask():
    batch = Batch(torch.tensor([[1.0, 0.0]]))
    batch.add("rewards", torch.tensor([[2.0, torch.nan]]))
    assert batch["rewards"].tolist() == [[2.0, 0.0]]
