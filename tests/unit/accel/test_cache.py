"""What the rows of a growing cache see."""

import torch

from rlzoo.accel.decode import Growing


def test_a_mask_is_given_where_there_is_padding_alone():
    cache = Growing.__new__(Growing)
    cache.seen, cache.padded = torch.tensor([[0, 1], [1, 1]]), True
    assert cache.advance().tolist() == [[0, 1, 1], [1, 1, 1]]
    cache.padded = False
    assert cache.advance() is None
