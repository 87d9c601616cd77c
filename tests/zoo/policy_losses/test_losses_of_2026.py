"""Losses of 2025 and 2026 against loops written from their sources, and what each promises."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from helpers.loss_oracles import ORACLES
from helpers.zoo import ZOO

F64 = torch.float64


def batch(seed: int = 0, gap: float = 0.4) -> dict[str, Tensor]:
    """9 rows of up to 8 actions: holes, a row of one action, one of none, turns of 2 or 3."""
    draw = torch.Generator().manual_seed(seed)
    rows, steps = 9, 8
    mask = (torch.arange(steps) < torch.tensor([8, 6, 0, 1, 8, 7, 5, 8, 4])[:, None]).to(F64)
    mask[0, 3] = mask[5, 0] = mask[4, 2] = mask[4, 5] = 0

    def uniform(low, high):
        return low + (high - low) * torch.rand(rows, steps, generator=draw, dtype=F64)

    def normal(scale, width=steps):
        return scale * torch.randn(rows, width, generator=draw, dtype=F64)

    old = uniform(-3.0, -0.05)
    columns = {
        "old_log_probs": old,
        "log_probs": (old + normal(gap)).clamp(max=-0.01),
        "sampler_log_probs": old + normal(0.2),
        "ref_log_probs": old + normal(0.3),
        "advantages": normal(1.0, 1) + normal(0.3),
        "entropy": uniform(0.0, 3.0),
        "entropy_coef": uniform(0.0, 0.3),
        "full_kl": uniform(0.0, 0.3),
        "observation_nll": uniform(0.0, 3.0)[:, 0],
        "group_ids": torch.tensor([7, 3, 7, 3, 5, 7, 3, 9, 5]),
        "sequence_scores": torch.tensor([1.0, 0, 0, 1, 0, 0, 1, 1, 0], dtype=F64),
        "turn_ids": (1 + torch.arange(steps) // 3).expand(rows, steps),
    }
    wide = {n: x * mask.to(x.dtype) if x.ndim == 2 else x for n, x in columns.items()}
    return {**wide, "response_mask": mask}


def gradient(name: str, columns: dict[str, Tensor], **options) -> Tensor:
    leaf = columns["log_probs"].clone().requires_grad_()
    loss, _ = ZOO.policy_losses[name]({**columns, "log_probs": leaf}, **options)
    return torch.autograd.grad(loss.sum(), leaf)[0]


TRIED = [(n, options) for n, (_, more) in ORACLES.items() for options in ({}, *more)]


@pytest.mark.parametrize(("name", "options"), TRIED)
def test_loss_and_gradient_are_the_oracles(name, options):
    for seed, gap in ((0, 0.4), (1, 0.05), (2, 1.5)):
        columns = batch(seed, gap)
        leaf = columns["log_probs"].clone().requires_grad_()
        token = ORACLES[name][0]({**columns, "log_probs": leaf}, **options)
        want = torch.stack([torch.stack([torch.as_tensor(x, dtype=F64) for x in r]) for r in token])
        (slope,) = torch.autograd.grad(want.sum() + 0 * leaf.sum(), leaf)
        loss, _ = ZOO.policy_losses[name](columns, **options)
        assert_close(loss, want.detach(), rtol=1e-12, atol=1e-13)
        assert_close(gradient(name, columns, **options), slope, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", sorted(ORACLES))
def test_the_batches_reach_both_sides_of_every_clip(name):
    seen: dict[str, set] = {}
    for options in ({}, *ORACLES[name][1]):
        for seed, gap in ((0, 0.4), (2, 1.5)):
            columns = batch(seed, gap)
            metrics = ZOO.policy_losses[name](columns, **options)[1]
            for metric, x in metrics.items():
                seen.setdefault(metric, set()).update(x[columns["response_mask"].bool()].tolist())
    assert all(len(values) > 1 for values in seen.values()), seen


# ---------------------------------------------------------------- what each of them promises


def one(log_pi: float, log_old: float, advantage: float, **more: float) -> dict[str, Tensor]:
    values = {"log_probs": log_pi, "old_log_probs": log_old, "advantages": advantage,
              "sampler_log_probs": log_old, "response_mask": 1.0, **more}  # fmt: skip
    return {n: torch.tensor([[x]], dtype=F64) for n, x in values.items()}


def at(rho: float, advantage: float, probability: float = 0.1) -> dict[str, Tensor]:
    return one(math.log(probability * rho), math.log(probability), advantage)


def test_up_never_lets_go_of_a_good_token_and_clips_a_bad_one():
    for rho in (0.1, 1.0, 9.0):
        assert gradient("up", at(rho, 2.0)).item() == pytest.approx(-2)
    assert gradient("up", at(0.7, -2.0)).item() == 0
    columns = batch()
    bad = {**columns, "advantages": -columns["advantages"].abs()}
    assert_close(gradient("up", bad), gradient("ppo_clip", bad))


def test_aspo_turns_the_ratio_of_good_tokens_over():
    assert gradient("aspo", at(0.5, 1.0)).item() == pytest.approx(-2)  # the lagging: 1 / rho
    assert gradient("aspo", at(1.1, 1.0)).item() == pytest.approx(-1 / 1.1)
    assert gradient("aspo", at(0.1, 1.0)).item() == pytest.approx(-3)  # held, not cut
    assert gradient("aspo", at(1.3, 1.0)).item() == 0
    assert gradient("aspo", at(9.0, -1.0)).item() == pytest.approx(3)  # PPO: 9, dual clip: 0


def test_ripo_spends_the_same_kl_on_every_token():
    wide = {"ratio_min": 0.0, "ratio_max": 1e3}
    for probability in (0.9, 0.3, 0.05):
        edge = 1 + math.sqrt(0.05 / probability)
        spent = probability * (edge - 1) ** 2 / 2
        assert spent == pytest.approx(0.025)
        inside, outside = (at(edge + x, 1.0, probability) for x in (-1e-6, 1e-6))
        assert gradient("ripo", inside, **wide).item() == pytest.approx(-edge, rel=1e-4)
        assert gradient("ripo", outside, **wide).item() == 0


def test_drpo_is_still_where_a_probability_has_moved_by_eps():
    old, eps = 0.3, 0.1
    for sign in (1, -1):
        there = one(math.log(old + sign * eps), math.log(old), sign * 2.0)
        assert gradient("drpo", there, eps=eps).abs().item() < 1e-12
    weight = 1 - (0.35 - old) / eps  # the paper's table 1
    half = one(math.log(0.35), math.log(old), 1.0)
    assert gradient("drpo", half, eps=eps).item() == pytest.approx(-0.35 / old * weight)


def test_delight_keeps_rare_successes_and_drops_rare_failures():
    rare, likely = math.log(1e-4), math.log(0.999)
    assert gradient("delightful", one(rare, rare, 1.0)).item() == pytest.approx(-1, abs=1e-3)
    assert gradient("delightful", one(rare, rare, -1.0)).abs().item() < 1e-3
    for a in (1.0, -1.0):
        assert gradient("delightful", one(likely, likely, a)).item() == pytest.approx(
            -a / 2, rel=1e-3
        )
    columns = batch()
    halved = 2 * gradient("delightful", columns, eta=1e9)
    assert_close(halved, gradient("reinforce", columns), rtol=1e-6, atol=1e-8)


def test_cppo_without_weights_and_budget_is_dppo():
    for seed in range(3):
        columns = batch(seed)
        got = gradient("cppo", columns, weight_min=1.0, budget=1.0, adaptive=False)
        assert_close(got, gradient("dppo_tv", columns, clip_low=0.15, clip_high=0.15))


def test_cppo_tightens_after_a_beginning_that_moved():
    old = torch.full((1, 6), math.log(0.5), dtype=F64)
    probability = torch.tensor([[0.6] * 6], dtype=F64)  # each by .1, less than delta
    one = torch.ones_like(old)
    columns = {"old_log_probs": old, "log_probs": probability.log(), "advantages": one,
               "response_mask": one}  # fmt: skip
    options = {"adaptive": False, "weight_min": 1.0}
    _, metrics = ZOO.policy_losses["cppo"](columns, **options)
    # Allowed: .15, then .15 + .02 t - .1 t: .15, .07, ...
    assert metrics["pg_clipfrac_high"].tolist() == [[0, 1, 1, 1, 1, 1]]
    calm = {**columns, "log_probs": torch.tensor([[0.51] * 5 + [0.6]], dtype=F64).log()}
    _, metrics = ZOO.policy_losses["cppo"](calm, **options)
    assert not metrics["pg_clipfrac"].any()


def test_opsm_leaves_a_bad_response_out_whole_and_keeps_a_good_one():
    old = torch.zeros(2, 4, dtype=F64) - 1
    columns = {"old_log_probs": old, "sampler_log_probs": old + 0.1, "log_probs": old - 0.5,
               "advantages": torch.tensor([[-1.0], [1.0]], dtype=F64).expand(2, 4),
               "response_mask": torch.ones(2, 4, dtype=F64)}  # fmt: skip
    push = gradient("opsm", columns, delta=0.55, clip_low=0.9)
    assert not push[0].any()
    assert push[1].all()
    kept = gradient("opsm", columns, delta=0.65, clip_low=0.9)  # the mean is .6: mu, not pi_old
    assert kept[0].all()


def test_all_tokens_of_high_entropy_is_ppo_clip():
    columns = batch()
    whole = gradient("high_entropy", columns, fraction=1.0, clip_high=0.2)
    assert_close(whole, gradient("ppo_clip", columns))
    kept = ZOO.policy_losses["high_entropy"](columns)[1]["pg_kept"]
    assert kept.sum() == int(0.2 * columns["response_mask"].sum())
    assert columns["entropy"][kept.bool()].min() > columns["entropy"][~kept.bool()].max()


def test_turns_of_one_token_are_ppo_clip_and_one_turn_a_response():
    columns = batch()
    alone = {**columns, "turn_ids": torch.arange(8).expand(9, 8)}
    assert_close(gradient("turn_clip", alone), gradient("ppo_clip", columns))
    whole = {**columns, "turn_ids": torch.ones(9, 8, dtype=torch.long)}
    row = columns["advantages"][:, :1] * columns["response_mask"]
    wide = {"clip_low": 1.0, "clip_high": 1e3}
    # GSPO's value and, with one advantage per response, its gradient.
    same = {**whole, "advantages": row}
    assert_close(gradient("turn_clip", same, **wide), gradient("gspo", same, **wide))
    for name in ("turn_clip", "gspo"):
        loss, _ = ZOO.policy_losses[name](same, **wide)
        assert_close(loss, ZOO.policy_losses["gspo"](same, **wide)[0])


def test_a_star_po_is_still_at_the_optimum_of_its_objective():
    """By enumeration of 6 responses: pi* = pi_ref exp(R / beta) / Z leaves no error and no push."""
    draw = torch.Generator().manual_seed(0)
    ref = torch.randn(6, generator=draw, dtype=F64).log_softmax(0)
    reward, beta = torch.rand(6, generator=draw, dtype=F64), 0.5
    optimal = beta * (ref + reward / beta).logsumexp(0)  # V*
    best = ref + (reward - optimal) / beta
    assert best.exp().sum() == pytest.approx(1)
    columns = {"log_probs": best[:, None], "ref_log_probs": ref[:, None],
               "advantages": (reward - optimal)[:, None],
               "response_mask": torch.ones(6, 1, dtype=F64)}  # fmt: skip
    assert gradient("a_star_po", columns, beta=beta).abs().max() < 1e-15
    away = {**columns, "log_probs": ref[:, None]}
    want = -2 * beta * (reward - optimal)[:, None]  # at pi_ref: REINFORCE times 2 beta
    assert_close(gradient("a_star_po", away, beta=beta), want)


def test_luspo_is_gspo_times_its_length():
    """The recipe's loss and aggregation give LUSPO's objective: mean_i L_i s_i A_i."""
    columns = batch()
    mask, a = columns["response_mask"], columns["advantages"][:, :1]
    columns["advantages"] = a * mask
    leaf = columns["log_probs"].clone().requires_grad_()
    wide = {"clip_low": 2e-3, "clip_high": 2.5e-3}
    loss, _ = ZOO.policy_losses["gspo"]({**columns, "log_probs": leaf}, **wide)
    weights = ZOO.aggregations["seq_mean_token_sum"](columns)
    (got,) = torch.autograd.grad((weights * loss).sum(), leaf)
    length = mask.sum(1)
    s = (((leaf - columns["old_log_probs"]) * mask).sum(1) / length.clamp(min=1)).exp()
    value = torch.minimum(s * a[:, 0], s.clamp(1 - 2e-3, 1 + 2.5e-3) * a[:, 0])
    acts = int((length > 0).sum())
    want = -(length * value).sum() / acts
    assert_close((weights * loss).sum(), want)
    assert_close(got, torch.autograd.grad(want, leaf)[0])
