"""KL penalties against the exact KL, by enumeration: value and gradient are judged apart."""

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from helpers.zoo import ZOO

NAMES = sorted(ZOO.kl_penalties)
F64 = torch.float64
STATES, VOCABULARY = 5, 7


def logits(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def penalty(name: str, log_probs: Tensor, ref_log_probs: Tensor, full_kl: Tensor) -> Tensor:
    """The penalty of every entry; all of them actions, of the policy that sampled."""
    columns = {"log_probs": log_probs, "ref_log_probs": ref_log_probs, "full_kl": full_kl,
               "teacher_log_probs": ref_log_probs, "old_log_probs": log_probs.detach()}  # fmt: skip
    return ZOO.kl_penalties[name]({**columns, "response_mask": torch.ones_like(log_probs)})


def slope(f, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(f(x).sum(), x)[0]


# ---------------------------------------------------------------- one state, all its tokens


def policy_and_reference(seed):
    return logits(seed, STATES, VOCABULARY), logits(seed + 100, STATES, VOCABULARY).log_softmax(-1)


def each_token(name: str, z: Tensor, reference: Tensor) -> Tensor:
    """The penalty of each token of each state, a response of its own; (STATES, VOCABULARY)."""
    log_pi = z.log_softmax(-1)
    full = kl(log_pi, reference)[:, None].expand_as(log_pi)
    alone = (x.reshape(-1, 1) for x in (log_pi, reference, full))
    return penalty(name, *alone).view_as(log_pi)


@pytest.mark.parametrize("name", ["k1", "k3", "k1_plus", "k3_plus", "k3_unbiased", "full"])
@pytest.mark.parametrize("seed", range(3))
def test_the_mean_under_the_policy_is_the_reverse_kl(name, seed):
    z, reference = policy_and_reference(seed)
    mean = (z.softmax(-1) * each_token(name, z, reference)).sum(-1)
    assert_close(mean, kl(z.log_softmax(-1), reference), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["k2", "abs"])
def test_the_biased_ones_are_not_the_kl_but_vanish_with_it(name):
    z, reference = policy_and_reference(0)
    mean = (z.softmax(-1) * each_token(name, z, reference)).sum(-1)
    assert ((mean - kl(z.log_softmax(-1), reference)).abs() > 1e-3).all()
    same = each_token(name, reference, reference)  # but for the rounding of a log-softmax
    assert_close(same, torch.zeros_like(same), rtol=0, atol=1e-14)


def test_k2_is_right_to_second_order():
    reference = logits(1, STATES, VOCABULARY).log_softmax(-1)
    errors = []
    for step in (1e-2, 1e-3):
        z = reference + step * logits(2, STATES, VOCABULARY)
        mean = (z.softmax(-1) * each_token("k2", z, reference)).sum(-1)
        errors.append(float((mean - kl(z.log_softmax(-1), reference)).abs().max()))
    assert errors[1] < 1.5e-3 * errors[0]  # an error of third order falls by 1000


@pytest.mark.parametrize("name", NAMES)
def test_small_array(name):
    ratio = torch.tensor([[2.0, 0.5, 1.0]], dtype=F64)
    ln2, zero = math.log(2), torch.zeros_like(ratio)
    k1, k3 = [ln2, -ln2, 0], [0.5 - 1 + ln2, 2 - 1 - ln2, 0]
    expected = {
        "k1": k1, "k1_plus": k1, "k2": [ln2**2 / 2, ln2**2 / 2, 0], "k3": k3, "k3_plus": k3,
        "abs": [ln2, ln2, 0], "full": [0.3, 0.3, 0.3], "k3_unbiased": k3, "teacher_k1": k1,
        "k3_sequence": [0, 0, 0],
    }  # fmt: skip
    got = penalty(name, ratio.log() - 1, zero - 1, zero + 0.3)
    assert_close(got, torch.tensor([expected[name]], dtype=F64))


def expected_gradient(name: str, z: Tensor, reference: Tensor) -> Tensor:
    """As a loss: E over tokens drawn by the policy, held fixed, of the penalty's gradient."""
    weight = z.softmax(-1)
    return slope(lambda x: weight * each_token(name, x, reference), z)


@pytest.mark.parametrize("seed", range(3))
def test_gradients_as_a_loss(seed):
    z, reference = policy_and_reference(seed)
    reverse = slope(lambda x: kl(x.log_softmax(-1), reference), z)
    forward = slope(lambda x: kl(reference, x.log_softmax(-1)), z)
    for name in ("k2", "k1_plus", "k3_plus", "k3_unbiased"):
        assert_close(expected_gradient(name, z, reference), reverse, rtol=1e-12, atol=1e-13)
    assert_close(expected_gradient("k3", z, reference), forward, rtol=1e-12, atol=1e-13)
    assert expected_gradient("k1", z, reference).abs().max() < 1e-14
    for wrong in (forward, expected_gradient("abs", z, reference)):
        assert cosine(wrong, reverse) < 0.999


@pytest.mark.parametrize("name", ["k2", "k1_plus", "k3_plus"])
def test_each_token_has_the_gradient_of_k2(name):
    x, reference = logits(0, 3, 4) * 9, logits(1, 3, 4)
    got = slope(lambda y: penalty(name, y, reference, reference), x)
    assert_close(got, x - reference, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_k3_unbiased_is_the_kl_with_its_gradient_away_from_the_policy_that_sampled(seed):
    """By enumeration: E under pi_old of its value and gradient, with rho up to 30; k3's is not."""
    z, reference = policy_and_reference(seed)
    old = (z + logits(seed + 7, STATES, VOCABULARY)).log_softmax(-1)
    assert (z.log_softmax(-1) - old).exp().max() > 3

    def mean(x, name):
        columns = {"log_probs": x.log_softmax(-1), "ref_log_probs": reference,
                   "old_log_probs": old, "response_mask": torch.ones_like(old)}  # fmt: skip
        return (old.exp() * ZOO.kl_penalties[name](columns)).sum(-1)

    exact = slope(lambda x: kl(x.log_softmax(-1), reference), z)
    assert_close(mean(z, "k3_unbiased"), kl(z.log_softmax(-1), reference), rtol=1e-12, atol=1e-13)
    assert_close(slope(lambda x: mean(x, "k3_unbiased"), z), exact, rtol=1e-11, atol=1e-12)
    assert cosine(slope(lambda x: mean(x, "k3"), z), exact) < 0.99


def test_k3_of_a_response_is_the_kl_between_responses():
    """By enumeration of all responses of two tokens, the second from a distribution of its own."""
    z, other = logits(0, 1 + VOCABULARY, VOCABULARY), logits(9, 1 + VOCABULARY, VOCABULARY)
    first, second = torch.cartesian_prod(torch.arange(VOCABULARY), torch.arange(VOCABULARY)).T

    def tokens(x):  # (responses, 2)
        log_p = x.log_softmax(-1)
        return torch.stack([log_p[0, first], log_p[1 + first, second]], 1)

    reference, weight = tokens(other), tokens(z).sum(1).exp()
    exact = (weight * (tokens(z) - reference).sum(1)).sum()

    def estimate(x, name="k3_sequence"):
        return weight * penalty(name, tokens(x), reference, reference).sum(1)

    assert_close(estimate(z).sum(), exact)
    assert_close(estimate(z, "k3").sum(), exact)  # the same mean, and not the same values
    assert not torch.allclose(estimate(z), estimate(z, "k3"))

    def forward(x):
        return (reference.sum(1).exp() * (reference - tokens(x)).sum(1)).sum()

    assert_close(slope(estimate, z), slope(forward, z))


def test_full_has_no_gradient_in_a_run_because_the_column_has_none():
    z, reference = policy_and_reference(0)
    log_pi = z.log_softmax(-1).requires_grad_()
    out = penalty("full", log_pi, reference, kl(log_pi, reference)[:, None].expand_as(z))
    assert not out.requires_grad
    assert "log_probs" not in ZOO.kl_penalties["full"].needs


# ---------------------------------------------------------------- all responses of three tokens

V, T = 3, 3
SEQUENCES = torch.tensor(list(itertools.product(range(V), repeat=T)))  # (27, 3)
# The number of the prefix before each token: 1 + 3 + 9 states.
STATE = torch.stack(
    [torch.zeros(V**T, dtype=torch.long), 1 + SEQUENCES[:, 0],
     1 + V + V * SEQUENCES[:, 0] + SEQUENCES[:, 1]], 1
)  # fmt: skip


def chosen(log_pi: Tensor) -> Tensor:
    """Log-probabilities (27, T) of every response's tokens, from a table (13, V)."""
    return log_pi[STATE, SEQUENCES]


def tables(seed: int) -> tuple[Tensor, Tensor]:
    return logits(seed, 13, V), logits(seed + 50, 13, V).log_softmax(-1)


def sequence_kl(z: Tensor, reference: Tensor) -> Tensor:
    x, y = chosen(z.log_softmax(-1)).sum(1), chosen(reference).sum(1)
    return (x.exp() * (x - y)).sum()


def as_reward(name: str, z: Tensor, reference: Tensor) -> Tensor:
    """E[sum_t penalty_t * grad log pi(response)]: the policy gradient of the penalty as a cost."""
    log_pi = z.log_softmax(-1)
    cost = penalty(name, chosen(log_pi), chosen(reference), kl(log_pi, reference)[STATE]).sum(1)
    weight = chosen(log_pi).sum(1).exp() * cost
    return slope(lambda x: weight * chosen(x.log_softmax(-1)).sum(1), z)


def cosine(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum() / (a.norm() * b.norm()))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["k1", "k1_plus"])
def test_in_the_reward_k1_gives_the_gradient_of_the_sequence_kl(name, seed):
    z, reference = tables(seed)
    exact = slope(lambda x: sequence_kl(x, reference), z)
    assert_close(as_reward(name, z, reference), exact, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["k2", "k3", "abs", "full", "k3_plus", "k3_unbiased"])
def test_in_the_reward_the_others_point_elsewhere(name, seed):
    z, reference = tables(seed)
    exact = slope(lambda x: sequence_kl(x, reference), z)
    got = cosine(as_reward(name, z, reference), exact)
    print(f"{name}, tables {seed}: cosine {got:.2f} with the gradient of the sequence KL")
    assert got < 0.999
    assert "kl.place = reward" in ZOO.kl_penalties[name].caution


def test_in_the_reward_k3_is_right_where_its_mean_is_but_its_gradient_is_not():
    # Both are unbiased for the KL of the sequence; only k1's policy gradient is.
    z, reference = tables(0)
    log_pi = z.log_softmax(-1)
    for name in ("k1", "k3"):
        cost = penalty(name, chosen(log_pi), chosen(reference), torch.zeros(V**T, T)).sum(1)
        assert_close((chosen(log_pi).sum(1).exp() * cost).sum(), sequence_kl(z, reference))


@pytest.mark.parametrize("seed", range(3))
def test_full_is_exact_as_a_state_wise_loss_plus_the_future_as_reward(seed):
    z, reference = tables(seed)
    log_pi = z.log_softmax(-1)
    weight = chosen(log_pi).sum(1).exp()[:, None]
    per_state = penalty("full", chosen(log_pi), chosen(reference), kl(log_pi, reference)[STATE])
    future = per_state.flip(1).cumsum(1).flip(1) - per_state  # after this token
    credit = slope(lambda x: weight * future * chosen(x.log_softmax(-1)), z)
    direct = slope(lambda x: weight * kl(x.log_softmax(-1), reference)[STATE], z)
    exact = slope(lambda x: sequence_kl(x, reference), z)
    assert_close(credit + direct, exact, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", ["k2", "k1_plus", "k3_plus"])
def test_as_a_loss_k2_has_the_state_wise_gradient_and_not_the_sequences(name):
    z, reference = tables(1)
    weight = chosen(z.log_softmax(-1)).sum(1).exp()[:, None]

    def loss(x):
        log_pi = x.log_softmax(-1)
        full = kl(log_pi, reference)[STATE]
        return weight * penalty(name, chosen(log_pi), chosen(reference), full)

    state_wise = slope(lambda x: weight * kl(x.log_softmax(-1), reference)[STATE], z)
    assert_close(slope(loss, z), state_wise, rtol=1e-11, atol=1e-13)
    assert cosine(slope(loss, z), slope(lambda x: sequence_kl(x, reference), z)) < 0.999


def test_what_does_harm_somewhere_says_so():
    assert set(ZOO.kl_penalties["k1"].caution) == {"kl.place = loss"}
    for name in ("abs", "full"):
        assert set(ZOO.kl_penalties[name].caution) == {"kl.place = loss", "kl.place = reward"}
    for name in (
        "k2",
        "k3",
        "k3_plus",
        "k3_unbiased",
    ):  # k3 as a loss is GRPO's own: its docstring says what it is
        assert set(ZOO.kl_penalties[name].caution) == {"kl.place = reward"}
    assert not ZOO.kl_penalties["k1_plus"].caution


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize("name", [n for n in NAMES if n != "full"])
@pytest.mark.parametrize("gap", [-100.0, 100.0])
def test_finite_in_float32_far_from_the_reference(name, gap):
    x = torch.full((1, 2), gap, requires_grad=True)
    columns = {
        "log_probs": x,
        "ref_log_probs": torch.zeros(1, 2),
        "teacher_log_probs": torch.zeros(1, 2),
        "old_log_probs": torch.zeros(1, 2),
        "response_mask": torch.ones(1, 2),
    }
    out = ZOO.kl_penalties[name](columns)
    out.sum().backward()
    assert torch.isfinite(out).all()
    assert torch.isfinite(x.grad).all()


def test_the_builtin_abs_is_untouched():
    from rlzoo_zoo.kl_penalties import abs as module

    assert abs(-3) == 3
    assert module.abs is not abs
    assert ZOO.kl_penalties["abs"].name == "abs"
