"""The gradient as a recipe's loss makes it, the sign and the gain, against sums written anew."""

import pytest
import torch

from rlzoo import ops
from rlzoo_lab.kit.oracle import bias
from rlzoo_lab.kit.oracle.bias import gradient, report
from rlzoo_lab.kit.oracle.episodes import enumerate_episodes, make_columns
from rlzoo_lab.kit.oracle.means import means
from rlzoo_lab.kit.oracle.subject import EstimatorInWorld, loss_weight
from rlzoo_lab.kit.oracle.tree import make_tree
from rlzoo_lab.kit.oracle.worlds import make_critic, make_world

TIGHT = 1e-10


def subject(zoo, name, aggregation, *, whiten="none", critic="noisy", world="outcome", size=(3, 3),
            samples=2, cut=None, drop=False, **options):  # fmt: skip
    oracle = make_world(world, make_tree(*size, prompts=2))
    episodes = enumerate_episodes(oracle, cut)
    columns = make_columns(oracle, episodes, make_critic(critic, oracle), truncation="zero")
    kept = ~columns["truncated"] if drop else None
    weight = loss_weight(zoo.aggregations[aggregation], episodes, kept)
    return EstimatorInWorld(zoo.estimators[name], options, oracle, episodes, columns,
                            given_weight=weight, whiten=whiten, samples=samples)  # fmt: skip


def every_pair(found):
    """(first rows, A^ (N, T) of both rows, probabilities) of all groups of two."""
    e, rows, weight = found.episodes, [], []
    for prompt in range(found.oracle.tree.prompts):
        mine = (e.prompt == prompt).nonzero()[:, 0]
        pairs = torch.cartesian_prod(mine, mine)
        rows.append(pairs)
        weight.append(e.probability[pairs].prod(1) / e.probability[mine].sum())
    pairs, weight = torch.cat(rows), torch.cat(weight)
    ids = torch.arange(len(pairs)).repeat_interleave(2)
    a = found(found.take(found.columns, pairs.flatten(), ids))
    return pairs, a.view(len(pairs), 2, -1), weight


def brute(found, aggregation, whiten):
    """E[g^] by one row's gradient at a time; a row's share of the loss from its length alone."""
    e, o = found.episodes, found.oracle
    pairs, a, weight = every_pair(found)
    on = e.mask[pairs].double()
    if whiten == "batch":
        total = (weight[:, None, None] * on).sum()
        mean = (weight[:, None, None] * on * a).sum() / total
        var = (weight[:, None, None] * on * (a - mean) ** 2).sum() / total
        a = (a - mean) / (var + 1e-8).sqrt()
    if whiten == "group":
        ids = torch.arange(len(pairs))
        a = torch.stack([ops.whiten(a[i], on[i], 0 * ids[:2]) for i in ids])
    g = torch.zeros_like(o.logits)
    for row, w, own in zip(pairs[:, 0].tolist(), weight.tolist(), a[:, 0], strict=True):
        length = int(e.mask[row].sum())
        share = 1 / length if aggregation == "seq_mean_token_mean" else 1.0
        for state, action, x in zip(e.states[row], e.actions[row], own, strict=True):
            if state >= 0:
                g[state] -= w * share * x * o.pi[state]
                g[state, action] += w * share * x
    return g


@pytest.mark.parametrize("aggregation", ["seq_mean_token_mean", "token_mean"])
@pytest.mark.parametrize(
    ("name", "whiten"),
    [("grpo", "none"), ("gae", "none"), ("gae", "batch"), ("rloo", "batch"), ("rloo", "group")],
)
def test_the_losss_gradient_is_the_enumerated_one(zoo, name, whiten, aggregation):
    found = subject(zoo, name, aggregation, whiten=whiten)
    ours = gradient(found, means(found).pull)
    wanted = brute(found, aggregation, whiten)
    assert torch.allclose(ours / ours.norm(), wanted / wanted.norm(), atol=1e-7)
    assert torch.allclose(ours, wanted * (ours.norm() / wanted.norm()), atol=1e-7)


def test_a_group_whitened_row_estimator_is_enumerated_by_groups(zoo):
    found = subject(zoo, "mc", "seq_mean_token_mean", whiten="group", critic="zero")
    assert found.couples == "group"
    ours, wanted = gradient(found, means(found).pull), brute(found, "seq_mean_token_mean", "group")
    assert torch.allclose(ours / ours.norm(), wanted / wanted.norm(), atol=1e-7)


def test_dropped_rows_leave_the_loss(zoo):
    plain, drops = (
        subject(zoo, "mc", "token_sum", size=(4, 4), cut=2, drop=d) for d in (False, True)
    )
    assert not drops.weight[drops.columns["truncated"]].any()
    one, other = (gradient(s, means(s).pull) for s in (plain, drops))
    assert not torch.allclose(one / one.norm(), other / other.norm(), atol=1e-3)


