"""Where values and log-probs are read, and what temperature, truncation and sharing change."""

import pytest
import torch
from torch import nn

from helpers.rewards_for_tests import LETTERS
from rlzoo.accel.decode import pick, truncate
from rlzoo.accel.hf_internals import by_onednn
from rlzoo.lm.build import build_world
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.rollout.sample import collect, draw
from rlzoo.step.columns import add_columns
from rlzoo.step.metrics import batch_metrics, explained


def rolled(zoo, words, recipe="ppo_gae"):
    world = build_world(make_plan(compose([f"recipe={recipe}", *words], zoo), zoo))
    batch = collect(world, draw(world, "train", 4, "train", 0), 4, stream="train", step=0)
    if world.engine.critic is not None:
        torch.nn.init.normal_(world.engine.critic.head.weight)
    add_columns(world, batch, stream="train", step=0)
    return world, batch


@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_v_of_t_is_read_before_token_t(zoo, words, trunk):
    """V(s_t) knows the tokens before t and not token t, nor anything after it."""
    world, batch = rolled(zoo, [*words, f"critic.trunk={trunk}"])
    values = world.engine.critic.values(batch)["values"]
    t = 2
    columns = dict(batch)
    columns["response_ids"] = batch["response_ids"].clone()
    columns["response_ids"][:, t] = (columns["response_ids"][:, t] + 7) % 90 + 5
    changed = world.engine.critic.values(columns)["values"]
    full = batch["response_mask"].sum(1) > t + 1
    assert full.any()
    torch.testing.assert_close(changed[full, : t + 1], values[full, : t + 1])
    assert ((changed - values)[full, t + 1].abs() > 1e-6).all()


def test_the_value_after_the_last_token_knows_it(zoo, words):
    world, batch = rolled(zoo, [*words, "rollout.truncation=bootstrap"])
    cut = batch["truncated"]
    assert cut.any()
    assert (~cut).any() or batch["terminated"].sum() == 0
    after = world.engine.critic.values(batch)["last_values"]
    torch.testing.assert_close(batch["bootstrap_values"], torch.where(cut, after, 0))
    columns = dict(batch)
    columns["response_ids"] = batch["response_ids"].clone()
    last = batch["response_attention"].long().sum(1) - 1
    rows = torch.arange(len(last))
    columns["response_ids"][rows, last] = (columns["response_ids"][rows, last] + 7) % 90 + 5
    assert ((world.engine.critic.values(columns)["last_values"] - after).abs() > 1e-6).all()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_log_probs_are_of_the_policy_at_its_temperature(zoo, words, temperature):
    world, batch = rolled(zoo, [*words, f"rollout.temperature={temperature}"])
    mask = batch["response_mask"]
    again = world.policy.log_probs(batch) * mask
    torch.testing.assert_close(again, batch["old_log_probs"], atol=1e-5, rtol=0)
    torch.testing.assert_close(batch["sampler_log_probs"], batch["old_log_probs"])
    logits = world.policy.logits(batch)
    by_hand = (logits[:, :-1] / temperature).log_softmax(-1)
    by_hand = by_hand.gather(-1, batch["response_ids"][..., None]).squeeze(-1) * mask
    torch.testing.assert_close(by_hand, again)


@pytest.mark.parametrize("extra", [["rollout.top_k=5"], ["rollout.top_p=0.5"]])
def test_truncation_changes_the_sampler_and_not_the_policy(zoo, words, extra):
    world, batch = rolled(zoo, [*words, *extra], "rloo")
    gap = (batch["sampler_log_probs"] - batch["old_log_probs"])[batch["response_mask"] > 0]
    assert (gap > 0.1).any()  # what is left is likelier
    assert (gap > -1e-6).all()
    again = world.policy.log_probs(batch) * batch["response_mask"]
    torch.testing.assert_close(again, batch["old_log_probs"], atol=1e-5, rtol=0)


