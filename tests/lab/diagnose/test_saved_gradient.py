"""`diagnose RUN` compares the gradients that the update takes: its correction, and its masks."""

import pytest
import torch

from helpers.rewards_for_tests import LETTERS
from helpers.worlds import rolled, world_of
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.step.update import gradients
from rlzoo_lab.diagnose.credit import first_gradient


def test_the_gradient_has_the_runs_correction_and_leaves_out_what_the_run_drops(zoo, words):
    """The surrogate's is -A times the correction times the weight, and 0 on a truncated row."""
    more = ["policy_loss=surrogate", "correction=tis", "rollout.truncation=drop"]
    plan = make_plan(compose(["recipe=grpo", *words, *more], zoo), zoo)
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    advantages = torch.tensor([[1.0, -2.0, 0.0], [3.0, 4.0, 5.0]])
    batch = {
        "response_mask": mask,
        "old_log_probs": -mask,
        "tis": torch.tensor([[0.5, 2.0, 0.0], [1.0, 1.0, 1.0]]),
        "truncated": torch.tensor([False, True]),
        "terminated": torch.tensor([True, False]),
    }
    weights = plan.aggregation({"response_mask": mask * torch.tensor([[1.0], [0.0]])})
    expected = -advantages * batch["tis"] * weights
    assert expected[0].abs().sum() > 0
    torch.testing.assert_close(first_gradient(plan, batch, advantages), expected)
    assert not first_gradient(plan, batch, advantages)[1].any()


@pytest.mark.parametrize("words_of", [[], ["policy_loss=high_entropy"], ["policy_loss=gspo"]])
def test_it_is_the_gradient_that_the_update_takes(zoo, words, words_of):
    """In the parameters, of a mini-batch that is the whole batch; the first of its step."""
    more = ["train.minibatches=1", "kl.place=none", "model.dtype=float64", *LETTERS, *words_of]
    world = world_of(zoo, [*words, *more], "grpo")
    batch = rolled(world)
    gradients(world.engine, world.plan, {**batch}, 0.0, ("actor",))
    weights = list(world.policy.model.parameters())
    taken = [w.grad.clone() for w in weights]
    score = world.policy.log_prob_stats(batch, want=("entropy",))
    columns = {**batch, "entropy": score["entropy"].detach()}
    pull = first_gradient(world.plan, columns, batch["advantages"])
    found = torch.autograd.grad(score["log_probs"], weights, pull)
    assert max(g.abs().max() for g in taken) > 1e-3
    for mine, theirs in zip(found, taken, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-9, rtol=1e-6)


def test_a_loss_that_chooses_by_entropy_chooses_in_the_gradient_too(zoo, words):
    """Of ten tokens with `fraction=0.2` the two most open are pushed, and nothing else is."""
    plan = make_plan(compose(["recipe=high_entropy", *words], zoo), zoo)
    mask = torch.ones(2, 5)
    open_at = [(0, 3), (1, 1)]
    entropy = torch.full((2, 5), 0.1)
    for place in open_at:
        entropy[place] = 2.0
    batch = {"response_mask": mask, "old_log_probs": -mask, "entropy": entropy}
    found = first_gradient(plan, batch, torch.ones(2, 5))
    assert [tuple(at) for at in found.nonzero().tolist()] == open_at