def test_large_batches_through_the_recipes_own_functions_tend_to_it(zoo):
    """Aggregation and whitening of whole drawn batches, called as training calls them."""
    for aggregation, whiten in (("seq_mean_token_mean", "batch"), ("token_mean", "batch")):
        found = subject(zoo, "mc", aggregation, whiten=whiten, critic="zero", size=(4, 3))
        e, o = found.episodes, found.oracle
        rows, _ = bias._pool(found, 64)
        mask = e.mask[rows].double()
        a = ops.whiten(found(found.take(found.columns, rows, rows)), mask)
        pull = zoo.aggregations[aggregation]({"response_mask": mask}) * a
        g = torch.zeros_like(o.logits).view(-1)
        cell = e.states[rows] * o.tree.vocabulary + e.actions[rows]
        g.index_add_(0, cell[e.mask[rows]], pull[e.mask[rows]])
        g = g.view_as(o.logits)
        g = g - o.pi * g.sum(-1, keepdim=True)
        ours = gradient(found, means(found).pull)
        assert float((g * ours).sum() / (g.norm() * ours.norm())) > 0.998, aggregation


def test_length_bias_is_in_the_cosine_and_the_estimators_own_beside_it(zoo):
    biased = report(subject(zoo, "grpo", "seq_mean_token_mean", size=(6, 4), samples=4))
    fair = report(subject(zoo, "grpo", "token_mean", size=(6, 4), samples=4))
    assert biased.own_cosine == pytest.approx(fair.own_cosine)
    assert fair.cosine == pytest.approx(fair.own_cosine, abs=1e-9)
    assert biased.cosine < biased.own_cosine - 0.02


@pytest.mark.parametrize("name", ["rloo", "grpo", "opo"])
def test_the_sign_is_that_of_what_is_left_without_the_states_mean(zoo, name):
    found = subject(zoo, name, "token_mean", critic="exact")
    e, o = found.episodes, found.oracle
    pairs, a, weight = every_pair(found)
    rows = pairs[:, 0]
    mass, total = torch.zeros(2, *o.logits.shape, dtype=torch.float64)
    for row, w, own in zip(rows.tolist(), weight.tolist(), a[:, 0], strict=True):
        for state, action, x in zip(e.states[row], e.actions[row], own, strict=True):
            if state >= 0:
                mass[state, action] += w
                total[state, action] += w * x
    base = (o.pi * (total / mass)).sum(-1)
    agree = stake = 0.0
    for row, w, own in zip(rows.tolist(), weight.tolist(), a[:, 0], strict=True):
        for state, action, x in zip(e.states[row], e.actions[row], own, strict=True):
            if state >= 0:
                true, gap = float(o.advantages[state, action]), float(x - base[state])
                sides = 0.5 if abs(gap) < 1e-9 else float(gap * true > 0)
                agree, stake = agree + w * abs(true) * sides, stake + w * abs(true)
    assert report(found).sign == pytest.approx(agree / stake, abs=TIGHT)


def test_a_missing_baseline_costs_no_sign(zoo):
    """Where V lies between the two outcomes, G - V and G - 0 differ by a baseline alone."""
    with_v, without = (
        report(subject(zoo, "mc", "token_mean", critic=c, size=(6, 4))) for c in ("exact", "zero")
    )
    assert without.bias2 > 0.05 > with_v.bias2 == pytest.approx(0, abs=TIGHT)
    assert without.sign == pytest.approx(with_v.sign, abs=TIGHT)


def test_gains_are_shares_of_the_natural_gradients(zoo):
    found = subject(zoo, "gae", "token_mean", critic="exact", size=(5, 4))
    o = found.oracle
    natural = bias.natural_gradient(found)
    step = o.gradient()
    mine, of_truth = bias._gain(o, torch.stack([natural, step]), natural, 1e-3)
    assert mine == pytest.approx(1)
    assert 0 < of_truth < 0.95
    assert report(found).true_gain == pytest.approx(
        bias._gain(o, step[None], natural, bias.STEP_KL)[0]
    )
    draw = torch.Generator().manual_seed(0)
    other = torch.randn(40, *o.logits.shape, generator=draw, dtype=torch.float64)
    tried = bias._gain(o, torch.cat([natural + 0.3 * other, other]), natural, 1e-4)
    assert max(tried) < 1.01  # no direction gains more, to first order


def test_variance_over_scale_squared_does_not_know_the_scale(zoo):
    plain = subject(zoo, "rloo", "token_mean", size=(4, 3), samples=4)
    rows = report(plain)
    times = zoo.estimators["rloo"]

    class Thrice:
        needs_with, check_options, couples = times.needs_with, times.check_options, times.couples

        def __call__(self, columns, **options):
            return {"advantages": 3 * times(columns, **options)["advantages"]}

    plain.component = Thrice()
    scaled = report(plain)
    assert scaled.variance == pytest.approx(9 * rows.variance)
    assert scaled.relative_variance == pytest.approx(rows.relative_variance)
