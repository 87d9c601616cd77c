"""A batch holds exact zeros off the mask, and only gains columns."""

import pytest
import torch

from rlzoo.mdp.batch import Batch


def test_what_is_added_is_zero_off_the_mask():
    batch = Batch(torch.tensor([[1.0, 0.0]]))
    batch.add("rewards", torch.tensor([[2.0, torch.nan]]))
    batch.update({"values": torch.tensor([[3.0, 4.0]])})
    assert batch["rewards"].tolist() == [[2.0, 0.0]]
    assert batch["values"].tolist() == [[3.0, 0.0]]


def test_a_batch_only_gains_columns():
    batch = Batch(torch.ones(1, 2))
    batch["rewards"] = torch.ones(1, 2)
    for change in (
        lambda: batch.add("rewards", torch.zeros(1, 2)),
        lambda: batch.update(rewards=torch.zeros(1, 2)),
        lambda: batch.pop("rewards"),
        lambda: batch.clear(),
    ):
        with pytest.raises((TypeError, ValueError)):
            change()
    assert {name: x.tolist() for name, x in batch.items()} == {
        "response_mask": [[1.0, 1.0]],
        "rewards": [[1.0, 1.0]],
    }
