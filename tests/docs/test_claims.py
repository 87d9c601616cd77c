"""docs/studies/claims.py: the optimum that it compares with is one, and its numbers are shown."""

import pytest
import torch

from helpers import ROOT
from helpers.scripts import script


@pytest.fixture(scope="module")
def claims():
    return script("claims")


def test_the_soft_optimum_has_no_gradient_and_its_log_ratio_is_its_advantage(claims):
    world = claims.make_world("graded", claims.TREE, seed=3)
    best = claims.optimum(world)
    assert best.gradient().abs().max() < 1e-14
    ratio = best.log_pi - world.reference.log_softmax(-1)
    q = claims.soft_optimum(world, claims.BETA)[1]
    value = claims.BETA * (world.reference.log_softmax(-1) + q / claims.BETA).logsumexp(-1)
    torch.testing.assert_close(claims.BETA * ratio, q - value[:, None], rtol=1e-12, atol=1e-12)


def test_a_few_steps_of_ascent_gain_and_stay_below_the_optimum(claims):
    world = claims.make_world("graded", claims.TREE, seed=3)
    start = claims.Oracle(claims.TREE, world.reference, world.rewards, world.coin,
                          world.reference, kl_coef=claims.BETA)  # fmt: skip
    gains = [start.improvement(claims.trained(world, claims.BETA, n).logits) for n in (5, 50)]
    best = start.improvement(claims.optimum(world).logits)
    assert 0 < gains[0] < gains[1] < best


def test_the_page_shows_what_the_script_finds(claims):
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    text = " ".join(text.split())
    for cell in claims.cancelled_table().splitlines()[2].strip("|").split("|")[1:]:
        assert cell in text
    first = claims.spread([claims.progress(seed, claims.optimum)[1] for seed in claims.SEEDS])
    assert first in text
    assert claims.passed_table().splitlines()[3].split("|")[3] in text
    assert all(x in text for x in claims.bayes_table().splitlines()[4].split("|")[2:4])


def test_credit_at_k_1_is_the_gradient_and_pass_gradient_is_autograds(claims):
    world = claims.make_world("outcome", claims.FIVE, seed=1)
    torch.testing.assert_close(claims.credit(world, 1), world.gradient(), rtol=1e-12, atol=1e-15)
    step, k = 1e-5, 4
    towards = torch.randn(world.logits.shape, generator=torch.Generator().manual_seed(0),
                          dtype=torch.float64)  # fmt: skip

    def at(x):
        moved = world.logits + x * towards
        return claims.prompts_pass(
            claims.Oracle(claims.FIVE, moved, world.rewards, world.coin, world.reference), k
        )

    slope = (at(step) - at(-step)) / (2 * step)
    # visits of a prompt start at 1 / 5, so the gradient is that of the mean over prompts
    assert slope == pytest.approx(float((claims.pass_gradient(world, k) * towards).sum()), rel=1e-6)


@pytest.fixture(scope="module")
def libraries():
    return script("libraries")


def test_terms_of_the_kl_against_the_exact_gradient(libraries):
    """A term times the ratio is exact for any sampler; on policy, k1 is nothing and k2 exact."""
    world = libraries.make_world("graded", libraries.TREE, seed=3)
    terms = {name.split(":")[0]: term for name, term in libraries.TERMS.items()}
    for old in (world.logits, libraries.drifted(world, 3)):
        exact = libraries.state_kl(world, old, world.reference)
        for name in ("TRL since 6503, slime `k3` with `use_unbiased_kl`",
                     "slime `k1` with `use_unbiased_kl`"):  # fmt: skip
            pull = libraries.pull_of(terms[name], world, old, world.reference)
            torch.testing.assert_close(pull, exact, rtol=0, atol=1e-14)
    exact = libraries.state_kl(world, world.logits, world.reference)
    pulls = {k: libraries.pull_of(terms[k], world, world.logits, world.reference)
             for k in ("k1", "k2", "k3")}  # fmt: skip
    assert pulls["k1"].abs().max() < 1e-14
    torch.testing.assert_close(pulls["k2"], exact, rtol=0, atol=1e-14)
    assert not torch.allclose(pulls["k3"], exact, rtol=0.1, atol=0)


def test_weights_of_a_prefix_are_unbiased(libraries):
    world = libraries.make_world("graded", libraries.TREE, seed=3)
    paths = libraries.episodes(world.tree)
    chance = [float(sum(world.log_pi[s, a] for s, a in path).exp()) for path in paths]
    assert sum(chance) == pytest.approx(1, abs=1e-12)
    seen = libraries.weights_of(world, libraries.drifted(world, 3))
    for level in ("sequence", "prefix"):
        assert seen[level][:2] == pytest.approx((1, 1), abs=1e-12)
    assert seen["prefix"][2] < seen["sequence"][2]


def test_the_page_shows_what_libraries_do(libraries):
    """And TPO's coefficients are the paper's, a group's gradient is (G - 1) / G of the true one."""
    text = " ".join((ROOT / "docs" / "results.md").read_text(encoding="utf-8").split())
    kl = {row.split("|")[1]: row.split("|") for row in libraries.kl_table().splitlines()}
    assert kl["k3: verl `low_var_kl`, slime `k3`, TRL before 6503, NeMo-RL before 2506"][2] in text
    assert kl["NeMo-RL since 2506, `k2`"][2] in text
    assert kl["prime-rl `kl_tau`: log(r)^2, against KL(pi, mu)"][5] in text
    rare = libraries.group_row(0.05)
    assert rare[4] == "0.875"
    assert all(cell in text for cell in rare[1:4])
    for name, formula in libraries.COEFFICIENTS.items():
        for p in (0.01, 0.4, 0.99):
            assert libraries.coefficient(name, p) == pytest.approx(formula(p), abs=1e-12)
    assert all(f"{libraries.coefficient('tpo', p):.4f}" in text for p in (0.01, 0.99))
    rows = [row.split("|") for row in libraries.prefix_table().splitlines()[2:]]
    assert all(x in text for x in (rows[1][4], rows[2][2], rows[2][4]))
    assert libraries.top_p_row(0.9)[1] in text
    assert libraries.top_p_row(0.5)[2] in text


def test_ranks_of_known_matrices():
    ranks = script("grpo_rank").ranks
    stable, entropy, most = ranks(torch.ones(5, dtype=torch.float64))
    assert (stable, most) == (5, 5)
    assert entropy == pytest.approx(5)
    stable, entropy, most = ranks(torch.tensor([10.0, 0.1, 0.1, 0.0], dtype=torch.float64))
    assert stable == pytest.approx(1.0002)
    assert entropy == pytest.approx(1.117, abs=1e-3)
    assert most == 1


def test_a_group_is_mixed_or_left_out():
    group_of = script("grpo_rank").group_of
    assert group_of(torch.tensor([0.0, 0, 0, 1]), 2) == [0, 3]
    assert group_of(torch.tensor([0.0, 1, 0, 1]), 2) == [0, 1]
    assert group_of(torch.zeros(4), 2) is None


def test_a_mean_with_its_interval():
    assert script("grpo_rank").with_error([1.0, 2.0, 3.0]) == "2.0±2.5"
