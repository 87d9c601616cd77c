"""rlzoo's components against numbers that verl 0.9.1's own functions gave.

`reference/make_verl.py` called verl and kept inputs and outputs; verl is not needed here.
docs/agreement.md is the table of what is compared and of what differs on purpose.
"""

import json
import math
import re
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from helpers import ROOT
from helpers.estimator_oracles import IN_VERL
from rlzoo import load_zoo
from rlzoo.ops import group_mean, group_std, reward_to_go, whiten
from rlzoo.step.columns import next_kl_coef

HERE = ROOT / "tests" / "reference"
RECORD = json.loads((HERE / "verl.json").read_text())
OPTIONS, FACTS = RECORD["options"], RECORD["facts"]
TENSORS = load_file(HERE / "verl.safetensors")
DOCS = (ROOT / "docs" / "agreement.md").read_text()
DTYPES = [torch.float64, torch.float32]
EXACT, EPSILON, SINGLE = 1e-9, 1e-7, 1e-5  # same formula; verl adds an epsilon; float32


@pytest.fixture(scope="module")
def zoo():
    return load_zoo()


def columns(batch: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The inputs of a batch as rlzoo's columns; all episodes terminated."""
    x = {name.split("/")[1]: t for name, t in TENSORS.items() if name.count("/") == 1
         and name.startswith(batch + "/")}  # fmt: skip
    x = {name: t.to(dtype) if t.is_floating_point() else t for name, t in x.items()}
    total = x["rewards"].sum(-1)
    return x | {
        "scores": x["rewards"],
        "sequence_rewards": total,
        "sequence_scores": total,
        "bootstrap_values": torch.zeros_like(total),
        "score_weights": torch.tensor(OPTIONS["score_weights"], dtype=dtype),
        "noise": torch.linspace(0, 0.99, x["rewards"].numel(), dtype=dtype).view_as(x["rewards"]),
    }


def verl(batch: str, dtype: torch.dtype, output: str) -> torch.Tensor:
    return TENSORS[f"{batch}/{str(dtype).removeprefix('torch.')}/{output}"]


def assert_near(got, want, dtype, tolerance, what=""):
    tolerance = tolerance if dtype == torch.float64 else SINGLE
    assert got.dtype == dtype, what
    gap = (got - want).abs() - tolerance * want.abs()
    assert gap.max() <= tolerance, f"{what}: off by {(got - want).abs().max():.3g}"


# ------------------------------------------------------------------------------- what is compared


@dataclass(frozen=True)
class Pair:
    """A function of verl and what should give the same numbers here."""

    verl: str  # its name in verl: what the docs' table says
    output: str  # its name among the stored outputs
    component: str
    options: dict = field(default_factory=dict)
    tolerance: float = EXACT  # in float64
    advantages: str = "advantages"  # policy losses: the column that went in
    whiten: bool = False  # estimators: verl whitens inside, here that is the recipe's
    skip: tuple[str, ...] = ()  # batches on which they differ on purpose: tested below

    def __str__(self):
        return self.output


SINGLETON = ("edges0",)  # a group of one, and one of equal rewards
EQUAL = ("outcome0", *SINGLETON)  # groups of equal rewards
HOLES = ("turns0", "turns1")
ALPHA = ("outcome0", "empty_row0", *SINGLETON)  # where a reward is exactly 0
CLIP, DPPO = OPTIONS["clip"], OPTIONS["dppo"]
TAIL = {"handle_zero_tail": False}

ESTIMATORS = [
    Pair("gae", "gae", "gae", OPTIONS["gae"], EPSILON, whiten=True),
    Pair("grpo", "grpo", "grpo", skip=SINGLETON),
    Pair("grpo_vectorized", "grpo_vectorized", "grpo", tolerance=SINGLE, skip=SINGLETON),
    Pair("grpo", "grpo.no_std", "dr_grpo", skip=SINGLETON),
    Pair("grpo_vectorized", "grpo_vectorized.no_std", "dr_grpo", tolerance=SINGLE, skip=SINGLETON),
    Pair("rloo", "rloo", "rloo", skip=SINGLETON),
    Pair("rloo_vectorized", "rloo_vectorized", "rloo"),
    Pair("opo", "opo", "opo", skip=SINGLETON),
    Pair("gpg", "gpg", "gpg", skip=ALPHA),
    Pair("grpo_passk", "grpo_passk.no_std", "passk_max", skip=SINGLETON),
    Pair("remax", "remax", "remax"),
    Pair("reinforce_plus_plus", "reinforce_plus_plus.returns", "reinforce", OPTIONS["reinforce"]),
    Pair("reinforce_plus_plus", "reinforce_plus_plus", "reinforce", OPTIONS["reinforce"], EPSILON,
         whiten=True),
    Pair("reinforce_plus_plus_baseline", "reinforce_plus_plus_baseline", "dr_grpo",
         tolerance=EPSILON, whiten=True, skip=SINGLETON),
    Pair("gdpo", "gdpo", "gdpo", tolerance=SINGLE, whiten=True, skip=SINGLETON),
    Pair("optimal_token_baseline", "optimal_token_baseline", "otb", tolerance=EPSILON,
         skip=EQUAL + HOLES),
    Pair("optimal_token_baseline", "optimal_token_baseline.tail", "otb", TAIL, EPSILON,
         skip=SINGLETON + HOLES),
    Pair("tir_optimal_token_baseline", "tir_optimal_token_baseline", "otb", tolerance=EPSILON,
         skip=EQUAL),
    Pair("tir_optimal_token_baseline", "tir_optimal_token_baseline.tail", "otb", TAIL, EPSILON,
         skip=SINGLETON),
]  # fmt: skip
POLICY_LOSSES = [
    Pair("vanilla", "vanilla", "ppo_dual_clip", CLIP | OPTIONS["dual_clip"]),
    Pair("vanilla", "vanilla.no_dual", "ppo_clip", CLIP),
    Pair("gspo", "gspo", "gspo", OPTIONS["gspo"]),
    Pair("gspo", "gspo.row", "gspo", OPTIONS["gspo"], advantages="row_advantages"),
    Pair("sapo", "sapo", "sapo", OPTIONS["sapo"]),
    Pair("gpg", "gpg", "gpg"),
    Pair("gpg", "gpg", "reinforce"),
    Pair("cispo", "cispo", "cispo", CLIP),
    Pair("geo_mean", "geo_mean", "gmpo", OPTIONS["geo_mean"], EPSILON, "row_advantages"),
    Pair("dro", "dro", "dro", OPTIONS["dro"]),
    Pair("dppo_tv", "dppo_tv", "dppo_tv", OPTIONS["dppo_tv"] | DPPO),
    Pair("dppo_kl", "dppo_kl", "dppo_kl", OPTIONS["dppo_kl"] | DPPO),
    Pair("clip_cov", "clip_cov", "clip_cov", CLIP | OPTIONS["clip_cov"] | {"fraction": 1.0},
         EPSILON),
    Pair("kl_cov", "kl_cov", "kl_cov", OPTIONS["kl_cov"]),
]  # fmt: skip
SEQUENCE_MEAN = ("sapo", "geo_mean")  # verl's: whatever aggregation the recipe says
AGGREGATIONS = [
    Pair("token-mean", "token-mean", "token_mean"),
    Pair("token-sum", "token-sum", "token_sum"),
    Pair("seq-mean-token-sum", "seq-mean-token-sum", "seq_mean_token_sum"),
    Pair("seq-mean-token-mean", "seq-mean-token-mean", "seq_mean_token_mean", tolerance=EPSILON),
    Pair("seq-mean-token-sum-norm", "seq-mean-token-sum-norm", "seq_mean_token_sum_norm",
         {"length": 8}),
    Pair("seq-mean-token-sum-norm", "constant", "seq_mean_token_sum_norm", OPTIONS["norm"]),
]  # fmt: skip
VALUE_LOSSES = [
    Pair("compute_value_loss", "clipped_mse", "clipped_mse", OPTIONS["value"]),
    Pair("compute_value_loss", "mse", "mse"),
]
KL_PENALTIES = [
    Pair("k1", "k1", "k1"),
    Pair("k2", "k2", "k2"),
    Pair("k2+", "k2+", "k2"),
    Pair("k3", "k3", "k3"),
    Pair("abs", "abs", "abs"),
    Pair("k1+", "k1+", "k1_plus"),
    Pair("k3+", "k3+", "k3_plus"),
]
CORRECTIONS = [
    *(Pair("compute_rollout_correction_weights", f"{name}.{level}", name,
           {"level": level} | ({"cap": OPTIONS[name][level]} if name == "tis" else
                               dict(zip(("low", "high"), OPTIONS[name][level], strict=True))))
      for name in ("tis", "icepop") for level in ("token", "sequence")),
    *(Pair("compute_rollout_rejection_mask", f"reject.{name}", "rejection",
           {"estimator": name[-2:], "level": "token" if name.startswith("token") else "sequence",
            # verl bounds the ratio where k1 is meant, and its inverse from below
            "threshold": math.log(bound) if name.endswith("k1") else bound})
      for name, bound in OPTIONS["reject"].items()),
]  # fmt: skip


def over(pairs):
    def mark(test):
        test = pytest.mark.parametrize("dtype", DTYPES, ids=["float64", "float32"])(test)
        return pytest.mark.parametrize("pair", pairs, ids=str)(test)

    return mark


def batches(pair: Pair) -> list[str]:
    return [name for name in RECORD["batches"] if name not in pair.skip]


@over(ESTIMATORS)
def test_estimator(zoo, pair, dtype):
    for batch in batches(pair):
        x = columns(batch, dtype)
        got = zoo.estimators[pair.component](x, **pair.options)["advantages"]
        if pair.whiten:
            got = whiten(got, x["response_mask"], ddof=1)
        want = verl(batch, dtype, pair.output) * x["response_mask"]
        assert_near(got, want, dtype, pair.tolerance, batch)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gae_before_whitening(zoo, dtype):
    """verl's returns are its advantages before whitening, plus the values."""
    for batch in RECORD["batches"]:
        x = columns(batch, dtype)
        got = zoo.estimators["gae"](x, **OPTIONS["gae"])
        returns = verl(batch, dtype, "gae.returns") * x["response_mask"]
        assert_near(got["returns"], returns, dtype, EXACT, batch)
        assert_near(got["advantages"], returns - x["values"], dtype, EXACT, batch)


@pytest.mark.parametrize("dtype", DTYPES)
def test_whitening(dtype):
    for batch in RECORD["batches"]:
        x = columns(batch, dtype)
        got = whiten(x["rewards"], x["response_mask"], ddof=1)
        assert_near(got, verl(batch, dtype, "masked_whiten"), dtype, EPSILON, batch)


def total(zoo, losses, x, aggregation, **options):
    return (zoo.aggregations[aggregation](x, **options) * losses).sum()


@over(POLICY_LOSSES)
def test_policy_loss(zoo, pair, dtype):
    """The aggregated loss and its gradient in the log-probabilities."""
    for batch in batches(pair):
        x = columns(batch, dtype)
        x["advantages"] = x[pair.advantages]
        x["log_probs"].requires_grad_()
        loss = zoo.policy_losses[pair.component](x, **pair.options)[0]
        of_rows = pair.verl in SEQUENCE_MEAN
        if of_rows:  # verl divides by the length + 1e-8
            length = x["response_mask"].sum(-1, keepdim=True)
            loss = loss * length / (length + 1e-8)
        loss = total(zoo, loss, x, "seq_mean_token_mean" if of_rows else "token_mean")
        if pair.verl == "geo_mean":  # its mean counts rows without an action, with a loss of 0
            loss = loss * x["response_mask"].bool().any(-1).to(dtype).mean()
        (gradient,) = torch.autograd.grad(loss, x["log_probs"])
        want = verl(batch, dtype, f"loss.{pair.output}")[0]
        slope = verl(batch, dtype, f"loss.{pair.output}.grad")
        assert_near(loss.detach(), want, dtype, pair.tolerance, batch)
        assert_near(gradient, slope, dtype, pair.tolerance, batch)
        assert gradient.abs().max() > 1e-3, f"{batch}: nothing compared"


@over(AGGREGATIONS)
def test_aggregation(zoo, pair, dtype):
    """An aggregation's weights are the gradient of the aggregated loss in the token losses."""
    for batch in batches(pair):
        x = columns(batch, dtype)
        weights = zoo.aggregations[pair.component](x, **pair.options)
        slope = verl(batch, dtype, f"agg.{pair.output}.grad")
        want = verl(batch, dtype, f"agg.{pair.output}")[0]
        assert_near(weights, slope, dtype, pair.tolerance, batch)
        assert_near((weights * x["losses"]).sum(), want, dtype, pair.tolerance, batch)
        if pair.output == "constant":
            continue
        x["log_probs"] = x["log_probs"].requires_grad_()
        loss = zoo.policy_losses["ppo_dual_clip"](x, **CLIP, **OPTIONS["dual_clip"])[0]
        want = verl(batch, dtype, f"loss.vanilla.{pair.output}")[0]
        loss = total(zoo, loss, x, pair.component, **pair.options).detach()
        assert_near(loss, want, dtype, pair.tolerance, batch)


@over(VALUE_LOSSES)
def test_value_loss(zoo, pair, dtype):
    for batch in batches(pair):
        x = columns(batch, dtype)
        x["value_preds"].requires_grad_()
        loss = zoo.value_losses[pair.component](x, **pair.options)[0]
        loss = total(zoo, loss, x, "token_mean")
        (gradient,) = torch.autograd.grad(loss, x["value_preds"])
        want = verl(batch, dtype, f"value.{pair.output}")[0]
        slope = verl(batch, dtype, f"value.{pair.output}.grad")
        assert_near(loss.detach(), want, dtype, pair.tolerance, batch)
        assert_near(gradient, slope, dtype, pair.tolerance, batch)


@over(KL_PENALTIES)
def test_kl_penalty(zoo, pair, dtype):
    """Value and gradient apart: the straight-through forms differ in the second only."""
    for batch in batches(pair):
        x = columns(batch, dtype)
        x["log_probs"].requires_grad_()
        penalty = zoo.kl_penalties[pair.component](x, **pair.options)
        (gradient,) = torch.autograd.grad(penalty.sum(), x["log_probs"])
        want, slope = (verl(batch, dtype, f"kl.{pair.output}{end}") for end in ("", ".grad"))
        assert_near(penalty.detach(), want, dtype, pair.tolerance, batch)
        assert_near(gradient, slope, dtype, pair.tolerance, batch)


@over(CORRECTIONS)
def test_correction(zoo, pair, dtype):
    for batch in batches(pair):
        x = columns(batch, dtype)
        got = zoo.columns[pair.component](x, **pair.options)
        assert_near(got, verl(batch, dtype, pair.output), dtype, pair.tolerance, batch)


def test_adaptive_controller():
    """Fed the same KL: what it is fed differs, nats per response here, per token in verl."""
    o, fed = OPTIONS["controller"], RECORD["controller"]
    config = SimpleNamespace(controller="adaptive", target=o["target"], horizon=o["horizon"])
    coef = o["coef"]
    for kl, want in zip(fed["kl"], TENSORS["controller/float64/adaptive"].tolist(), strict=True):
        coef = next_kl_coef(config, coef, kl, fed["n"])
        assert coef == pytest.approx(want, rel=EXACT)


# ------------------------------------------------------------------------------- what differs


def test_passk_max_is_before_dividing_by_the_std(zoo):
    for batch in set(RECORD["batches"]) - set(SINGLETON):
        x = columns(batch, torch.float64)
        got = zoo.estimators["passk_max"](x)["advantages"]
        got = got / (group_std(x["sequence_rewards"], x["group_ids"]) + 1e-6)[:, None]
        assert_near(got, verl(batch, torch.float64, "grpo_passk"), torch.float64, EXACT, batch)


ALONE = [Pair("grpo", "grpo", "grpo"), Pair("grpo", "grpo.no_std", "dr_grpo"),
         Pair("rloo", "rloo", "rloo"), Pair("opo", "opo", "opo"), Pair("gpg", "gpg", "gpg"),
         Pair("optimal_token_baseline", "optimal_token_baseline", "otb")]  # fmt: skip


@pytest.mark.parametrize("pair", ALONE, ids=str)
def test_group_of_one(zoo, pair):
    """verl gives the reward itself, unbaselined and of another scale than its neighbours."""
    x = columns("edges0", torch.float64)
    alone = x["group_ids"] == 9
    assert alone.sum() == 1
    assert not zoo.estimators[pair.component](x)["advantages"][alone].any()
    theirs = verl("edges0", torch.float64, pair.output)[alone]
    raw = x["sequence_rewards"][alone]
    if pair.component == "otb":
        raw = reward_to_go(x["rewards"], x["response_mask"])[alone][0]
    elif pair.component == "gpg":
        raw = raw * len(alone) / x["sequence_rewards"].count_nonzero()
    want = raw * x["response_mask"][alone] / (1 + (pair.output == "grpo") * 1e-6)
    assert_near(theirs, want, torch.float64, EPSILON)  # verl divides by float32's 1 + 1e-6


def test_rewards_equal_up_to_rounding(zoo):
    """Seven rewards of .1 against one of .7: verl makes an advantage of the rounding error."""
    x = columns("edges0", torch.float32)
    equal = x["group_ids"] == 5
    assert equal.sum() == 2
    assert not zoo.estimators["grpo"](x)["advantages"][equal].any()
    assert verl("edges0", torch.float32, "grpo")[equal].abs().max() > 0.01


def test_gpg_counts_other_rows(zoo):
    """Here rows of groups with unequal rewards (7 of 12), in verl rows of nonzero reward (6)."""
    x = columns("outcome0", torch.float64)
    mean, total = group_mean(x["sequence_rewards"], x["group_ids"]), x["sequence_rewards"]
    mixed = (mean > 0) & (mean < 1)
    assert (mixed.sum(), total.count_nonzero()) == (7, 6)
    ours = zoo.estimators["gpg"](x)["advantages"]
    assert_near(ours * 7 / 6, verl("outcome0", torch.float64, "gpg"), torch.float64, EXACT)


def test_otb_of_equal_rewards(zoo):
    """All solved: zeros, where verl leaves the longest response's last tokens without baseline."""
    x = columns("outcome0", torch.float64)
    solved = x["group_ids"] == 11
    assert not zoo.estimators["otb"](x)["advantages"][solved].any()
    assert verl("outcome0", torch.float64, "tir_optimal_token_baseline")[solved].max() == 1


def test_otb_lines_up_actions(zoo):
    """With holes verl's `optimal_token_baseline` lines up columns, its `tir_` form actions."""
    x = columns("turns0", torch.float64)
    ours = zoo.estimators["otb"](x)["advantages"]
    assert (ours - verl("turns0", torch.float64, "optimal_token_baseline")).abs().max() > 0.01


def test_k3_is_not_capped(zoo):
    x = {"log_probs": torch.zeros(1, 1), "ref_log_probs": torch.full((1, 1), 12.0)}
    got = zoo.kl_penalties["k3"](x | {"response_mask": torch.ones(1, 1)})
    assert got.item() == pytest.approx(math.exp(12) - 13)
    assert FACTS["k3_at_gap_12"] == 10


def test_k3_plus_far_away(zoo):
    """Where k3 is cut off, the straight-through form still pulls back with k2's gradient."""
    log_probs = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    x = {"log_probs": log_probs, "ref_log_probs": torch.full_like(log_probs, 25.0)}
    penalty = zoo.kl_penalties["k3_plus"](x | {"response_mask": torch.ones(1, 1)})
    (gradient,) = torch.autograd.grad(penalty.sum(), log_probs)
    assert gradient.item() == FACTS["k3_plus_gradient_at_gap_25"] == -25


def test_off_the_mask(zoo):
    x = columns("ragged0", torch.float64)
    off = x["response_mask"] == 0
    assert not zoo.estimators["gae"](x, **OPTIONS["gae"])["advantages"][off].any()
    assert verl("ragged0", torch.float64, "gae")[off].all()


# ------------------------------------------------------------------------------- the docs


def test_what_has_no_oracle_is_compared():
    assert {pair.component for pair in ESTIMATORS} >= IN_VERL


def test_docs_name_what_is_compared():
    pairs = [*ESTIMATORS, *POLICY_LOSSES, *AGGREGATIONS, *VALUE_LOSSES, *KL_PENALTIES, *CORRECTIONS]
    lines = [line for line in DOCS.splitlines() if line.startswith("|")]
    for pair in pairs:
        line = [x for x in lines if f"`{pair.verl}`" in x and f"`{pair.component}`" in x]
        assert line, f"docs/agreement.md has no row for {pair.verl} and {pair.component}"
        tolerance = f"{pair.tolerance:.0e}".replace("e-0", "e-")
        found = [re.findall(r"\|\s*(1e-\d)(?:;|\s*\|)", x) or ["1e-9"] for x in line]
        assert any(tolerance in x for x in found), f"{pair.verl}: {tolerance} is not in its row"


def test_docs_state_what_verl_was_seen_to_do():
    """A verl of another behaviour would change reference/verl.json, and so this test's outcome."""
    assert FACTS == {
        "gae_nonzero_off_mask": True,
        "gae_returns_nonzero_off_mask": True,
        "rewards_off_mask_count": True,
        "geo_mean_ignores_aggregation": True,
        "sapo_ignores_aggregation": True,
        "gspo_ignores_aggregation": False,
        "clip_ratio_ignored": True,
        "dppo_cap_is_dual_clip": True,
        "grpo_vectorized_ignores_no_std": True,
        "grpo_vectorized_is_float32": True,
        "token_k1_bounds_mu_over_pi": True,
        "register_gae_again": "ValueError",
        "whiten_one_token": "ValueError",
        "passk_group_of_one": "ValueError",
        "full_kl": "NotImplementedError",
        "k3_at_gap_12": 10.0,
        "k3_plus_gradient_at_gap_25": -25.0,
    }
    for fact in FACTS:
        assert f"`{fact}`" in DOCS, f"docs/agreement.md says nothing of {fact}"
