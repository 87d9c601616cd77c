"""Value losses: gradients, targets of the distributional ones, padding."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from helpers.zoo import ZOO

NAMES = sorted(ZOO.value_losses)
F64 = torch.float64
SUPPORT = torch.linspace(-1, 2, 31, dtype=F64)
WIDTH = 0.1


def batch(seed: int = 0) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    mask = (torch.arange(5) < torch.tensor([5, 3, 0, 1])[:, None]).to(F64)

    def normal(*shape):
        return torch.randn(4, 5, *shape, generator=draw, dtype=F64)

    columns = {n: normal() * mask for n in ("values", "value_preds", "returns")}
    columns["returns"] = columns["returns"].clamp(-0.9, 1.9)
    logits = normal(len(SUPPORT)) * mask[..., None]
    return {**columns, "response_mask": mask, "value_logits": logits, "value_support": SUPPORT}


def gradient(name: str, columns: dict[str, Tensor], **options) -> Tensor:
    leaf_name = "value_logits" if "value_logits" in ZOO.value_losses[name].needs else "value_preds"
    leaf = columns[leaf_name].clone().requires_grad_()
    loss, _ = ZOO.value_losses[name]({**columns, leaf_name: leaf}, **options)
    return torch.autograd.grad(loss.sum(), leaf)[0]


def one(**values) -> dict[str, Tensor]:
    """Columns of a single row from lists; value_support stays as it is."""
    columns = {n: torch.tensor([x], dtype=F64) for n, x in values.items() if n != "value_support"}
    if "value_support" in values:
        columns["value_support"] = torch.as_tensor(values["value_support"], dtype=F64)
    return {**columns, "response_mask": torch.ones(1, len(values["returns"]), dtype=F64)}


# ---------------------------------------------------------------- on a linear head


def test_mse_and_huber_have_the_hand_derived_gradients():
    columns = batch()
    error = columns["value_preds"] - columns["returns"]
    assert_close(gradient("mse", columns), error)
    for delta in (0.3, 1.0):
        assert_close(gradient("huber", columns, delta=delta), error.clamp(-delta, delta))
    assert_close(gradient("huber", columns, delta=1e3), error)


def test_clipped_mse_stops_what_moved_far_enough_towards_the_target():
    # V_old = 0, clip .2: towards the target and beyond / within / away from it / over the target.
    columns = one(values=[0.0] * 4, value_preds=[0.5, 0.1, -0.5, 0.5], returns=[1.0, 1.0, 1.0, 0.3])
    loss, metrics = ZOO.value_losses["clipped_mse"](columns)
    assert_close(2 * loss, torch.tensor([[0.64, 0.81, 2.25, 0.04]], dtype=F64))
    assert metrics["vf_clipfrac"].tolist() == [[1, 0, 0, 0]]
    assert_close(gradient("clipped_mse", columns), torch.tensor([[0, -0.9, -1.5, 0.2]], dtype=F64))


def test_clipped_mse_is_mse_in_a_wide_interval():
    columns = batch(1)
    wide = ZOO.value_losses["clipped_mse"](columns, clip=1e6)[0]
    assert_close(wide, ZOO.value_losses["mse"](columns)[0])


def test_huber_on_a_small_array():
    columns = one(value_preds=[0.5, 3.0, -2.0], returns=[0.0, 0.0, 0.0])
    loss, _ = ZOO.value_losses["huber"](columns, delta=1.0)
    assert_close(loss, torch.tensor([[0.125, 2.5, 1.5]], dtype=F64))


# ---------------------------------------------------------------- HL-Gauss


def targets(returns: Tensor, **options) -> Tensor:
    """The target distribution (N, K), read off the loss: its gradient is softmax(z) - q."""
    logits = torch.zeros(1, len(returns), len(SUPPORT), dtype=F64)
    columns = one(returns=returns.tolist(), value_support=SUPPORT) | {"value_logits": logits}
    return (1 / len(SUPPORT) - gradient("hl_gauss", columns, **options))[0]


@pytest.mark.parametrize("sigma", [0.5, 0.75, 2.0])
def test_hl_gauss_target_is_a_distribution_around_the_return(sigma):
    reach = 4 * sigma * WIDTH
    inside = torch.linspace(-1 + reach, 2 - reach, 101, dtype=F64)
    q = targets(inside, sigma=sigma)
    assert (q > -1e-12).all()
    assert_close(q.sum(-1), torch.ones(101, dtype=F64))
    assert_close(q @ SUPPORT, inside, rtol=0, atol=0.01 * WIDTH)
    variance = (q * (SUPPORT - inside[:, None]).square()).sum(-1)
    expected = (sigma**2 + 1 / 12) * WIDTH**2  # the Gaussian's and a bin's own
    assert_close(variance, torch.full_like(variance, expected), rtol=0.1, atol=0)


def test_hl_gauss_clips_returns_to_the_support_and_says_so():
    returns = torch.tensor([-50.0, -1.0, 2.0, 7.0, 0.3], dtype=F64)
    q = targets(returns)
    assert torch.equal(q[0], q[1])
    assert torch.equal(q[2], q[3])
    ends = (q @ SUPPORT)[[1, 2]]
    inwards = torch.tensor([-1 + 0.3688 * WIDTH, 2 - 0.3688 * WIDTH], dtype=F64)
    assert_close(ends, inwards, rtol=0, atol=1e-4 * WIDTH)
    columns = one(returns=returns.tolist(), value_support=SUPPORT)
    columns["value_logits"] = torch.zeros(1, 5, len(SUPPORT), dtype=F64)
    clipped = ZOO.value_losses["hl_gauss"](columns)[1]["returns_clipped"]
    assert clipped.tolist() == [[1, 0, 0, 1, 0]]


def test_hl_gauss_is_still_at_its_target():
    returns = torch.tensor([0.0, 0.62, 1.4], dtype=F64)
    columns = one(returns=returns.tolist(), value_support=SUPPORT)
    columns["value_logits"] = targets(returns).clamp(min=1e-300).log()[None]
    worst = gradient("hl_gauss", columns).abs().max()
    assert worst < 1e-14


def test_hl_gauss_narrows_to_the_nearest_bin():
    assert_close(
        targets(torch.tensor([0.52], dtype=F64), sigma=0.01).argmax(-1), torch.tensor([15])
    )
    assert targets(torch.tensor([0.52], dtype=F64), sigma=0.01)[0, 15] > 1 - 1e-12


# ---------------------------------------------------------------- BCE


def test_bce_with_two_bins_is_logistic_regression():
    draw = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(1, 6, 2, generator=draw, dtype=F64)
    columns = one(returns=[0.0, 1, 1, 0, 0.25, 0.8], value_support=[0.0, 1.0])
    columns["value_logits"] = logits
    loss, _ = ZOO.value_losses["bce"](columns)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        logits[..., 1] - logits[..., 0], columns["returns"], reduction="none"
    )
    assert_close(loss, expected)


def test_bce_is_least_where_the_value_is_the_mean_return():
    # Returns -1 and .2 with frequencies .3 and .7: the mean is -.16 = V at these logits.
    columns = one(returns=[-1.0] * 3 + [0.2] * 7, value_support=[-1.0, 2.0])
    best = torch.tensor([0.72, 0.28], dtype=F64).log()
    columns["value_logits"] = best.expand(1, 10, 2)
    assert gradient("bce", columns).sum((0, 1)).abs().max() < 1e-14
    columns["value_logits"] = (best + torch.tensor([0.1, 0.0])).expand(1, 10, 2)
    assert gradient("bce", columns).sum((0, 1)).abs().max() > 0.1


def test_bce_sees_the_bins_only_through_the_value():
    spread, narrow = torch.zeros(31, dtype=F64), torch.full((31,), -60.0, dtype=F64)
    narrow[15] = 60.0  # all in the middle bin: the same V = .5
    losses = []
    for logits in (spread, narrow):
        columns = one(returns=[0.2], value_support=SUPPORT) | {
            "value_logits": logits.view(1, 1, -1)
        }
        losses.append(ZOO.value_losses["bce"](columns)[0])
    assert_close(losses[0], losses[1])


def test_bce_clips_returns_to_the_support_and_says_so():
    columns = one(returns=[-0.4, 0.0, 1.0, 1.7], value_support=[0.0, 1.0])
    columns["value_logits"] = torch.tensor([0.2, -0.7], dtype=F64).expand(1, 4, 2)
    loss, metrics = ZOO.value_losses["bce"](columns)
    assert torch.equal(loss[:, 0], loss[:, 1])
    assert torch.equal(loss[:, 2], loss[:, 3])
    assert metrics["returns_clipped"].tolist() == [[1, 0, 0, 1]]


def test_bce_learns_from_a_critic_that_is_surely_wrong():
    columns = one(returns=[1.0], value_support=[0.0, 1.0])
    columns["value_logits"] = torch.tensor([[[40.0, -40.0]]], dtype=F64)
    loss, _ = ZOO.value_losses["bce"](columns)
    assert_close(loss.item(), 80.0)
    assert_close(gradient("bce", columns), torch.tensor([[[1.0, -1.0]]], dtype=F64))


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize("name", NAMES)
def test_float32_stays_float32(name):
    columns = {n: x.float() for n, x in batch().items()}
    loss, _ = ZOO.value_losses[name](columns)
    assert loss.dtype == torch.float32
    assert_close(loss.double(), ZOO.value_losses[name](batch())[0], rtol=1e-4, atol=1e-5)
