"""`rollout.replay=kept`: the policy is renormalised over the tokens that sampling kept."""

import pytest
import torch

from helpers.worlds import hold_trait, rolled, step, world_of
from rlzoo.accel.head import packed, unpacked
from rlzoo.errors import ComponentError, RecipeError
from rlzoo.mdp.batch import take
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan

CUT = ["rollout.top_p=0.6", "rollout.top_k=20", "rollout.replay=kept"]
WIDE = "model.dtype=float64"


@pytest.mark.parametrize("size", [(7,), (3, 8), (2, 3, 21)])
def test_bits_are_the_booleans(size):
    kept = torch.rand(size, generator=torch.Generator().manual_seed(0)) < 0.4
    kept[..., 2] = True
    bits = packed(kept)
    assert bits.dtype == torch.uint8
    assert bits.shape == (*size[:-1], -(-size[-1] // 8))
    assert torch.equal(unpacked(bits, size[-1]), kept)
    assert unpacked(torch.zeros_like(bits), size[-1]).all()  # an observation: nothing was sampled
    assert packed(torch.arange(10) == 9).tolist() == [0, 2]  # token v is bit v % 8 of byte v // 8


@pytest.mark.parametrize("recipe", ["grpo", "ppo_gae", "gspo"])
def test_the_first_ratio_is_1(recipe, zoo, words):
    world = world_of(zoo, [*words, *CUT], recipe)
    batch, metrics = step(world)
    _, without = step(world_of(zoo, [*words, *CUT[:2]], recipe))
    for name in ("sampler/log_prob_gap", "actor/first_ratio_gap"):
        assert metrics[name] < 1e-6
    assert without["sampler/log_prob_gap"] > 0.1
    assert torch.equal(batch["old_log_probs"], batch["sampler_log_probs"])
    kept = unpacked(batch["kept_tokens"], world.policy.vocabulary)[batch["response_mask"].bool()]
    assert 1 <= int(kept.sum(1).min()) <= int(kept.sum(1).max()) <= 20
    assert kept.gather(1, batch["response_ids"][batch["response_mask"].bool()][:, None]).all()


@pytest.mark.parametrize("plain_head", [True, False])
def test_its_gradient_is_the_exact_one_of_the_truncated_policy(plain_head, make, monkeypatch):
    """Every response of two tokens, three kept of each: the sum over responses of p R, and log p
    by hand from all logits."""
    hold_trait(monkeypatch, "plain_head", plain_head)
    few = ["rollout.top_k=3", "rollout.replay=kept", "rollout.ignore_eos=true",
           "rollout.max_new_tokens=2", "rollout.prompts=1", "rollout.samples=200"]  # fmt: skip
    more = [WIDE, *few, "kl.coef=0", "train.minibatches=1"]
    world = make("gpt2", *more, recipe="grpo")  # whose norms are in float64, too
    policy, batch = world.policy, rolled(world)
    first = {tuple(ids): row for row, ids in enumerate(batch["response_ids"].tolist())}
    assert len(first) == 9
    rows = take(batch, torch.tensor(list(first.values())))
    reward = torch.linspace(-1, 2, 9, dtype=torch.float64)
    weights = list(policy.model.parameters())

    def gradient(log_probs):
        value = (log_probs.sum(1).exp() * reward).sum()
        return value, torch.autograd.grad(value, weights)

    logits = policy.logits(rows)[:, :-1] / policy.temperature
    best = logits.topk(3).indices
    by_hand = logits.gather(-1, best).log_softmax(-1)
    at = (best == rows["response_ids"][..., None]).nonzero()
    log_probs = by_hand[at[:, 0], at[:, 1], at[:, 2]].view(9, 2)
    assert float(log_probs.detach().sum(1).exp().sum()) == pytest.approx(1, abs=1e-12)

    value, exact = gradient(log_probs)
    ours = policy.log_prob_stats(rows, want=("entropy",))
    mine, found = gradient(ours["log_probs"])
    assert float(mine) == pytest.approx(float(value), abs=1e-12)
    for a, b in zip(found, exact, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-9)
    entropy = -(by_hand.exp() * by_hand).sum(-1)
    torch.testing.assert_close(ours["entropy"], entropy, atol=1e-12, rtol=0)
    torch.testing.assert_close(rows["sampler_log_probs"], log_probs, atol=1e-12, rtol=0)
    log_pi = policy.log_prob_stats(rows, want=("log_pi",))["log_pi"]
    torch.testing.assert_close(log_pi.exp().sum(-1), torch.ones(9, 2, dtype=torch.float64))
    kl = policy.full_kl(rows, policy)
    torch.testing.assert_close(kl["full_kl"], torch.zeros(9, 2, dtype=torch.float64))


def test_neither_passes_nor_the_way_of_sampling_change_a_metric(make, monkeypatch):
    usual = [WIDE, *CUT, "rollout.prompts=6", "train.minibatches=1"]
    clock = ("perf/", "timing")

    def metrics(*more):
        made = step(make("gpt2", *usual, *more))[1]
        return {n: x for n, x in made.items() if not n.startswith(clock)}

    whole = metrics()
    assert metrics("train.microbatch=1") == pytest.approx(whole, rel=1e-9)
    assert metrics("rollout.cache=static") == pytest.approx(whole, rel=1e-9)
    monkeypatch.setattr("rlzoo.accel.decode.plain_cache", lambda *kinds: False)
    # By model.generate, which gives logits in float32.
    assert metrics() == pytest.approx(whole, rel=1e-5, abs=1e-6)


def test_an_evaluation_is_of_the_policy_itself(zoo, words):
    from rlzoo.rollout.evaluation import evaluate

    cut, plain = (
        evaluate(world_of(zoo, [*words, *more], "grpo"), 32)[0] for more in (CUT, CUT[:2])
    )
    assert cut == plain


def test_a_replay_without_effect_or_without_the_tokens_is_refused(zoo, words):
    def refused(*more):
        with pytest.raises(RecipeError) as error:
            make_plan(compose(["recipe=grpo", *words, *more], zoo), zoo)
        return str(error.value)

    assert "rollout.top_p" in refused("rollout.replay=kept")
    assert "rounded" in refused(*CUT, "sampler=rounded")
    warned = make_plan(compose(["recipe=grpo", *words, *CUT], zoo), zoo).warnings
    assert not any("off-policy" in text for text in warned)


@pytest.mark.parametrize("more", [["task=hi_lo"], ["sampler=dynamic"]], ids=str)
def test_conversations_and_samples_drawn_again_are_replayed(more, zoo, words):
    _, metrics = step(world_of(zoo, [*words, *CUT, *more], "grpo"))
    assert metrics["actor/first_ratio_gap"] < 1e-6
    assert metrics["sampler/log_prob_gap"] < 1e-6


def test_a_sampler_that_returns_no_tokens_kept_is_named(zoo, words, monkeypatch):
    world = world_of(zoo, [*words, *CUT], "grpo")
    generate = type(world.policy).generate

    def forgets(self, *given):
        return {n: x for n, x in generate(self, *given).items() if n != "kept_tokens"}

    monkeypatch.setattr(type(world.policy), "generate", forgets)
    with pytest.raises(ComponentError, match="kept_tokens"):
        rolled(world)


def test_a_loss_that_cannot_take_truncation_takes_a_replay(zoo):
    words = ["recipe=grpo", "policy_loss=dis", "rollout.top_p=0.9"]
    warned = [make_plan(compose([*words, f"rollout.replay={x}"], zoo), zoo).warnings
              for x in ("none", "kept")]  # fmt: skip
    assert [any("rollout.top_p" in w for w in some) for some in warned] == [True, False]
