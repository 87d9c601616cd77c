"""Score centering removes the drift that a constant advantage leaves under another sampler."""

import pytest
import torch

from helpers.worlds import make_world, step
from rlzoo import load_zoo
from rlzoo.errors import RecipeError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan

ZOO = load_zoo()
LOSS = ZOO.policy_losses["score_centering"]
CAPS = [{"cap": None}, {"cap": 2.0}, {"cap": 1.2, "floor": 0.8}, {"cap": 0.5}]


def mean_gradient(logits, mu, advantages, loss):
    """d/d logits (S, V) of the mean over mu of a loss of columns, token by token: exact."""
    states, tokens = logits.shape
    total = torch.zeros_like(logits)
    for a in range(tokens):
        leaf = logits.clone().requires_grad_()
        log_pi = leaf.log_softmax(-1)
        columns = {
            "log_probs": log_pi[None, :, a], "log_pi": log_pi[None],
            "sampler_log_pi": mu.log()[None], "sampler_log_probs": mu.log()[None, :, a],
            "advantages": advantages[None, :, a], "response_mask": torch.ones(1, states).double(),
        }  # fmt: skip
        out = loss(columns)
        (gradient,) = torch.autograd.grad(out, leaf, grad_outputs=mu[None, :, a])
        total += gradient
    return total


@pytest.fixture
def world():
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 6, generator=draw, dtype=torch.float64)
    mu = (logits + 1.5 * torch.randn(4, 6, generator=draw, dtype=torch.float64)).softmax(-1)
    return logits, mu


@pytest.mark.parametrize("options", CAPS, ids=str)
def test_a_constant_advantage_has_no_mean_gradient(world, options):
    logits, mu = world
    one = torch.ones_like(logits)
    found = mean_gradient(logits, mu, one, lambda c: LOSS(c, **options)[0])
    assert found.abs().max() < 1e-15
    p = logits.softmax(-1)
    cap, floor = options["cap"], options.get("floor", 0.0)
    c = mu if cap is None else p.minimum(cap * mu).maximum(floor * mu)
    drift = -(c - p * c.sum(-1, keepdim=True))  # what truncated weights alone leave

    def plain(columns):
        ratio = (columns["log_probs"] - columns["sampler_log_probs"]).detach().exp()
        weight = 1.0 if cap is None else ratio.clamp(floor, cap)
        return -weight * columns["log_probs"] * columns["advantages"]

    left = mean_gradient(logits, mu, one, plain)
    torch.testing.assert_close(left, drift, atol=1e-14, rtol=0)
    assert left.abs().max() > 1e-2


def test_any_advantage_is_centred_by_the_formula(world):
    logits, mu = world
    a = torch.randn(4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = mean_gradient(logits, mu, a, lambda c: LOSS(c, cap=2.0)[0])
    p = logits.softmax(-1)
    c = p.minimum(2 * mu)
    mean = (mu * a).sum(-1, keepdim=True)
    push = c * a - mean * c  # sum over v of (w mu A)(v) [v] less the centre
    right = -(push - p * push.sum(-1, keepdim=True))
    torch.testing.assert_close(found, right, atol=1e-13, rtol=1e-12)


@pytest.mark.parametrize("options", [{"cap": 1e300}, {"cap": 1.0, "floor": 1.0}])
def test_limits_are_known_methods(world, options):
    """Nothing clamped: importance sampling. mu = pi: REINFORCE."""
    logits, mu = world
    a = torch.randn(4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    if options["cap"] == 1.0:
        mu = logits.softmax(-1)
    found = mean_gradient(logits, mu, a, lambda c: LOSS(c, **options)[0])
    p = logits.softmax(-1)
    exact = p * (a - (p * a).sum(-1, keepdim=True))
    torch.testing.assert_close(found, -exact, atol=1e-14, rtol=1e-12)


WORDS = ["task=addition", "estimator=grpo", "kl.place=none", "train.minibatches=1",
         "sampler.distribution=true", "actor.optimizer=sgd", "actor.lr=1"]  # fmt: skip


def test_a_sampler_gives_its_whole_distribution(zoo, model_dir):
    """On-policy the drift is 0, and the step is REINFORCE's; a rounded sampler's is its own."""
    after = {}
    for name in ("reinforce", "score_centering"):
        world = make_world(zoo, model_dir, *WORDS, f"policy_loss={name}", "model.dtype=float64")
        batch, _ = step(world)
        after[name] = torch.cat([w.flatten() for w in world.policy.model.parameters()])
    torch.testing.assert_close(after["reinforce"], after["score_centering"], atol=1e-6, rtol=0)
    chosen = batch["sampler_log_pi"].gather(-1, batch["response_ids"][..., None])[..., 0]
    chosen = chosen * batch["response_mask"]
    torch.testing.assert_close(chosen, batch["sampler_log_probs"], atol=1e-6, rtol=0)
    words = [*WORDS, "policy_loss=score_centering", "sampler=rounded", "sampler.bits=3"]
    batch, metrics = step(make_world(zoo, model_dir, *words))
    log_pi = batch["sampler_log_pi"][batch["response_mask"].bool()]
    torch.testing.assert_close(log_pi.exp().sum(-1), torch.ones(len(log_pi)))
    assert metrics["sampler/log_prob_gap"] > 1e-4


def test_a_sampler_without_its_distribution_is_refused(zoo):
    words = ["recipe=grpo", "policy_loss=score_centering"]
    with pytest.raises(RecipeError, match=r"sampler\.distribution=true"):
        make_plan(compose(words, zoo), zoo)


@pytest.mark.parametrize(
    "cut", ["rollout.top_k=3", "rollout.top_p=0.9", "rollout.min_new_tokens=2"]
)
def test_a_cut_distribution_is_refused_unless_it_is_replayed(zoo, cut):
    words = ["recipe=grpo", "policy_loss=score_centering", "sampler.distribution=true", cut]
    with pytest.raises(RecipeError, match=cut.partition("=")[0]):
        make_plan(compose(words, zoo), zoo)
    make_plan(compose([*words, "rollout.replay=kept"], zoo), zoo)
