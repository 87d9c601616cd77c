"""Policy losses: their gradients against hand-derived formulas, their limits, padding."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from helpers.loss_oracles import ORACLES
from helpers.zoo import ZOO

APART = {"score_centering"}  # of whole distributions: test_score_centering.py
NAMES = sorted(ZOO.policy_losses.keys() - APART)
F64 = torch.float64


def batch(seed: int = 0, *, gap: float = 0.5, per_row: bool = False) -> dict[str, Tensor]:
    """7 ragged rows in 3 groups, T = 6: a hole in row 0, no action in row 2."""
    draw = torch.Generator().manual_seed(seed)
    rows, steps = 7, 6
    mask = (torch.arange(steps) < torch.tensor([6, 4, 0, 1, 5, 6, 3])[:, None]).to(F64)
    mask[0, 2] = 0
    old = -3 * torch.rand(rows, steps, generator=draw, dtype=F64) - 0.05
    advantages = torch.randn(rows, 1 if per_row else steps, generator=draw, dtype=F64)
    log_probs = old + gap * torch.randn(rows, steps, generator=draw, dtype=F64)
    return {
        "response_mask": mask,
        "group_ids": torch.tensor([4, 9, 4, 4, 9, 9, 1]),
        "old_log_probs": old * mask,
        "log_probs": log_probs.clamp(max=-0.01) * mask,
        "advantages": advantages * mask,
        "noise": torch.rand(rows, steps, generator=draw, dtype=F64) * mask,
        "sampler_log_probs": old * mask,
        "ref_log_probs": (old - 0.1) * mask,
        "full_kl": 0.2 * mask,
        "entropy": 3 * torch.rand(rows, steps, generator=draw, dtype=F64) * mask,
        "entropy_coef": 0.3 * mask,
        "observation_nll": torch.rand(rows, generator=draw, dtype=F64),
        "turn_ids": (1 + torch.arange(steps) // 2) * mask.long(),
        "sequence_scores": torch.tensor([0.0, 1, 0, 1, 1, 0, 1], dtype=F64),
    }


def gradient(name: str, columns: dict[str, Tensor], **options) -> Tensor:
    """d sum(loss) / d log_probs, (B, T)."""
    leaf = columns["log_probs"].clone().requires_grad_()
    loss, _ = ZOO.policy_losses[name]({**columns, "log_probs": leaf}, **options)
    return torch.autograd.grad(loss.sum(), leaf)[0]


def on_policy(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    return {**columns, "log_probs": columns["old_log_probs"]}


# ---------------------------------------------------------------- hand-derived gradients


def ratio(c):
    return (c["log_probs"] - c["old_log_probs"]).exp()


def row_sum(x, c):
    return (x * c["response_mask"]).sum(1, keepdim=True)


def length(c):
    return c["response_mask"].sum(1, keepdim=True).clamp(min=1)


def clipped(r, a, low, high):
    return ((a > 0) & (r > 1 + high)) | ((a < 0) & (r < 1 - low))


def covariance(c):
    a, x = c["advantages"], c["log_probs"]
    keep = c["response_mask"].bool()
    return (a - a[keep].mean()) * (x - x[keep].mean())


def slope_ppo_clip(c, clip_low=0.2, clip_high=0.2):
    r, a = ratio(c), c["advantages"]
    return torch.where(clipped(r, a, clip_low, clip_high), 0, -r * a)


def slope_ppo_dual_clip(c, c_bound=3.0):
    return torch.where((c["advantages"] < 0) & (ratio(c) > c_bound), 0, slope_ppo_clip(c))


def slope_gspo(c, clip_low=3e-4, clip_high=4e-4, length_normalize=True):
    s = (row_sum(ratio(c).log(), c) / (length(c) if length_normalize else 1)).exp()
    return torch.where(clipped(s, c["advantages"], clip_low, clip_high), 0, -s * c["advantages"])


def slope_gmpo(c, clip_low=0.4, clip_high=0.4):
    x, a = ratio(c).log(), c["advantages"]
    free = torch.where(a >= 0, x < clip_high, x > -clip_low)
    held = torch.where(a >= 0, x.clamp(max=clip_high), x.clamp(min=-clip_low))
    r = (row_sum(held, c) / length(c)).exp()
    return -row_sum(a, c) * r / length(c) * free


def slope_sapo(c, tau_pos=1.0, tau_neg=1.05):
    r, a = ratio(c), c["advantages"]
    tau = tau_neg + (tau_pos - tau_neg) * (a > 0).double()
    return -a * r / torch.cosh(tau * (r - 1) / 2).square()


def slope_topr(c):
    weight = row_sum(ratio(c).log(), c).exp().clamp(max=1)
    return -c["advantages"] * torch.where(c["advantages"] >= 0, 1, weight)


def slope_spo(c, eps=0.2):
    r, a = ratio(c), c["advantages"]
    return -r * (a - a.abs() * (r - 1) / eps)


def slope_dppo_tv(c, clip_low=0.15, clip_high=0.15):
    a, moved = c["advantages"], c["log_probs"].exp() - c["old_log_probs"].exp()
    out = ((a > 0) & (moved > clip_high)) | ((a < 0) & (moved < -clip_low))
    return torch.where(out, 0, -a * ratio(c).clamp(max=20))


def slope_dppo_kl(c, clip_low=0.05, clip_high=0.05):
    a, p, q = c["advantages"], c["old_log_probs"].exp(), c["log_probs"].exp()
    kl = torch.where(c["response_mask"] > 0,
                     p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log(), 0)  # fmt: skip
    out = ((a > 0) & (q > p) & (kl > clip_high)) | ((a < 0) & (q < p) & (kl > clip_low))
    return torch.where(out, 0, -a * ratio(c).clamp(max=20))


def slope_clip_cov(c, fraction, cov_low, cov_high, clip=1.0, **_):
    cov, out = covariance(c), clipped(ratio(c), c["advantages"], clip, clip)
    fit = [
        (float(c["noise"][i, t]), i, t)
        for i, t in c["response_mask"].nonzero().tolist()
        if cov_low < cov[i, t] < cov_high and not out[i, t]
    ]
    expected = slope_ppo_clip(c, clip, clip)
    for _, i, t in sorted(fit)[: max(1, int(fraction * c["response_mask"].sum()))]:
        expected[i, t] = 0
    return expected


def slope_kl_cov(c, fraction=2e-4, coef=1.0):
    cov = covariance(c)
    order = sorted((-float(cov[i, t]), i, t) for i, t in c["response_mask"].nonzero().tolist())
    expected = -ratio(c) * c["advantages"]
    for negative, i, t in order[: max(1, int(fraction * len(order)))]:
        if negative < 0:
            expected[i, t] += coef * ratio(c)[i, t].log().sign()
    return expected


def slope_vespo(c):
    a, w = c["advantages"], row_sum(ratio(c).log(), c).exp()
    phi = torch.where(a >= 0, w**2 * (3 - 3 * w).exp(), w**3 * (2 - 2 * w).exp())
    return -phi * a


def slope_dro(c, beta=0.05, level="token"):
    x = ratio(c).log()
    return -c["advantages"] + beta * (x if level == "token" else row_sum(x, c))


def slope_tpo(c, eta=1.0, length_normalize=False):
    mask, expected = c["response_mask"], torch.zeros_like(c["log_probs"])
    over = length(c)[:, 0] if length_normalize else 1
    score, goal = ((c[n] * mask).sum(1) / over for n in ("log_probs", "old_log_probs"))
    goal = goal + (row_sum(c["advantages"], c) / length(c))[:, 0] / eta
    for group in c["group_ids"].unique():
        rows = (c["group_ids"] == group) & (mask.sum(1) > 0)
        push = int(rows.sum()) * (score[rows].softmax(0) - goal[rows].softmax(0))
        expected[rows] = push[:, None].expand(-1, mask.shape[1])
    return expected


SLOPES = [
    ("reinforce", {}, lambda c: -c["advantages"]),
    ("gpg", {}, lambda c: -c["advantages"]),
    ("surrogate", {}, lambda c: -ratio(c) * c["advantages"]),
    ("ppo_clip", {}, slope_ppo_clip),
    ("ppo_clip", {"clip_low": 0.1, "clip_high": 0.28}, slope_ppo_clip),
    ("ppo_dual_clip", {}, slope_ppo_dual_clip),
    ("ppo_dual_clip", {"c": 1.5}, lambda columns, /, **kw: slope_ppo_dual_clip(columns, 1.5)),
    ("gspo", {}, slope_gspo),
    ("gspo", {"clip_low": 0.1, "clip_high": 0.2}, slope_gspo),
    ("gspo", {"clip_high": 0.2, "length_normalize": False}, slope_gspo),
    ("gmpo", {}, slope_gmpo),
    ("cispo", {}, lambda c: -ratio(c).clamp(0.8, 1.2) * c["advantages"]),
    ("cispo", {"clip_low": 1.0, "clip_high": 1.0},
     lambda c, **kw: -ratio(c).clamp(max=2) * c["advantages"]),
    ("sapo", {}, slope_sapo),
    ("topr", {}, slope_topr),
    ("spo_simple", {}, slope_spo),
    ("spo_simple", {"eps": 0.5}, slope_spo),
    ("dppo_tv", {}, slope_dppo_tv),
    ("dppo_tv", {"clip_low": 0.02, "clip_high": 0.05}, slope_dppo_tv),
    ("dppo_kl", {}, slope_dppo_kl),
    ("dppo_kl", {"clip_low": 0.002, "clip_high": 0.01}, slope_dppo_kl),
    ("clip_cov", {"fraction": 0.1, "cov_low": 0.1, "cov_high": 2.0}, slope_clip_cov),
    ("clip_cov", {"fraction": 1.0, "cov_low": 0.0, "cov_high": 9.0}, slope_clip_cov),
    ("clip_cov", {"fraction": 0.2, "cov_low": -9.0, "cov_high": 9.0, "clip_low": 0.2,
                  "clip_high": 0.2},
     lambda c, **kw: slope_clip_cov(c, **kw, clip=0.2)),
    ("kl_cov", {}, slope_kl_cov),
    ("kl_cov", {"fraction": 0.3, "coef": 0.7}, slope_kl_cov),
    ("vespo", {}, slope_vespo),
    ("dro", {}, slope_dro),
    ("dro", {"level": "sequence", "beta": 0.3}, slope_dro),
    ("tpo", {}, slope_tpo),
    ("tpo", {"eta": 0.5, "length_normalize": True}, slope_tpo),
    ("awr", {}, lambda c: -c["advantages"].exp().clamp(max=20)),
    ("awr", {"beta": 0.2, "max_weight": 5.0},
     lambda c, **kw: -(5 * c["advantages"]).exp().clamp(max=5)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "slope"), SLOPES)
@pytest.mark.parametrize("seed", range(3))
def test_gradient_is_the_hand_derived_one(name, options, slope, seed):
    columns = batch(seed)
    expected = slope(columns, **options) * columns["response_mask"]
    assert_close(gradient(name, columns, **options), expected, rtol=1e-11, atol=1e-12)


def test_every_loss_has_a_hand_derived_gradient():
    shipped = {n for n, c in ZOO.policy_losses.items() if "rlzoo_zoo" in c.origin}
    missing = shipped - {name for name, _, _ in SLOPES} - set(ORACLES) - APART
    assert not missing, (
        f"{missing}: derive the gradient by hand: a row of SLOPES in this file, or, where it is no "
        "slope of one token, a function in ORACLES of tests/helpers/loss_oracles.py"
    )
    assert {name for name, _, _ in SLOPES} | set(ORACLES) <= shipped, "a loss that is gone"


def test_the_batches_reach_both_sides_of_every_clip():
    seen: dict[tuple[str, str], list[Tensor]] = {}
    mask = batch()["response_mask"].bool()
    for name, options, _ in SLOPES:
        for seed in range(3):
            for metric, x in ZOO.policy_losses[name](batch(seed), **options)[1].items():
                if metric.startswith("pg_clipfrac"):
                    seen.setdefault((name, metric), []).append(x[mask])
    constant = [key for key, x in seen.items() if len(torch.cat(x).unique()) < 2]
    assert not constant, f"never varies, so that clip is not tested: {constant}"


# ---------------------------------------------------------------- at ratio 1


OWN_GRADIENT = ("awr", "tpo", "delightful", "a_star_po", "vimpo", "vargrad", "gvpo", "real")


@pytest.mark.parametrize("name", [n for n in NAMES if n not in OWN_GRADIENT])
def test_at_ratio_1_the_gradient_is_reinforces(name):
    per_row = name in ("gspo", "gmpo", "turn_clip")  # they share a gradient among tokens
    columns = on_policy(batch(per_row=per_row))
    options = {"clip_cov": {"fraction": 1e-9, "cov_low": 50.0, "cov_high": 51.0},
               "high_entropy": {"fraction": 1.0}, "ppo_nll": {"mu": 0.0}}.get(name, {})  # fmt: skip
    assert_close(gradient(name, columns, **options), -columns["advantages"], rtol=0, atol=1e-15)


def test_tpo_on_policy_is_a_policy_gradient_for_a_hot_target():
    # To first order in 1 / eta: G (p - q) = -G p (u - sum_j p_j u_j) / eta.
    columns = on_policy(batch(per_row=True))
    got = 1e6 * gradient("tpo", columns, eta=1e6)
    rows = torch.tensor([1, 4, 5])  # group 9
    p = columns["old_log_probs"][rows].sum(1).softmax(0)
    u = columns["advantages"][rows, 0]
    assert_close(got[rows, 0], -3 * p * (u - (p * u).sum()), rtol=1e-4, atol=1e-6)


def test_tpo_is_still_at_its_target():
    columns = batch(per_row=True)
    u = columns["advantages"][:, :1] * columns["response_mask"] / length(columns)
    there = {**columns, "log_probs": columns["old_log_probs"] + u}
    assert_close(gradient("tpo", there), torch.zeros_like(u), rtol=0, atol=1e-14)


# ---------------------------------------------------------------- small arrays


def small(ratios, advantages, old=-1.0):
    old = torch.full((1, len(ratios)), float(old), dtype=F64)
    return {
        "log_probs": old + torch.tensor([ratios], dtype=F64).log(),
        "old_log_probs": old,
        "advantages": torch.tensor([advantages], dtype=F64),
        "response_mask": torch.ones_like(old),
        "group_ids": torch.zeros(1, dtype=torch.long),
    }


@pytest.mark.parametrize("name", ["surrogate", "ppo_clip"])
def test_the_worked_surrogate_example(name):
    columns = small([1.0] * 6, [0.13, 0.10, 0.08, 0.05, 0.03, 0.05])
    out = ZOO.policy_losses[name](columns)[0]
    assert_close(-out.mean().item(), 0.44 / 6, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("surrogate", {}, [-2.0, -0.5, 2.0, 0.5, 4.0, -4.0]),
        ("ppo_clip", {}, [-1.2, -0.5, 2.0, 0.8, 4.0, -1.2]),
        ("ppo_clip", {"clip_low": 0.6, "clip_high": 0.28}, [-1.28, -0.5, 2.0, 0.5, 4.0, -1.28]),
        ("ppo_dual_clip", {}, [-1.2, -0.5, 2.0, 0.8, 3.0, -1.2]),
        # |A| (rho - 1)^2 / .4 = 2.5, .625, 2.5, .625, 22.5, 22.5
        ("spo_simple", {}, [0.5, 0.125, 4.5, 1.125, 26.5, 18.5]),
    ],
)
def test_small_arrays_token_by_token(name, options, expected):
    columns = small([2.0, 0.5, 2.0, 0.5, 4.0, 4.0], [1.0, 1.0, -1.0, -1.0, -1.0, 1.0])
    loss, _ = ZOO.policy_losses[name](columns, **options)
    assert_close(loss, torch.tensor([expected], dtype=F64), rtol=0, atol=1e-12)


HIGH, LOW = [1, 0, 0, 0, 0], [0, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("ppo_clip", {}, {"high": HIGH, "low": LOW}),
        ("ppo_dual_clip", {}, {"high": HIGH, "low": LOW, "lower": [0, 0, 0, 0, 1]}),
        ("gmpo", {}, {"high": HIGH, "low": LOW}),
        ("cispo", {}, {"high": [1, 0, 1, 0, 1], "low": [0, 1, 0, 1, 0]}),  # whatever A's sign
        ("dppo_tv", {"clip_low": 0.1}, {"high": HIGH, "low": LOW}),
        ("dppo_kl", {}, {"high": HIGH, "low": LOW}),
    ],
)
def test_clip_fractions_say_which_side(name, options, expected):
    columns = small([2.0, 0.5, 2.0, 0.5, 4.0], [1.0, 1.0, -1.0, -1.0, -1.0], old=-1.5)
    _, metrics = ZOO.policy_losses[name](columns, **options)
    for side, tokens in expected.items():
        assert metrics[f"pg_clipfrac_{side}"].tolist() == [tokens]
    both = metrics["pg_clipfrac_high"] + metrics["pg_clipfrac_low"]
    assert torch.equal(metrics["pg_clipfrac"], both)


def test_gspo_clips_whole_responses():
    for advantage, r, side in ((1.0, 2.0, "high"), (-1.0, 0.5, "low")):
        _, metrics = ZOO.policy_losses["gspo"](small([r, 1.0], [advantage] * 2))
        assert metrics[f"pg_clipfrac_{side}"].tolist() == [[1, 1]]
        assert metrics["pg_clipfrac"].tolist() == [[1, 1]]


def test_sequence_ratios_of_two_tokens():
    e = math.exp
    columns = small([e(0.2), 1.0], [1.0, 1.0])
    wide = {"clip_low": 0.5, "clip_high": 0.5}
    for name in ("gspo", "gmpo"):  # the geometric mean, e^.1
        loss, _ = ZOO.policy_losses[name](columns, **wide)
        assert_close(loss, torch.full((1, 2), -e(0.1), dtype=F64))
    loss, _ = ZOO.policy_losses["gmpo"](columns, clip_low=0.5, clip_high=0.1)
    assert_close(loss, torch.full((1, 2), -e(0.05), dtype=F64))  # clipped before the mean
    loss, _ = ZOO.policy_losses["gspo"](columns, clip_low=0.5, clip_high=0.05)
    assert_close(loss, torch.full((1, 2), -1.05, dtype=F64))  # clipped after it


def test_topr_tapers_bad_responses_by_the_whole_product():
    columns = small([0.5, 0.5, 0.5], [-1.0, -1.0, 1.0])
    assert_close(gradient("topr", columns), torch.tensor([[0.125, 0.125, -1.0]], dtype=F64))


def test_vespo_kernel_is_1_on_policy_and_peaks_at_k_over_lam():
    columns = small([2 / 3], [1.0])  # k = 2, lam = 3: the peak
    peak = gradient("vespo", columns)
    for r in (0.6, 0.75):
        assert gradient("vespo", small([r], [1.0])).abs() < peak.abs()
    assert_close(gradient("vespo", small([1.0], [-2.0])), torch.tensor([[2.0]], dtype=F64))


def test_dppo_tv_masks_by_probability_not_by_ratio():
    rare = small([3.0], [1.0], old=math.log(0.001))
    assert_close(gradient("dppo_tv", rare), torch.tensor([[-3.0]], dtype=F64))
    likely = small([0.8], [-1.0], old=math.log(0.9))  # .9 -> .72; PPO would let it go on
    assert gradient("dppo_tv", likely).item() == 0
    assert gradient("ppo_clip", likely, clip_low=0.25).item() != 0


@pytest.mark.parametrize("name", ["dppo_tv", "dppo_kl"])
@pytest.mark.parametrize(("r", "advantage"), [(0.1, 1.0), (1.3, -1.0)])
def test_dppo_never_masks_a_token_on_its_way_back(name, r, advantage):
    columns = small([r], [advantage], old=math.log(0.7))
    assert_close(gradient(name, columns), torch.tensor([[-r * advantage]], dtype=F64))


def test_spo_is_stationary_at_the_edge_of_its_interval():
    columns = small([1.2, 0.8], [3.0, -2.0])
    assert_close(gradient("spo_simple", columns), torch.zeros(1, 2, dtype=F64), atol=1e-14, rtol=0)


def test_kl_cov_takes_ties_together_and_nothing_without_covariance():
    tied = small([4.0, 4.0, 1.0, 1.0, 1.0], [1.0, 1.0, -1.0, -1.0, -1.0])
    _, metrics = ZOO.policy_losses["kl_cov"](tied, fraction=0.01)
    assert metrics["pg_clipfrac_cov"].tolist() == [[1, 1, 0, 0, 0]]
    flat = small([2.0, 2.0, 0.5, 0.5], [0.0] * 4)
    _, metrics = ZOO.policy_losses["kl_cov"](flat, fraction=1.0)
    assert not metrics["pg_clipfrac_cov"].any()


@pytest.mark.parametrize("name", ["clip_cov", "kl_cov"])
def test_covariance_is_that_of_the_mini_batch(name):
    options = {"cov_low": 0.1, "cov_high": 2.0} if name == "clip_cov" else {}
    picked = ZOO.policy_losses[name](batch(), **options)[1]["pg_clipfrac_cov"]
    row = int(picked.sum(1).argmax())
    rest = {n: x[torch.arange(7) != row] for n, x in batch().items()}
    others = ZOO.policy_losses[name](rest, **options)[1]["pg_clipfrac_cov"]
    assert picked.sum() == others.sum() == 1  # each time the one of its own mini-batch
    assert ZOO.policy_losses[name].couples == "batch"


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("name", "options", "limit"),
    [
        ("ppo_clip", {"clip_low": 1.0, "clip_high": 1e3}, "surrogate"),
        ("ppo_dual_clip", {"c": 1e3}, "ppo_clip"),
        ("cispo", {"clip_low": 1.0, "clip_high": 1e3}, "surrogate"),
        ("sapo", {"tau_pos": 1e-7, "tau_neg": 1e-7}, "surrogate"),
        ("spo_simple", {"eps": 1e8}, "surrogate"),
        ("dppo_tv", {"clip_low": 1.0, "clip_high": 1.0, "cap": 1e3}, "surrogate"),
        ("dppo_kl", {"clip_low": 1e3, "clip_high": 1e3, "cap": 1e3}, "surrogate"),
        ("kl_cov", {"coef": 0.0, "fraction": 1.0}, "surrogate"),
        ("dro", {"beta": 0.0}, "reinforce"),
        ("vespo", {"k_pos": 0.0, "lam_pos": 0.0, "k_neg": 0.0, "lam_neg": 0.0}, "reinforce"),
    ],
)
def test_limits(name, options, limit):
    columns = batch(2)
    assert_close(gradient(name, columns, **options), gradient(limit, columns), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["gspo", "gmpo"])
def test_a_response_of_one_token_has_its_own_ratio(name):
    columns = batch(3)
    columns = {n: x[:, :1] if x.ndim == 2 else x for n, x in columns.items()}
    clips = {"clip_low": 1.0, "clip_high": 1e3}
    assert_close(gradient(name, columns, **clips), gradient("surrogate", columns))


# ---------------------------------------------------------------- padding, extremes


@pytest.mark.parametrize(
    ("name", "options"), [*((n, {}) for n in NAMES), ("vespo", {"lam_pos": 0.0, "lam_neg": 0.0})]
)
@pytest.mark.parametrize("gap", [-100.0, 100.0])
def test_finite_in_float32_where_the_ratio_would_overflow(name, options, gap):
    columns = {n: x.float() if x.is_floating_point() else x for n, x in batch().items()}
    columns["log_probs"] = columns["log_probs"] + min(gap, 0) * columns["response_mask"]
    columns["old_log_probs"] = columns["old_log_probs"] - max(gap, 0) * columns["response_mask"]
    loss, _ = ZOO.policy_losses[name](columns, **options)
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss).all()
    assert torch.isfinite(gradient(name, columns, **options)).all()
