"""The log-prob head against plain log_softmax: values, gradients, and what it holds."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from rlzoo.accel import head
from rlzoo.accel import passes as lm_memory

ROWS, HIDDEN, VOCABULARY = 7, 5, 11
CHUNKS = {"a row": 1, "three rows": 3 * VOCABULARY, "all": 2**20}


@pytest.fixture(params=CHUNKS.values(), ids=CHUNKS)
def chunk(request, monkeypatch):
    monkeypatch.setattr(lm_memory, "CPU", replace(lm_memory.CPU, logits=request.param))
    return request.param


def made_up(dtype=torch.float64, rows=ROWS, bias=True, seed=0):
    """hidden, weight, bias that want gradients, and tokens."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        x = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        return x.requires_grad_(True)

    ids = torch.randint(VOCABULARY, (rows,), generator=generator)
    return draw(rows, HIDDEN), draw(VOCABULARY, HIDDEN), draw(VOCABULARY) if bias else None, ids


def plainly(hidden, weight, bias, ids, temperature=1.0, softcap=None):
    """What the head stands for, all logits at once."""
    logits = F.linear(hidden, weight, bias)
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    log_pi = (logits / temperature).log_softmax(-1)
    return {
        "log_probs": log_pi.gather(1, ids[:, None])[:, 0],
        "entropy": -(log_pi.exp() * log_pi).sum(-1),
        "sum_pi_squared": log_pi.exp().square().sum(-1),
    }, log_pi


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("bias", [False, True])
def test_gradients_are_exact(chunk, bias, temperature, softcap):
    hidden, weight, b, ids = made_up(bias=bias)

    def both(hidden, weight, bias):
        out = head.log_prob_stats(
            hidden, weight, bias, ids, temperature, softcap, want=("entropy",), entropy_grad=True
        )
        return out["log_probs"], out["entropy"]

    def alone(hidden, weight, bias):
        out = head.log_prob_stats(hidden, weight, bias, ids, temperature, softcap)
        return out["log_probs"]

    assert torch.autograd.gradcheck(both, (hidden, weight, b), fast_mode=True)
    assert torch.autograd.gradcheck(alone, (hidden, weight, b), fast_mode=True)


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize(
    ("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 2e-6), (torch.bfloat16, 2e-6)]
)
def test_values_are_those_of_plain_log_softmax(chunk, dtype, near, temperature, softcap):
    given = made_up(dtype)
    want, _ = plainly(*given, temperature, softcap)
    found = head.log_prob_stats(*given, temperature, softcap, want=("entropy", "sum_pi_squared"))
    assert set(found) == set(want)
    for name in want:
        assert found[name].dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(found[name], want[name], atol=near, rtol=near, msg=name)


def test_gradients_of_a_weighted_loss_are_those_of_plain_log_softmax(chunk):
    generator = torch.Generator().manual_seed(1)
    w, v = torch.randn(2, ROWS, generator=generator, dtype=torch.float64)
    given, want = made_up(), made_up()
    found = head.log_prob_stats(*given, want=("entropy",), entropy_grad=True)
    for out in (found, plainly(*want)[0]):
        (w @ out["log_probs"] + v @ out["entropy"]).backward()
    for ours, plain in zip((x.grad for x in given[:3]), (x.grad for x in want[:3]), strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-12, rtol=1e-12)


def test_entropy_has_a_gradient_only_if_asked_for(chunk):
    given = made_up()
    out = head.log_prob_stats(*given, want=("entropy",), entropy_grad=True)
    assert out["entropy"].requires_grad
    out = head.log_prob_stats(*given, want=("entropy",))
    assert not out["entropy"].requires_grad
    out["log_probs"].sum().backward()
    want = made_up()
    plainly(*want)[0]["log_probs"].sum().backward()
    torch.testing.assert_close(given[0].grad, want[0].grad)


def test_sum_pi_squared_has_no_gradient():
    out = head.log_prob_stats(*made_up(), want=("sum_pi_squared",))
    assert not out["sum_pi_squared"].requires_grad


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_what_is_frozen_gets_no_gradient(chunk, frozen):
    """As under LoRA, whose head is frozen, and with a frozen trunk."""
    given, want = made_up(), made_up()
    for some in (given, want):
        some[frozen].requires_grad_(False)
    head.log_prob_stats(*given)["log_probs"].square().sum().backward()
    plainly(*want)[0]["log_probs"].square().sum().backward()
    for i in range(3):
        if i == frozen:
            assert given[i].grad is None
        else:
            torch.testing.assert_close(given[i].grad, want[i].grad)


def test_autocast_to_bfloat16_is_that_of_a_linear_layer(chunk):
    """float32 masters, bfloat16 products, everything after them in float32."""
    results = []
    ours = partial(head.log_prob_stats, want=("entropy",))
    for function in (lambda *a: plainly(*a)[0], ours):
        given = made_up(torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = function(*given)
        assert out["log_probs"].dtype == torch.float32
        out["log_probs"].square().sum().backward()
        assert all(x.grad.dtype == torch.float32 for x in given[:3])
        results.append((out["log_probs"], out["entropy"], *(x.grad for x in given[:3])))
    for i, (plain, ours) in enumerate(zip(*results, strict=True)):
        # Gradients are sums of rounded products, in another order.
        near = 2e-6 if i < 2 else 0.05
        torch.testing.assert_close(ours, plain, atol=near, rtol=near)


@pytest.mark.parametrize("softcap", [None, 3.0])
def test_full_kl_is_that_of_plain_log_softmax(chunk, softcap):
    ours, theirs = made_up(seed=1), made_up(seed=2)
    log_p, log_q = (plainly(*side, 0.7, c)[1] for side, c in ((ours, softcap), (theirs, 5.0)))
    want = (log_p.exp() * (log_p - log_q)).sum(-1)
    found = head.full_kl(ours[:3], theirs[:3], 0.7, (softcap, 5.0))
    torch.testing.assert_close(found, want, atol=1e-12, rtol=1e-12)
    assert not found.requires_grad


def test_a_second_backward_gives_the_same(chunk):
    given = made_up()
    loss = head.log_prob_stats(*given)["log_probs"].square().sum()
    first = torch.autograd.grad(loss, given[:3], retain_graph=True)
    second = torch.autograd.grad(loss, given[:3], retain_graph=True)
    third = torch.autograd.grad(2 * loss, given[:3])
    for one, two, three in zip(first, second, third, strict=True):
        torch.testing.assert_close(two, one, atol=1e-14, rtol=0)
        torch.testing.assert_close(three, 2 * one, atol=1e-14, rtol=0)


def test_no_rows_give_no_numbers_and_a_gradient_of_nothing(chunk):
    given = made_up(rows=0)
    out = head.log_prob_stats(*given, want=("entropy", "sum_pi_squared"), entropy_grad=True)
    assert all(x.shape == (0,) for x in out.values())
    (out["log_probs"].sum() + out["entropy"].sum()).backward()
    assert given[0].grad.shape == (0, HIDDEN)
    assert all(x.grad is None or not x.grad.any() for x in given[1:3])
    assert head.full_kl(given[:3], given[:3]).shape == (0,)


class Largest(TorchDispatchMode):
    """The most elements that a tensor whose last dimension is the vocabulary had."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, torch.Tensor) and x.ndim == 2 and x.shape[1] == VOCABULARY:
                self.elements = max(self.elements, x.numel())
        return out


@pytest.mark.parametrize("entropy", [False, True])
def test_no_more_logits_are_held_than_a_chunk(entropy, monkeypatch):
    chunk = 8 * VOCABULARY  # more than the weight's, which is seen as (H, V)
    monkeypatch.setattr(lm_memory, "CPU", replace(lm_memory.CPU, logits=chunk))
    given = made_up(rows=64, bias=False)
    with Largest() as seen:
        out = head.log_prob_stats(
            *given, want=("entropy", "sum_pi_squared")[not entropy :], entropy_grad=entropy
        )
        sum(x.sum() for x in out.values()).backward()
        head.full_kl(given[:3], given[:3])
    assert seen.elements == chunk


def test_a_pass_without_a_chosen_token_has_a_gradient_of_zeros():
    """Not none at all: ranks that share weights would reduce different ones."""
    hidden, weight, b, ids = made_up(rows=0)
    out = head.log_prob_stats(hidden, weight, b, ids, 1.0, None)
    out["log_probs"].sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()
    assert not b.grad.any()


def off(some, *given):
    """The same with a bias of -inf at the tokens `some`: those that a model switches off."""
    hidden, weight, bias, ids = given
    with torch.no_grad():
        bias[some] = -torch.inf
    free = [i for i in range(VOCABULARY) if i not in some]
    return hidden, weight, bias, torch.tensor(free)[ids % len(free)]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("some", [[3], [0, 4, 10], list(range(VOCABULARY - 1))])
def test_tokens_of_probability_0_add_nothing(chunk, some, dtype, temperature):
    """Their logits are -inf, and 0 * -inf would be NaN."""
    generator = torch.Generator().manual_seed(1)
    w, v = torch.randn(2, ROWS, generator=generator, dtype=dtype)
    given = off(some, *made_up(dtype))
    found = head.log_prob_stats(
        *given, temperature, want=("entropy", "sum_pi_squared"), entropy_grad=True
    )
    free = [i for i in range(VOCABULARY) if i not in some]
    hidden, weight, bias, ids = made_up(dtype)
    ids = torch.tensor([free.index(i) for i in given[3]])
    want, _ = plainly(hidden, weight[free], bias[free], ids, temperature)
    for name, x in want.items():
        torch.testing.assert_close(found[name], x, msg=name)
    for out in (found, want):
        (w @ out["log_probs"] + 1e30 * (v @ out["entropy"])).backward()
    for ours, plain in zip((x.grad for x in given[:3]), (hidden, weight, bias), strict=True):
        torch.testing.assert_close(ours, plain.grad, rtol=1e-4, atol=1e26)


def test_full_kl_of_what_both_or_only_one_switches_off(chunk):
    ours, theirs = off([2, 5], *made_up(seed=1)), off([2], *made_up(seed=2))
    log_p, log_q = (plainly(*side)[1] for side in (ours, theirs))
    some = [i for i in range(VOCABULARY) if i not in (2, 5)]
    want = (log_p.exp() * (log_p - log_q))[:, some].sum(-1)
    torch.testing.assert_close(head.full_kl(ours[:3], theirs[:3]), want)
    assert head.full_kl(theirs[:3], ours[:3]).isposinf().all()  # what it may do, the other never
