"""Aggregations: a weight for each token of the mini-batch, however it is cut afterwards."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.testing import assert_close

from helpers.zoo import ZOO

NAMES = sorted(ZOO.aggregations)
F64 = torch.float64


def weigh(name: str, mask: Tensor, **options) -> Tensor:
    return ZOO.aggregations[name]({"response_mask": mask}, **options)


@st.composite
def masks(draw):
    """A mask (B, T) with holes; at least one action."""
    rows, steps = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    bits = draw(st.lists(st.booleans(), min_size=rows * steps, max_size=rows * steps))
    mask = torch.tensor(bits, dtype=F64).view(rows, steps)
    mask[draw(st.integers(0, rows - 1)), draw(st.integers(0, steps - 1))] = 1
    return mask


many = settings(max_examples=60, derandomize=True, deadline=None)


def by_hand(name: str, loss: Tensor, mask: Tensor, length: int = 1024) -> float:
    """The mean or sum that the name says, row by row."""
    rows = [row[keep] for row, keep in zip(loss, mask.bool(), strict=True) if keep.any()]
    tokens = torch.cat(rows)
    if name == "token_sum":
        return float(tokens.sum())
    if name == "token_mean":
        return float(tokens.sum() / len(tokens))
    sums = torch.stack([row.sum() for row in rows])
    means = torch.stack([row.sum() / len(row) for row in rows])
    return {
        "seq_mean_token_sum": float(sums.sum() / len(rows)),
        "seq_mean_token_mean": float(means.sum() / len(rows)),
        "seq_mean_token_sum_norm": float(sums.sum() / len(rows) / length),
    }[name]


FIVE = ("token_mean", "token_sum", "seq_mean_token_sum", "seq_mean_token_mean",
        "seq_mean_token_sum_norm")  # fmt: skip


@pytest.mark.parametrize("name", FIVE)
@many
@given(mask=masks(), seed=st.integers(0, 99))
def test_is_the_mean_that_its_name_says(name, mask, seed):
    loss = torch.randn(mask.shape, generator=torch.Generator().manual_seed(seed), dtype=F64)
    got = (weigh(name, mask) * loss).sum().item()
    assert_close(got, by_hand(name, loss, mask), rtol=1e-12, atol=1e-13)


def test_a_small_mask():
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]], dtype=F64)
    expected = {"token_mean": (1 / 6, 1 / 6), "token_sum": (1, 1), "seq_mean_token_sum": (0.5, 0.5),
                "seq_mean_token_mean": (1 / 8, 1 / 4)}  # fmt: skip
    for name, (long, short) in expected.items():
        each = torch.tensor([[long], [short], [0]], dtype=F64)
        assert_close(weigh(name, mask), each * mask)
    normed = weigh("seq_mean_token_sum_norm", mask, length=10)
    assert_close(normed, weigh("seq_mean_token_sum", mask) / 10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cuts", [[1] * 6, [2, 2, 2], [1, 4, 1], [5, 1]])
def test_cutting_into_micro_batches_changes_no_gradient(name, cuts):
    draw = torch.Generator().manual_seed(0)
    mask = (torch.arange(5) < torch.tensor([5, 1, 0, 3, 4, 2])[:, None]).to(F64)
    features = torch.randn(6, 5, 3, generator=draw, dtype=F64)
    weights = weigh(name, mask)  # of the whole mini-batch

    def accumulated(sizes):
        theta = torch.ones(3, dtype=F64, requires_grad=True)
        parts = zip(weights.split(sizes), features.split(sizes), strict=True)
        for w, x in parts:
            (w * (x @ theta).square()).sum().backward()
        return theta.grad

    assert_close(accumulated(cuts), accumulated([6]), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_any_mask_without_an_action_weighs_nothing(name, dtype):
    weights = weigh(name, torch.zeros(3, 4, dtype=dtype))
    assert weights.is_floating_point()
    assert torch.equal(weights, torch.zeros(3, 4))
