"""Advantage estimators: each against loops written from its formula, identities, hard cases."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rlzoo
from helpers.estimator_batch import batch
from helpers.estimator_oracles import IN_VERL, ORACLES, all_runs
from helpers.zoo import ZOO

F64 = torch.float64
EXACT = {"rtol": 1e-12, "atol": 1e-12}
property_test = settings(derandomize=True, deadline=None, max_examples=25)
unit = st.floats(0, 1)
seeds = st.integers(0, 10**6)
MINE = sorted(  # those with a teacher have tests of their own: test_distillation, test_self_teacher
    n
    for n, c in ZOO.estimators.items()
    if c.origin.startswith("rlzoo_zoo")
    and not {"teacher_log_probs", "self_teacher_log_probs"} & {*c.needs}
)
# Those that compare with a critic, too, have signal in a group of one.
GROUPED = [n for n in MINE if "group_ids" in ZOO.estimators[n].needs and n not in ("mix", "blend")]
OUTCOME = [n for n in GROUPED if not {"rewards", "implicit_rewards"} & {*ZOO.estimators[n].needs}]


def run(name, columns, **options):
    return ZOO.estimators[name](columns, **options)


def advantages(name, columns, **options):
    return run(name, columns, **options)["advantages"]


def close(a, b):
    torch.testing.assert_close(a, b, **EXACT)


# ---------------------------------------------------------------- loops, from the formulas

VARIANTS = [
    *((name, {}) for name in ORACLES),
    *((n, {"gamma": 0.8}) for n in ("mc", "td0", "reinforce", "prime")),
    ("gae", {"gamma": 0.9, "lam": 0.3}),
    ("n_step", {"gamma": 0.9, "n": 2}),
    ("n_step", {"n": 1}),
    ("vtrace", {"gamma": 0.9, "lam": 0.7, "rho_bar": 1.5, "c_bar": 1.2}),
    ("gae_decoupled", {"lam_actor": 0.2, "lam_critic": 0.8, "gamma": 0.9}),
    ("gae_length_adaptive", {"alpha": 0.6, "lam_critic": 0.9}),
    ("grpo", {"eps": 1e-2}),
    ("opo", {"leave_one_out": True}),
    ("gpg", {"f_norm": 2.0}),
    ("gigpo", {"gamma": 0.5, "step_weight": 2.0}),
    ("softmax_grpo", {"tau": 0.02}),
    ("raft", {"threshold": -1.0}),
    ("spo", {"eps": 0.3}),
    ("blend", {"low": -0.1, "high": 0.1}),
    ("turn_gae", {"gamma": 0.8, "lam": 0.4}),
    ("turn_gae", {"token_lam": 1.0}),
    ("turn_gae", {"gamma": 0.8, "lam": 0.4, "token_lam": 0.6}),
    *(("pkpo", {"k": k, "baseline": b}) for k in (1, 2, 3) for b in ("none", "leave_one_out")),
]


def test_every_shipped_estimator_has_an_oracle():
    assert set(MINE) == set(ORACLES) | IN_VERL


@pytest.mark.parametrize(("name", "options"), VARIANTS)
@pytest.mark.parametrize("kind", ["full", "ragged", "holes"])
def test_agrees_with_loops_written_from_the_formula(name, options, kind):
    for seed, (rows, steps) in enumerate([(9, 7), (12, 3), (5, 1), (1, 4), (8, 20)]):
        columns = batch(seed, rows, steps, kind)
        wanted = ORACLES[name](columns, **options)
        wanted, returns = wanted if isinstance(wanted, tuple) else (wanted, None)
        result = run(name, columns, **options)
        torch.testing.assert_close(result["advantages"], wanted, rtol=1e-10, atol=1e-10)
        if returns is not None:
            torch.testing.assert_close(result["returns"], returns, rtol=1e-10, atol=1e-10)
        elif "values" in columns.keys() & {*ZOO.estimators[name].needs}:
            close(result["returns"], result["advantages"] + columns["values"])
        else:
            assert "returns" not in result


# ---------------------------------------------------------------- identities


@property_test
@given(seeds, unit)
def test_lambda_one_is_mc_and_zero_is_td0(seed, gamma):
    c = batch(seed)
    close(advantages("gae", c, gamma=gamma, lam=1.0), advantages("mc", c, gamma=gamma))
    close(advantages("gae", c, gamma=gamma, lam=0.0), advantages("td0", c, gamma=gamma))
    close(advantages("n_step", c, gamma=gamma, n=1), advantages("td0", c, gamma=gamma))
    close(advantages("n_step", c, gamma=gamma, n=99), advantages("mc", c, gamma=gamma))


@property_test
@given(seeds, unit, unit)
def test_vtrace_on_policy(seed, gamma, lam):
    """Targets are lam-returns; with lam = 1 they are the Monte Carlo returns."""
    c = batch(seed)
    c["sampler_log_probs"] = c["old_log_probs"]
    result = run("vtrace", c, gamma=gamma, lam=lam)
    close(result["returns"], run("gae", c, gamma=gamma, lam=lam)["returns"])
    result, wanted = run("vtrace", c, gamma=gamma), run("mc", c, gamma=gamma)
    close(result["returns"], wanted["returns"])
    close(result["advantages"], wanted["advantages"])
    wanted = run("n_step", c, gamma=gamma, n=99)
    close(result["returns"], wanted["returns"])


@property_test
@given(seeds, unit, unit)
def test_decoupled_with_one_lambda_is_gae(seed, gamma, lam):
    c = batch(seed)
    both, one = (
        run("gae_decoupled", c, gamma=gamma, lam_actor=lam, lam_critic=lam),
        run("gae", c, gamma=gamma, lam=lam),
    )
    close(both["advantages"], one["advantages"])
    close(both["returns"], one["returns"])


@property_test
@given(seeds)
def test_length_adaptive_is_gae_where_lengths_agree(seed):
    c = batch(seed, kind="full")
    lam = 1 - 1 / (0.5 * 7)
    close(advantages("gae_length_adaptive", c, alpha=0.5), advantages("gae", c, lam=lam))
    close(advantages("gae_length_adaptive", c, alpha=0.05), advantages("td0", c))


@property_test
@given(seeds)
def test_rloo_is_a_multiple_of_dr_grpo(seed):
    c = batch(seed)
    size = rlzoo.group_count(c["group_ids"]).to(F64)
    scale = size / (size - 1).clamp(min=1)
    close(advantages("rloo", c), scale[:, None] * advantages("dr_grpo", c))


@property_test
@given(seeds)
def test_relatives_of_grpo(seed):
    c = batch(seed, kind="full")
    close(advantages("opo", c), advantages("dr_grpo", c))  # equal lengths
    close(advantages("opo", c, leave_one_out=True), advantages("rloo", c))
    c["score_components"] = c["sequence_rewards"][:, None]
    c["score_weights"] = torch.ones(1, dtype=F64)
    close(advantages("gdpo", c), advantages("grpo", c))
    close(advantages("gigpo", c, step_weight=0.0), advantages("dr_grpo", c))


@property_test
@given(seeds)
def test_turn_gae_is_gae_where_turns_are_tokens_or_the_row_is_one_turn(seed):
    c = batch(seed, kind="holes")
    c["turn_ids"] = c["response_mask"].cumsum(1).long()
    for token_lam in (None, 0.3):
        found = run("turn_gae", c, gamma=0.9, lam=0.7, token_lam=token_lam)
        close(found["advantages"], advantages("gae", c, gamma=0.9, lam=0.7))
        close(found["returns"], found["advantages"] + c["values"])
    c["turn_ids"] = c["response_mask"].long()
    found = run("turn_gae", c, lam=0.2, token_lam=0.7)
    close(found["advantages"], advantages("gae", c, lam=0.7))
    whole = run("turn_gae", c, lam=0.2)
    first = advantages("mc", c)
    for i, t, begin in all_runs(c["turn_ids"], c["response_mask"]):
        close(whole["advantages"][i, t], first[i, begin])
    close(whole["returns"], run("mc", c)["returns"])


@property_test
@given(seeds)
def test_turn_gae_at_lam_1_is_monte_carlo(seed):
    c = batch(seed, kind="holes")
    close(advantages("turn_gae", c, lam=1.0, token_lam=1.0), advantages("mc", c))
    close(run("turn_gae", c, lam=1.0)["returns"], run("mc", c)["returns"])


def test_turn_gae_by_hand():
    """Two turns of two tokens, an observation between them."""
    c = {
        "rewards": torch.tensor([[0.0, 0.1, 0.0, 0.0, 1.0]], dtype=F64),
        "values": torch.tensor([[0.3, 0.4, 0.0, 0.6, 0.8]], dtype=F64),
        "bootstrap_values": torch.zeros(1, dtype=F64),
        "response_mask": torch.tensor([[1.0, 1, 0, 1, 1]], dtype=F64),
        "turn_ids": torch.tensor([[1, 1, 0, 2, 2]]),
    }
    # A_2 = 1 - .6 = .4, C_1 = .9 (.6 + .5 * .4) = .72, A_1 = .1 + .72 - .3 = .52.
    found = run("turn_gae", c, gamma=0.9, lam=0.5)
    close(found["advantages"], torch.tensor([[0.52, 0.52, 0, 0.4, 0.4]], dtype=F64))
    close(found["returns"], torch.tensor([[0.82, 0.82, 0, 1.0, 1.0]], dtype=F64))
    # Inside: .1 + .72 - .4 = .42, .4 - .3 + .5 * .42 = .31; 1 - .8 = .2, .8 - .6 + .5 * .2 = .3.
    found = run("turn_gae", c, gamma=0.9, lam=0.5, token_lam=0.5)
    close(found["advantages"], torch.tensor([[0.31, 0.42, 0, 0.3, 0.2]], dtype=F64))


def test_the_worked_example():
    c = {
        "rewards": torch.tensor([[0.0, 0, 1]], dtype=F64),
        "values": torch.tensor([[0.3, 0.4, 0.6]], dtype=F64),
        "bootstrap_values": torch.zeros(1, dtype=F64),
        "response_mask": torch.ones(1, 3, dtype=F64),
    }
    for name, wanted in (("td0", [0.1, 0.2, 0.4]), ("mc", [0.7, 0.6, 0.4]),
                         ("gae", [0.651, 0.58, 0.4])):  # fmt: skip
        close(advantages(name, c), torch.tensor([wanted], dtype=F64))


# ---------------------------------------------------------------- hard cases


@pytest.mark.parametrize("name", GROUPED)
def test_a_group_of_one_gives_zeros(name):
    c = batch(0, rows=5, kind="ragged")
    c["group_ids"] = torch.arange(5)
    if name == "gigpo":  # a state may recur inside one row: that is signal, not a group's
        assert torch.isfinite(advantages(name, c)).all()
        c["state_keys"] = torch.arange(7).expand(5, 7)
    assert not advantages(name, c).any()


@pytest.mark.parametrize("name", OUTCOME)
@pytest.mark.parametrize("dtype", [F64, torch.float32])
@pytest.mark.parametrize("level", [0.1 + 0.2, 0.0, -5.0, 1e8])
def test_equal_rewards_give_exact_zeros(name, dtype, level):
    c = {n: x.to(dtype) if x.is_floating_point() else x for n, x in batch(0).items()}
    nudged = torch.tensor([level if i % 2 else level * (1 + 1e-15) for i in range(9)]).to(dtype)
    for column in ("sequence_rewards", "sequence_scores"):
        c[column] = nudged
    c["score_components"] = torch.stack([nudged, nudged], 1)
    result = advantages(name, c)
    if name == "pkpo" and level > 0.5:
        assert advantages(name, c, baseline="leave_one_out").abs().max() == 0
    else:
        assert not result.any()


def test_point_three_is_point_one_plus_point_two():
    c = batch(0, rows=4, kind="full")
    c["group_ids"] = torch.zeros(4, dtype=torch.long)
    c["sequence_rewards"] = torch.tensor([0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2], dtype=F64)
    c["score_components"] = c["sequence_rewards"][:, None].expand(4, 2)
    for name in ("grpo", "rloo", "dr_grpo", "opo", "gpg", "passk_max", "gdpo"):
        assert not advantages(name, c).any(), name
    final = torch.zeros(4, 7, dtype=F64)
    final[:, -1] = c["sequence_rewards"]
    assert not advantages("otb", {**c, "rewards": final}).any()


@pytest.mark.parametrize("name", MINE)
def test_float32_is_near_float64(name):
    c = batch(2, rows=30, steps=12)
    low = {n: x.float() if x.is_floating_point() else x for n, x in c.items()}
    for key, x in run(name, c).items():
        torch.testing.assert_close(run(name, low)[key].to(F64), x, rtol=2e-4, atol=2e-4)


def test_otb_tail_and_weights():
    """A longer response's tail has no mate: baseline 0, or itself; certain tokens weigh nothing."""
    c = {
        "rewards": torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 2.0]], dtype=F64),
        "response_mask": torch.tensor([[1.0, 1, 0], [1, 1, 1]], dtype=F64),
        "group_ids": torch.tensor([0, 0]),
        "old_log_probs": torch.tensor([[0.5, 0.5, 1], [1.0, 0.5, 0.5]], dtype=F64).log(),
        "sum_pi_squared": torch.tensor([[0.5, 0.5, 0], [1.0, 0.5, 0.5]], dtype=F64),
    }
    # W: row 0 .5, 1; row 1 0, .5, 1. G: row 0 1, 1; row 1 2, 2, 2.
    wanted = [[1 - 1, 1 - 4 / 3, 0], [2 - 1, 2 - 4 / 3, 2]]
    close(advantages("otb", c), torch.tensor(wanted, dtype=F64))
    assert advantages("otb", c, handle_zero_tail=False)[1, 2] == 0


