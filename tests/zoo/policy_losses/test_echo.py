"""ECHO: the gradient of the whole loss, from the model's logits, row by row."""

import pytest
import torch
from torch.testing import assert_close

import rlzoo
from helpers import ROOT
from helpers.worlds import favour, make_world, one_thread
from rlzoo.mdp.batch import take
from rlzoo.rollout.sample import collect, draw
from rlzoo.step.columns import add_advantages, add_columns, add_rewards
from rlzoo.step.update import gradients

one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)
TEMPERATURE = 0.7
WORDS = [
    "task=echo", "rollout.max_new_tokens=14", "estimator=gigpo", "kl.place=none", "whiten=none",
    "aggregation=seq_mean_token_mean", f"rollout.temperature={TEMPERATURE}",
]  # fmt: skip


@pytest.fixture(scope="module")
def zoo():
    return rlzoo.load_zoo([ROOT / "tests" / "helpers" / "tasks_for_tests.py"])


def talk(zoo, model_dir, *words):
    """A world in float64 and a batch of conversations, whose samples come from a policy that is
    not quite the one that is trained: some ratios are clipped."""
    world = make_world(zoo, model_dir, *WORDS, *words)
    favour(world.policy, "abzxy?", eos=0.5)
    for network in world.engine.networks.values():
        network.double()
    batch = collect(world, draw(world, "train", 6, "train", 0), 2, stream="train", step=0)
    add_columns(world, batch, stream="train", step=0)
    add_rewards(world.plan, batch, 0.0)
    add_advantages(world.plan, batch)
    rows = take(batch, torch.arange(batch.rows))
    floats = [name for name, x in rows.items() if getattr(x, "dtype", None) == torch.float32]
    rows |= {name: rows[name].double() for name in floats}
    mask = rows["response_mask"]
    nudge = 0.3 * torch.randn(mask.shape, generator=torch.Generator().manual_seed(3))
    return world, rows | {"old_log_probs": rows["old_log_probs"] + nudge * mask}


def grads(world):
    weights = [w for w in world.policy.model.parameters() if w.requires_grad]
    found = [w.grad.clone() for w in weights if w.grad is not None]
    for w in weights:
        w.grad = None
    return found


def updated(world, batch):
    sums = gradients(world.engine, world.plan, batch, 0.0, ("actor",))
    return sums, grads(world)


def by_hand(world, batch, weight):
    """Leave the gradient of PPO's clip plus weight times the cross-entropy; its mean."""
    losses, answers = [], []
    for i in range(len(batch["response_ids"])):
        prompt = batch["prompt_ids"][i][batch["prompt_mask"][i].bool()]
        said = batch["response_ids"][i][batch["response_attention"][i].bool()]
        logits = world.policy.model(torch.cat([prompt, said])[None]).logits[0]
        log_pi = (logits[len(prompt) - 1 : -1] / TEMPERATURE).log_softmax(-1)
        taken = log_pi.gather(1, said[:, None])[:, 0]
        acts = batch["response_mask"][i, : len(said)].bool()
        ratio = (taken - batch["old_log_probs"][i, : len(said)]).exp()[acts]
        advantages = batch["advantages"][i, : len(said)][acts]
        clip = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        answers.append(-taken[~acts].mean() if (~acts).any() else torch.zeros(()).double())
        losses.append(-clip.mean() + weight * answers[-1])
    torch.stack(losses).mean().backward()
    return torch.stack(answers).mean().item()


@pytest.mark.parametrize(
    ("weight", "rows", "within"),
    [(0.05, 1, 1e-12), (3.0, 5, 1e-6), (3.0, 12, 1e-6)],  # rows in a line: angles in float32
)
def test_the_gradient_is_that_of_both_parts_row_by_row(zoo, model_dir, weight, rows, within):
    words = ["policy_loss=echo", f"policy_loss.weight={weight}", f"train.microbatch={rows}"]
    world, batch = talk(zoo, model_dir, *words)
    seen = (batch["response_attention"] - batch["response_mask"]).sum(1)
    assert (seen > 0).any()
    assert (seen == 0).any()
    sums, found = updated(world, batch)
    mean = by_hand(world, batch, weight)
    wanted = grads(world)
    assert max(float(w.abs().max()) for w in wanted) > 1e-2
    for got, want in zip(found, wanted, strict=True):
        assert_close(got, want, rtol=0, atol=within)
    assert_close(sums["actor/observation_nll"] / sums["weight/actor"], mean, rtol=1e-6, atol=0)


def test_a_weight_of_0_is_ppo_clip(zoo, model_dir):
    _, found = updated(*talk(zoo, model_dir, "policy_loss=echo", "policy_loss.weight=0"))
    _, wanted = updated(*talk(zoo, model_dir, "policy_loss=ppo_clip"))
    for got, want in zip(found, wanted, strict=True):
        assert_close(got, want, rtol=0, atol=1e-13)


CRITIC = ["estimator=gae", "critic.trunk=shared"]


@pytest.mark.parametrize("extra", [[], CRITIC], ids=["no critic", "shared trunk"])
def test_its_columns_are_the_policys_own(zoo, model_dir, extra):
    """Scoring the answers too changes nothing at the actions, nor a critic on the same trunk."""
    world, batch = talk(zoo, model_dir, "policy_loss=echo", *extra)
    want = ("entropy", "values") if "values" in batch else ("entropy",)
    plain = world.policy.log_prob_stats(batch, want=want)
    found = world.policy.with_observations(batch, want=want)
    assert found.keys() == {*plain, "observation_nll"}
    for name, x in plain.items():
        assert_close(found[name], x, rtol=0, atol=1e-12)
