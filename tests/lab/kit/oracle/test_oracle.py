"""The oracle against autograd and against sums over all episodes; the identities that must hold."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlzoo import RlzooError
from rlzoo.mdp.batch import Batch
from rlzoo_lab.kit.oracle.bias import b_perp, gradient, report, truth
from rlzoo_lab.kit.oracle.episodes import enumerate_episodes, make_columns, supply
from rlzoo_lab.kit.oracle.means import means
from rlzoo_lab.kit.oracle.oracle import Oracle
from rlzoo_lab.kit.oracle.subject import EstimatorInWorld
from rlzoo_lab.kit.oracle.tree import action_values, expected, make_tree, visitation
from rlzoo_lab.kit.oracle.worlds import WORLDS, make_critic, make_world

TIGHT = 1e-10


def world(name="dense", vocabulary=4, horizon=4, *, seed=0, kl_coef=0.0, **tree):
    return make_world(name, make_tree(vocabulary, horizon, **tree), seed=seed, kl_coef=kl_coef)


def subject(zoo, name, oracle, critic="exact", *, cut=None, columns=None, samples=4, **options):
    episodes = enumerate_episodes(oracle, cut)
    given = make_columns(oracle, episodes, make_critic(critic, oracle), **(columns or {}))
    assert supply(zoo, zoo.estimators[name].needs, given) == []
    return EstimatorInWorld(zoo.estimators[name], options, oracle, episodes, given, samples=samples)


def worst_b_perp(found):
    return float(b_perp(found, means(found).mean).abs().max())


def cosine(a, b):
    return float((a * b).sum() / (a.norm() * b.norm()))


shapes = st.fixed_dictionaries(
    {"vocabulary": st.integers(3, 5), "horizon": st.integers(1, 4), "stops": st.booleans(),
     "prompts": st.integers(1, 2), "seed": st.integers(0, 50)}
)  # fmt: skip


# ---------------------------------------------------------------- the tree


@pytest.mark.parametrize(("vocabulary", "states"), [(6, 1_555), (10, 11_111)])
def test_without_eos_every_prefix_is_a_state(vocabulary, states):
    tree = make_tree(vocabulary, 5, stops=False)
    assert tree.states == states
    assert len({tuple(row) for row in tree.prefixes.tolist()}) == states


def test_with_eos_only_prefixes_without_one_are():
    tree = make_tree(6, 5)
    assert tree.states == 781
    assert not bool((tree.prefixes == 0).any())
    assert bool((tree.child[:, 0] == -1).all())


def test_a_world_too_large_names_the_size_the_limit_and_what_to_lower(golden):
    with golden.refuses(RlzooError):
        make_tree(12, 8)
    with golden.refuses(RlzooError):
        enumerate_episodes(world("key_noise", 6, 6, stops=False))


@settings(derandomize=True, deadline=None, max_examples=25)
@given(shapes, st.sampled_from(sorted(WORLDS)))
def test_episodes_are_all_there_is(shape, name):
    oracle = world(name, **shape)
    e = enumerate_episodes(oracle)
    p = e.probability
    assert abs(float(p.sum()) - 1) < TIGHT
    assert abs(float((p * e.scores.sum(1)).sum()) - oracle.expected_return) < TIGHT
    assert abs(float((p * e.mask.sum(1)).sum()) - oracle.expected_length) < TIGHT
    through = torch.zeros(oracle.tree.states, dtype=torch.float64)
    through.index_add_(0, e.states[e.mask], p[:, None].expand_as(e.scores)[e.mask])
    assert torch.allclose(through, oracle.visits, atol=TIGHT)


# ---------------------------------------------------------------- exact gradients


@settings(derandomize=True, deadline=None, max_examples=25)
@given(shapes, st.sampled_from([1.0, 0.8]))
def test_the_gradient_of_the_return_is_autograds(shape, gamma):
    oracle = dataclasses.replace(world(**shape), gamma=gamma)
    logits = oracle.logits.clone().requires_grad_()
    value = expected(oracle.tree, logits.softmax(-1), oracle.rewards, gamma)
    (slope,) = torch.autograd.grad(value, logits)
    assert torch.allclose(slope, oracle.gradient(), atol=TIGHT)


@settings(derandomize=True, deadline=None, max_examples=15)
@given(shapes)
def test_the_gradients_of_kl_length_and_objective_are_autograds(shape):
    oracle = world("outcome", kl_coef=0.3, **shape)

    def slope(f):
        logits = oracle.logits.clone().requires_grad_()
        return torch.autograd.grad(f(logits), logits)[0]

    def kl(logits):
        log_pi = logits.log_softmax(-1)
        d = visitation(oracle.tree, log_pi.exp())
        gap = log_pi - oracle.reference.log_softmax(-1)
        return (d[:, None] * log_pi.exp() * gap).sum()

    def length(logits):
        return visitation(oracle.tree, logits.softmax(-1)).sum() + 0 * logits.sum()

    def objective(logits):
        return expected(oracle.tree, logits.softmax(-1), oracle.rewards) - 0.3 * kl(logits)

    assert abs(float(kl(oracle.logits)) - oracle.kl()) < TIGHT
    assert torch.allclose(slope(kl), oracle.gradient(oracle.log_ratio), atol=TIGHT)
    assert torch.allclose(
        slope(length), oracle.gradient(torch.ones_like(oracle.rewards)), atol=TIGHT
    )
    assert torch.allclose(slope(objective), oracle.gradient(), atol=TIGHT)
    step = 1e-3 * oracle.gradient()
    gained = float(objective(oracle.logits + step) - objective(oracle.logits))
    assert abs(float(oracle.improvement(oracle.logits + step)) - gained) < TIGHT


def test_several_policies_at_once_are_each_as_alone():
    oracle = world(prompts=2)
    many = torch.stack([oracle.logits, 2 * oracle.logits, 0 * oracle.logits])
    together = action_values(oracle.tree, many.softmax(-1), oracle.rewards)
    for one, q in zip(many, together, strict=True):
        assert torch.equal(q, action_values(oracle.tree, one.softmax(-1), oracle.rewards))
    assert float(oracle.kl_to(many)[0]) == 0
    assert bool((oracle.kl_to(many)[1:] > 0).all())


# ---------------------------------------------------------------- columns


def test_the_columns_are_a_batchs():
    oracle = world("outcome", prompts=2)
    columns = make_columns(oracle, enumerate_episodes(oracle, 3), oracle.v)
    batch = Batch(columns.pop("response_mask"))
    batch.update(columns)  # checks every name and shape
    assert torch.allclose(
        batch["old_log_probs"].sum(1).exp() / 2, enumerate_episodes(oracle, 3).probability
    )
    assert bool((batch["terminated"] ^ batch["truncated"]).all())
    assert batch["responses"][0] == ""
    assert not any(batch["sequence_scores"][batch["truncated"]])  # the outcome is yet to come


# ---------------------------------------------------------------- the identities


@pytest.mark.parametrize("name", sorted(WORLDS))
@pytest.mark.parametrize("critic", ["exact", "noisy", "zero"])
def test_full_returns_are_unbiased_under_any_critic(zoo, name, critic):
    oracle = world(name, prompts=2)
    group = [("rloo", {})] if name not in ("dense", "graded") else []  # rewards that all differ
    for estimator, options in (("mc", {}), ("gae", {"lam": 1.0}), *group):
        assert worst_b_perp(subject(zoo, estimator, oracle, critic, **options)) < TIGHT, estimator


@pytest.mark.parametrize("name", ["outcome", "dense", "key_noise"])
def test_every_lambda_is_unbiased_under_the_exact_critic(zoo, name):
    oracle = world(name)
    for lam in (0.0, 0.3, 0.95, 1.0):
        assert worst_b_perp(subject(zoo, "gae", oracle, lam=lam)) < TIGHT
        assert worst_b_perp(subject(zoo, "gae", oracle, "noisy", lam=lam)) > 1e-3 or lam == 1
    assert worst_b_perp(subject(zoo, "td0", oracle, "zero")) > 1e-2


def test_td0_has_no_variance_where_rewards_are_certain(zoo):
    assert abs(report(subject(zoo, "td0", world("dense"))).variance) < TIGHT
    assert abs(report(subject(zoo, "td0", world("dense"), "noisy")).variance) < TIGHT
    assert report(subject(zoo, "td0", world("key_noise"))).variance > 0.01
    assert report(subject(zoo, "mc", world("dense"))).variance > 0.01


@pytest.mark.parametrize(
    ("estimator", "critic"),
    [("td0", "zero"), ("gae", "noisy"), ("grpo", "exact"), ("opo", "exact")],
)
def test_the_gradients_bias_is_d_pi_b_perp(zoo, estimator, critic):
    """E[g^] here by brute force, one row's gradient at a time."""
    oracle = world("outcome", 3, 3)
    found = subject(zoo, estimator, oracle, critic, samples=2)
    e, o = found.episodes, oracle
    brute = torch.zeros_like(o.logits)
    everyone = torch.arange(len(e.probability))
    pairs = torch.cartesian_prod(everyone, everyone)
    ids = torch.arange(len(pairs)).repeat_interleave(2)
    a = found(found.take(found.columns, pairs.flatten(), ids))[::2]
    weight = e.probability[pairs].prod(1)
    for row, w, own in zip(pairs[:, 0].tolist(), weight, a, strict=True):
        for state, action, x in zip(e.states[row], e.actions[row], own, strict=True):
            if state >= 0:
                brute[state] -= w * x * o.pi[state]
                brute[state, action] += w * x
    mean = means(found).mean
    assert torch.allclose(brute, gradient(found, means(found).mean), atol=TIGHT)
    gap = o.visits[:, None] * o.pi * b_perp(found, mean)
    assert torch.allclose(brute - o.gradient(), gap, atol=TIGHT)