# ---------------------------------------------------------------- own objectives, by enumeration


def _expected_gradient(name, n, p, **options):
    """E over n Bernoulli(p) rewards of sum_i A_i d log pi(r_i) / d theta, p = sigmoid(theta)."""
    cases = torch.tensor(list(itertools.product([0.0, 1.0], repeat=n)), dtype=F64)  # (2^n, n)
    flat = cases.flatten()
    column = flat[:, None]
    a = advantages(name, {
        "sequence_rewards": flat, "sequence_scores": flat, "response_mask": torch.ones_like(column),
        "group_ids": torch.arange(len(cases)).repeat_interleave(n),
    }, **options).view(-1, n)  # fmt: skip
    probability = torch.where(cases > 0, torch.tensor(p, dtype=F64), 1 - p).prod(1)
    return float((probability * (a * (cases - p)).sum(1)).sum())


@pytest.mark.parametrize("p", [0.05, 0.4, 0.9])
@pytest.mark.parametrize("n", [2, 3, 6])
def test_expected_gradient_is_that_of_the_own_objective(p, n):
    slope = p * (1 - p)  # dp / dtheta
    near = {"rel": 1e-11, "abs": 1e-14}
    for k in range(1, n + 1):
        wanted = pytest.approx(k * (1 - p) ** (k - 1) * slope, **near)  # of pass@k
        assert _expected_gradient("pkpo", n, p, k=k) == wanted
        assert _expected_gradient("pkpo", n, p, k=k, baseline="leave_one_out") == wanted
    wanted = pytest.approx(n * (1 - p) ** (n - 1) * slope, **near)  # pass@n
    assert _expected_gradient("passk_max", n, p) == wanted
    wanted = sum((1 - p) ** (k - 1) for k in range(1, n)) * slope  # log p to n - 1 terms
    assert _expected_gradient("maxrl", n, p) / n == pytest.approx(wanted, **near)
    assert _expected_gradient("rloo", n, p) / n == pytest.approx(slope, **near)
    assert _expected_gradient("opo", n, p, leave_one_out=True) / n == pytest.approx(slope, **near)
    wanted = pytest.approx((n - 1) / n * slope, **near)
    assert _expected_gradient("dr_grpo", n, p) / n == wanted


def test_maxrl_of_a_mean_that_is_no_probability_is_zero():
    c = {
        "sequence_scores": torch.tensor([-2.0, 1, -1, 1], dtype=F64),
        "group_ids": torch.tensor([0, 0, 1, 1]),
        "response_mask": torch.ones(4, 1, dtype=F64),
    }
    assert not advantages("maxrl", c).any()


def test_gpg_takes_the_flat_groups_out_of_the_mean():
    c = {
        "sequence_rewards": torch.tensor([1.0, 0, 1, 1, 0, 0], dtype=F64),
        "group_ids": torch.tensor([0, 0, 1, 1, 2, 2]),
        "response_mask": torch.ones(6, 1, dtype=F64),
    }
    close(advantages("gpg", c)[:, 0], torch.tensor([1.5, -1.5, 0, 0, 0, 0], dtype=F64))
