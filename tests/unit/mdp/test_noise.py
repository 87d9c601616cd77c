"""Numbers that are functions of where they are used."""

import torch

from rlzoo.mdp.noise import uniforms


def test_rows_share_no_number():
    drawn = uniforms(0, "x", 0, torch.arange(3), 64)
    assert drawn.unique().numel() == drawn.numel()


def test_a_rows_numbers_do_not_depend_on_the_others():
    both = uniforms(3, "x", 1, torch.tensor([5, 9]), 8)
    assert torch.equal(both[1:, :4], uniforms(3, "x", 1, torch.tensor([9]), 4))
