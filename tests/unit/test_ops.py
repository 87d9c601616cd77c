"""The primitives: masked and group statistics, the reverse recursion and its identities."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlzoo import ops

EXACT = {"rtol": 1e-12, "atol": 1e-12}
property_test = settings(derandomize=True, deadline=None, max_examples=40)
unit = st.floats(0, 1)
shapes = st.tuples(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 24))
KINDS = ("full", "ragged", "holes", "anything")


def batch(seed, rows, steps, kind="anything"):
    """rewards, values, bootstrap, mask: float64, with empty rows; zeros off the mask."""
    draw = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(2, rows, steps, generator=draw, dtype=torch.float64)
    end = torch.randn(rows, generator=draw, dtype=torch.float64)
    length = torch.randint(0, steps + 1, (rows, 1), generator=draw)
    ragged = torch.arange(steps) < length
    holes = torch.rand(rows, steps, generator=draw) < 0.6
    mask = {"full": torch.ones(rows, steps, dtype=torch.bool), "ragged": ragged,
            "holes": ragged & holes, "anything": holes}[kind].double()  # fmt: skip
    return rewards * mask, values * mask, end, mask


def td_loop(rewards, values, end, mask, gamma, lam, rho=None, c=None):
    """acc_t by its recursion, row by row and token by token."""
    out = torch.zeros_like(rewards)
    for i in range(len(rewards)):
        acc, ahead = 0.0, end[i].item()
        for t in reversed(range(rewards.shape[1])):
            if not mask[i, t]:
                continue
            at_t = lam[i, t] if isinstance(lam, torch.Tensor) else lam
            delta = rewards[i, t] + gamma * ahead - values[i, t]
            delta = delta if rho is None else rho[i, t] * delta
            acc = delta + gamma * at_t * (1.0 if c is None else c[i, t]) * acc
            ahead = values[i, t]
            out[i, t] = acc
    return out


def close(a, b):
    torch.testing.assert_close(a, b, **EXACT)


# ---------------------------------------------------------------- the scan


@property_test
@given(shapes, st.floats(-1, 1))
def test_scan_with_a_number_is_the_recursion(shape, a):
    seed, rows, steps = shape
    b = batch(seed, rows, steps, "full")[0]
    x, out = torch.zeros(rows, dtype=b.dtype), torch.zeros_like(b)
    for t in reversed(range(steps)):
        x = b[:, t] + a * x
        out[:, t] = x
    close(ops.linear_scan(b, a), out)
    close(ops.linear_scan(b, torch.full_like(b, a)), out)


@pytest.mark.parametrize("steps", [1, 15, 16, 17, 256, 257, 300, 5000])
def test_scan_over_blocks_of_blocks(steps):
    b = torch.randn(3, steps, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    close(ops.linear_scan(b, 0.99), ops.linear_scan(b, torch.full_like(b, 0.99)))
    assert torch.equal(ops.linear_scan(b, 0.0), b)


def test_scan_leaves_its_input_alone():
    for steps in (16, 17):
        b = torch.randn(200, steps)
        before = b.clone()
        ops.linear_scan(b, 0.9)
        ops.linear_scan(b, torch.full_like(b, 0.9))
        assert torch.equal(b, before)


def test_scan_in_float32_keeps_its_accuracy():
    b = torch.randn(4, 4096, generator=torch.Generator().manual_seed(0))
    exact = ops.linear_scan(b.double(), 1.0)
    error = (ops.linear_scan(b, 1.0) - exact).abs().max() / exact.abs().max()
    assert error < 1e-6


# ---------------------------------------------------------------- td_lambda


@property_test
@given(shapes, unit, unit, st.sampled_from(KINDS))
def test_td_lambda_is_the_recursion_over_actions(shape, gamma, lam, kind):
    tokens = batch(*shape, kind)
    close(ops.td_lambda(*tokens, gamma=gamma, lam=lam), td_loop(*tokens, gamma, lam))


@property_test
@given(shapes, unit, st.sampled_from(KINDS))
def test_td_lambda_with_a_lambda_per_token_and_weights(shape, gamma, kind):
    tokens = batch(*shape, kind)
    draw = torch.Generator().manual_seed(1)
    lam, rho, c = torch.rand(3, *tokens[0].shape, generator=draw, dtype=torch.float64)
    result = ops.td_lambda(*tokens, gamma=gamma, lam=lam, rho=rho, c=c)
    close(result, td_loop(*tokens, gamma, lam, rho, c))
    close(ops.td_lambda(*tokens, gamma=gamma, lam=0.5, rho=rho),
          td_loop(*tokens, gamma, 0.5, rho))  # fmt: skip


@property_test
@given(shapes, unit, unit, st.sampled_from(KINDS))
def test_constant_lambda_tensor_is_the_number(shape, gamma, lam, kind):
    tokens = batch(*shape, kind)
    constant = torch.full_like(tokens[0], lam)
    close(ops.td_lambda(*tokens, gamma=gamma, lam=constant),
          ops.td_lambda(*tokens, gamma=gamma, lam=lam))  # fmt: skip


@property_test
@given(shapes, unit, st.sampled_from(KINDS))
def test_td_errors_telescope_to_the_return(shape, gamma, kind):
    rewards, values, end, mask = batch(*shape, kind)
    delta = ops.td_lambda(rewards, values, end, mask, gamma=gamma, lam=0.0)
    discounted = ops.td_lambda(delta, delta * 0, end * 0, mask, gamma=gamma, lam=1.0)
    to_go = ops.td_lambda(rewards, values * 0, end, mask, gamma=gamma, lam=1.0)
    close(discounted, (to_go - values) * mask)


@property_test
@given(shapes, unit, unit, st.sampled_from(KINDS))
def test_gae_is_the_geometric_mixture_of_n_step_advantages(shape, gamma, lam, kind):
    rewards, values, _, mask = tokens = batch(*shape, kind)
    steps = mask.shape[1]
    left = mask.flip(1).cumsum(1).flip(1)  # (B, T): N, the actions left
    mixture = torch.zeros_like(rewards)
    for n in range(1, steps + 1):
        advantage = ops.n_step_returns(*tokens, gamma=gamma, n=n) - values
        last = (n == left).double() * lam ** (n - 1)
        mixture += ((n < left).double() * (1 - lam) * lam ** (n - 1) + last) * advantage
    close(ops.td_lambda(*tokens, gamma=gamma, lam=lam), mixture * mask)


@property_test
@given(shapes, unit, unit, st.booleans())
def test_holes_are_stepped_over(shape, gamma, lam, per_token):
    """Taking the holes out first and putting them back gives the same."""
    tokens = batch(*shape, "anything")
    *columns, end, mask = tokens
    weight = torch.rand_like(mask) if per_token else lam
    rewards, values, short = (ops.collapse(x, mask) for x in (*columns, mask))
    packed = ops.collapse(weight, mask) if per_token else lam
    inside = ops.td_lambda(rewards, values, end, short, gamma=gamma, lam=packed)
    close(ops.td_lambda(*tokens, gamma=gamma, lam=weight), ops.expand(inside, mask))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("junk", [math.nan, 1e9])
@pytest.mark.parametrize("kind", KINDS)
def test_appended_padding_changes_no_bit(kind, junk, dtype):
    for rows, steps, pad in ((1, 1, 3), (3, 5, 40), (2, 16, 1), (130, 31, 30), (7, 33, 300)):
        *columns, end, mask = (x.to(dtype) for x in batch(7, rows, steps, kind))
        wide = [torch.cat([x, x.new_full((rows, pad), junk)], 1) for x in columns]
        more = torch.cat([mask, mask.new_zeros(rows, pad)], 1)
        lam = torch.rand(rows, steps, dtype=dtype)
        lam_wide = torch.cat([lam, lam.new_full((rows, pad), junk)], 1)
        for narrow_lam, wide_lam in ((0.9, 0.9), (lam, lam_wide)):
            narrow = ops.td_lambda(*columns, end, mask, gamma=0.97, lam=narrow_lam)
            padded = ops.td_lambda(*wide, end, more, gamma=0.97, lam=wide_lam)
            assert torch.equal(padded[:, :steps], narrow)
            assert not padded[:, steps:].any()
        narrow = ops.n_step_returns(*columns, end, mask, gamma=0.97, n=3)
        assert torch.equal(ops.n_step_returns(*wide, end, more, gamma=0.97, n=3)[:, :steps], narrow)
        narrow = ops.next_action(columns[1], mask, end)
        assert torch.equal(ops.next_action(wide[1], more, end)[:, :steps], narrow)


def test_the_worked_example():
    rewards = torch.tensor([[0.0, 0, 1]], dtype=torch.float64)
    values = torch.tensor([[0.3, 0.4, 0.6]], dtype=torch.float64)
    tokens = rewards, values, torch.zeros(1), torch.ones(1, 3)
    for lam, wanted in ((0.0, [0.1, 0.2, 0.4]), (1.0, [0.7, 0.6, 0.4]), (0.95, [0.651, 0.58, 0.4])):
        close(ops.td_lambda(*tokens, lam=lam), torch.tensor([wanted], dtype=torch.float64))


@property_test
@given(shapes, unit, st.integers(1, 30), st.sampled_from(KINDS))
def test_n_step_returns_by_their_sum(shape, gamma, n, kind):
    rewards, values, end, mask = tokens = batch(*shape, kind)
    wanted = torch.zeros_like(rewards)
    for i in range(len(rewards)):
        actions = mask[i].nonzero()[:, 0].tolist()
        for at, t in enumerate(actions):
            window = actions[at : at + n]
            total = sum(gamma**k * rewards[i, s].item() for k, s in enumerate(window))
            ahead = values[i, actions[at + n]] if at + n < len(actions) else end[i]
            wanted[i, t] = total + gamma ** len(window) * ahead
    close(ops.n_step_returns(*tokens, gamma=gamma, n=n), wanted)


@property_test
@given(shapes, st.sampled_from(KINDS))
def test_next_action(shape, kind):
    _, values, end, mask = batch(*shape, kind)
    wanted = torch.zeros_like(values)
    for i in range(len(values)):
        actions = mask[i].nonzero()[:, 0].tolist()
        for t, after in zip(actions, [*actions, None][1:], strict=True):
            wanted[i, t] = end[i] if after is None else values[i, after]
    assert torch.equal(ops.next_action(values, mask, end), wanted)


@property_test
@given(shapes)
def test_collapse_and_expand_undo_each_other(shape):
    rewards, _, _, mask = batch(*shape)
    packed = ops.collapse(rewards, mask)
    assert torch.equal(ops.expand(packed, mask), rewards)
    assert not packed[torch.arange(mask.shape[1]) >= mask.sum(1, keepdim=True)].any()


@property_test
@given(shapes)
def test_runs(shape):
    """A run starts where an action's id differs from the last action's, over holes too."""
    _, _, _, mask = batch(*shape)
    ids = torch.randint(0, 3, mask.shape, generator=torch.Generator().manual_seed(shape[0]))
    starts = ops.run_starts(ids, mask)
    first = ops.at_run_start(torch.arange(mask.shape[1]).double().expand_as(mask), starts)
    for i in range(len(mask)):
        before, begin = None, None
        for t in mask[i].nonzero()[:, 0].tolist():
            begin = t if before is None or ids[i, t] != ids[i, before] else begin
            assert bool(starts[i, t]) == (begin == t)
            assert first[i, t] == begin
            before = t
    assert not starts[mask == 0].any()


# ---------------------------------------------------------------- statistics


def test_masked_statistics_do_not_see_what_is_off():
    x = torch.tensor([[1.0, math.nan, 3.0], [math.inf, math.nan, math.nan]])
    mask = torch.tensor([[1.0, 0, 1], [0, 0, 0]])
    assert ops.masked_sum(x, mask).tolist() == [4, 0]
    assert ops.masked_mean(x, mask) == 2
    assert ops.masked_var(x, mask) == 1
    assert ops.masked_var(x, mask, ddof=1) == 2
    assert ops.masked_mean(x, mask * 0) == 0
    assert ops.last_action(mask).tolist() == [2, -1]
    assert ops.at_last_action(torch.tensor([5.0, 6.0]), mask).tolist() == [[0, 0, 5], [0, 0, 0]]


groups_of = st.lists(st.integers(-1, 5), min_size=1, max_size=12)


@property_test
@given(groups_of, st.integers(0, 10**6), st.booleans(), st.sampled_from([1, 10**12]))
def test_group_statistics_by_loops(ids, seed, wide, scale):
    group_ids = torch.tensor(ids) * scale  # any integers
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(len(ids), *((3,) if wide else ()), generator=draw, dtype=torch.float64)
    weight = torch.randint(0, 3, (len(ids),), generator=draw).double()
    for i, own in enumerate(ids):
        mine = torch.tensor([j for j, other in enumerate(ids) if other == own])
        others = torch.tensor([j for j in mine.tolist() if j != i], dtype=torch.long)
        close(ops.group_sum(x, group_ids)[i], x[mine].sum(0))
        close(ops.group_mean(x, group_ids)[i], x[mine].mean(0))
        close(ops.group_max(x, group_ids)[i], x[mine].amax(0))
        assert ops.group_count(group_ids)[i] == len(mine)
        std = x[mine].std(0) if len(mine) > 1 else torch.zeros_like(x[0])
        close(ops.group_std(x, group_ids)[i], std)
        w = weight[others].view(-1, *[1] * (x.ndim - 1))
        mean = (w * x[others]).sum(0) / w.sum().clamp(min=1e-300)
        close(ops.leave_one_out_mean(x, group_ids, weight)[i], mean)
        even = x[others].mean(0) if len(others) else torch.zeros_like(x[0])
        close(ops.leave_one_out_mean(x, group_ids)[i], even)


@property_test
@given(groups_of)
def test_group_index_splits_by_all_keys(ids):
    first, second = torch.tensor(ids), torch.tensor(ids[::-1])
    index = ops.group_index(first, second)
    pairs = list(zip(ids, ids[::-1], strict=True))
    for i, a in enumerate(pairs):
        for j, b in enumerate(pairs):
            assert (index[i] == index[j]) == (a == b)


def test_equal_up_to_rounding_is_degenerate():
    x = torch.tensor([0.1 + 0.2, 0.3, 5.0, 1.0, 1.1, 1e9, 1e9 + 1, 1e9, 1e9 * (1 + 2e-16)],
                     dtype=torch.float64)  # fmt: skip
    ids = torch.tensor([0, 0, 1, 2, 2, 3, 3, 4, 4])
    wanted = [True, True, True, False, False, False, False, True, True]
    assert ops.group_degenerate(x, ids).tolist() == wanted
    two = ops.group_degenerate(torch.stack([x, x * 0], 1), ids)
    assert two[:, 0].tolist() == wanted
    assert two[:, 1].all()


@property_test
@given(shapes, st.booleans(), st.sampled_from([0, 1]))
def test_whitening_is_over_actions(shape, by_group, ddof):
    x, _, _, mask = batch(*shape)
    ids = torch.arange(len(x)) % 2 if by_group else None
    junk = torch.where(mask.bool(), x, math.nan)
    out = ops.whiten(junk, mask, ids, ddof=ddof)
    assert torch.equal(out[mask == 0], torch.zeros_like(out[mask == 0]))
    for part in ids.unique() if by_group else [None]:
        rows = slice(None) if part is None else ids == part
        tokens = x[rows][mask[rows].bool()]
        if len(tokens) > 2:
            own = out[rows][mask[rows].bool()]
            torch.testing.assert_close(own.mean(), torch.zeros_like(own.mean()), rtol=0, atol=1e-9)
            torch.testing.assert_close(own.var(correction=ddof), torch.ones_like(own.mean()),
                                       rtol=1e-6, atol=1e-6)  # fmt: skip


def test_whitening_one_token_is_finite():
    mask = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    assert not ops.whiten(mask * 3, mask).any()
    assert not ops.whiten(mask * 3, mask * 0).any()
