"""`diagnose RUN` compares the gradients that the update takes: its correction, and its masks."""

import torch

from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.train.update import first_gradient


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
