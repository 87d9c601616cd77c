"""Rows of like length go into one pass."""

import torch

from rlzoo.accel.layout import pack


def test_a_pass_ends_before_much_of_it_is_padding():
    lengths = torch.tensor([10, 1, 10, 1])
    mask = (torch.arange(10) < lengths[:, None] - 1).float()
    columns = {"prompt_mask": torch.ones(4, 1), "response_attention": mask}
    assert [part.tolist() for part in pack(columns, 40)] == [[0, 2], [1, 3]]