@pytest.mark.parametrize("samples", [2, 4, 5])
def test_the_group_mean_is_a_shorter_leave_one_out(zoo, samples):
    oracle = world("outcome", prompts=2)
    group, loo = (
        gradient(s, means(s).mean)
        for s in (subject(zoo, n, oracle, samples=samples) for n in ("dr_grpo", "rloo"))
    )
    assert torch.allclose(group, (1 - 1 / samples) * loo, atol=TIGHT)
    assert torch.allclose(loo, oracle.gradient(), atol=TIGHT)


def test_pass_at_k_is_the_gradient_of_its_own_objective(zoo):
    """Summed over the group, pkpo's gradient is that of 1 - (1 - p)^k, averaged over prompts."""
    oracle = world("outcome", prompts=2)
    found = subject(zoo, "pkpo", oracle, k=3)
    logits = oracle.logits.clone().requires_grad_()
    roots = slice(0, 2)
    pi = logits.softmax(-1)
    p = (pi * action_values(oracle.tree, pi, oracle.rewards)).sum(-1)[roots]
    (own,) = torch.autograd.grad((1 - (1 - p) ** 3).mean(), logits)
    assert torch.allclose(4 * gradient(found, means(found).mean), own, atol=TIGHT)
    assert report(found).cosine < 0.999  # and that is not the expected reward's