def test_truncate_by_hand():
    log_pi = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    assert truncate(log_pi, 2, 1.0).exp().tolist()[0] == pytest.approx([0.625, 0.375, 0, 0])
    assert truncate(log_pi, 0, 0.6).exp().tolist()[0] == pytest.approx([0.625, 0.375, 0, 0])
    assert truncate(log_pi, 0, 0.01).exp().tolist()[0] == pytest.approx([1, 0, 0, 0])
    assert truncate(log_pi, 0, 1.0) is log_pi


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("vocabulary", [1, 3, 512, 513, 1300, 32000])
def test_a_pick_is_where_the_running_sum_passes(vocabulary, dtype):
    """As the plain running sum in float64 says, and never a token of probability 0."""
    torch.manual_seed(0)
    rows = 200 if vocabulary < 2000 else 60  # with 30 a slip of 1e-4 is missed
    logits = 3 * torch.randn(rows, vocabulary, dtype=dtype)
    logits[torch.rand(rows, vocabulary) < 0.5] = -torch.inf
    logits[:, 0] = 0
    logits[: rows // 4, vocabulary // 2 + 1 :] = -torch.inf  # whole blocks without anything
    p = logits.softmax(-1)
    cdf = p.double().cumsum(-1)
    for u in (torch.rand(rows), torch.zeros(rows), torch.full((rows,), 1 - 2**-24)):
        token = pick(p, u)
        assert (p.gather(1, token[:, None]) > 0).all()
        passed = u.double() * cdf[:, -1]
        after = cdf.gather(1, token[:, None])[:, 0]
        before = after - p.gather(1, token[:, None])[:, 0].double()
        slack = 1e-6 if dtype == torch.float32 else 1e-14  # of a block's sum
        assert (before - slack <= passed).all()
        assert (passed <= after + slack).all()


@pytest.mark.parametrize("packed", [False, True])
def test_onednn_gives_what_the_layers_give_and_leaves_them_as_they_were(packed):
    torch.manual_seed(0)
    layers = [nn.Linear(300, 3000), nn.Linear(3000, 200, bias=False), nn.Linear(200, 200)]
    model = nn.Sequential(*layers)
    for shape in [(16,), (4, 3), (2,), (100,)]:
        x = torch.randn(*shape, 300, requires_grad=True)
        expected = model(x)
        with by_onednn(model, model, None, packed=packed):
            assert ["forward" in vars(layer) for layer in layers] == [True, True, False]
            (gradient,) = torch.autograd.grad(model(x).sum(), x)  # as the layers themselves
            with torch.no_grad():
                made = model(x)
        assert made.is_contiguous()
        assert torch.equal(gradient, torch.autograd.grad(expected.sum(), x)[0])
        torch.testing.assert_close(made, expected, atol=1e-5, rtol=1e-5)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model(torch.ones(16, 300))
        with by_onednn(model, packed=packed):
            assert torch.equal(model(torch.ones(16, 300)), expected)
    with torch.no_grad(), pytest.raises(RuntimeError), by_onednn(model, packed=packed):
        model(torch.randn(16, 7))
    assert not any("forward" in vars(layer) for layer in layers)


def test_the_reference_stays_where_the_policy_began(zoo, words):
    world, batch = rolled(zoo, words)
    before = world.engine.reference.log_probs(batch)
    with torch.no_grad():
        for p in world.policy.model.parameters():
            p.add_(1.0)
    assert torch.equal(world.engine.reference.log_probs(batch), before)
    assert not any(p.requires_grad for p in world.engine.reference.model.parameters())


def test_a_critic_with_bins_predicts_inside_its_support(zoo, words):
    words = [*words, "value_loss=hl_gauss", "critic.low=0", "critic.high=1", "critic.bins=11"]
    world, batch = rolled(zoo, words)
    columns = world.engine.critic.columns(world.engine.critic.predict(batch))
    assert columns["value_logits"].shape == (16, batch.steps, 11)
    by_hand = columns["value_logits"].softmax(-1) @ columns["value_support"]
    torch.testing.assert_close(columns["value_preds"], by_hand)
    torch.testing.assert_close(columns["value_preds"] * batch["response_mask"], batch["values"])
    assert ((batch["values"] >= 0) & (batch["values"] <= 1)).all()


def test_explained_variance_is_against_monte_carlo_returns(zoo, words):
    from rlzoo.step.columns import add_advantages, add_rewards

    world, batch = rolled(zoo, [*words, *LETTERS, "estimator.lam=0.0", "kl.place=none"])
    add_rewards(world.plan, batch, 0.0)
    add_advantages(world.plan, batch)
    mask = batch["response_mask"]
    to_go = batch["rewards"].flip(1).cumsum(1).flip(1)
    here = mask.bool()
    expected = explained(batch["values"][here], to_go[here])
    found = batch_metrics(world.plan, batch)["critic/vf_explained_var"]
    assert found == pytest.approx(expected, rel=1e-4)
    own = explained(batch["values"][here], batch["returns"][here])
    assert abs(own - found) > 1e-3  # the critic judged by its own targets looks otherwise


def test_a_column_without_rows_stays_whole_where_rows_are_taken():
    from rlzoo.mdp.batch import take

    columns = {"score_weights": torch.tensor([1.0, 2.0]), "sequence_scores": torch.arange(2.0)}
    picked = take({**columns, "prompts": ["a", "b"]}, torch.tensor([1]))
    assert picked["score_weights"].tolist() == [1.0, 2.0]
    assert picked["sequence_scores"].tolist() == [1.0]
    assert picked["prompts"] == ["b"]