def kl_only(**shape) -> Oracle:
    oracle = world("dense", kl_coef=1.0, **shape)
    return dataclasses.replace(oracle, rewards=torch.zeros_like(oracle.rewards))


def test_only_k1_in_the_reward_has_the_gradient_of_the_kl(zoo):
    oracle = kl_only(seed=3)
    true = -oracle.gradient(oracle.log_ratio)
    assert torch.allclose(oracle.gradient(), true, atol=TIGHT)
    found = {}
    for name in ("k1", "k2", "k3", "abs", "full"):
        columns = {"kl": zoo.kl_penalties[name]}
        s = subject(zoo, "reinforce", oracle, columns=columns)
        found[name] = cosine(gradient(s, means(s).mean), true)
    assert abs(found.pop("k1") - 1) < TIGHT
    assert all(abs(x) < 0.9 for x in found.values()), found


# ---------------------------------------------------------------- truncation


@pytest.mark.parametrize("estimator", ["gae", "mc", "td0", "n_step"])
def test_bootstrapping_restores_the_value_that_a_time_limit_cuts_off(zoo, estimator):
    oracle = world("outcome", 4, 5)
    cut = subject(zoo, estimator, oracle, cut=3)
    assert bool((cut.episodes.end >= 0).any())
    assert worst_b_perp(cut) < TIGHT
    assert cosine(gradient(cut, means(cut).mean), truth(cut)) > 1 - TIGHT
    zeroed = subject(zoo, estimator, oracle, cut=3, columns={"truncation": "zero"})
    assert worst_b_perp(zeroed) > 0.01
