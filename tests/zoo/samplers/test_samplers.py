"""Samplers that wrap another, and extra rollouts: metered, with noise of their own."""

import pytest
import torch

from helpers.rewards_for_tests import LETTERS
from rlzoo.lm.build import build_world
from rlzoo.ops import group_degenerate
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.rollout.sample import collect, draw
from rlzoo.step.columns import add_columns


def rolled(zoo, words, recipe, prompts=4):
    world = build_world(make_plan(compose([f"recipe={recipe}", *words], zoo), zoo))
    batch = collect(world, draw(world, "train", prompts, "train", 0), 4, stream="train", step=0)
    add_columns(world, batch, stream="train", step=0)
    return world, batch


def flat_groups(batch):
    return int(group_degenerate(batch["sequence_scores"], batch["group_ids"]).sum()) // 4


def test_dynamic_sampling_draws_groups_without_signal_again(zoo):
    # The embedded nano is right about a third of the time: one group of four in five is mixed.
    words = ["model=nano", "device=cpu"]
    plain_world, plain = rolled(zoo, words, "grpo", 16)
    redo = ["sampler=dynamic", "sampler.tries=6"]
    world, batch = rolled(zoo, [*words, *redo], "grpo", 16)
    assert flat_groups(plain) > flat_groups(batch)
    assert (
        world.engine.meter.tokens > plain_world.engine.meter.tokens
    )  # every token drawn is metered
    for i in range(0, batch.rows, 4):  # groups that had a signal are left as they were
        rows = slice(i, i + 4)
        if not group_degenerate(plain["sequence_scores"][rows], plain["group_ids"][rows]).any():
            assert torch.equal(plain["response_ids"][rows], batch["response_ids"][rows])


def test_what_is_redrawn_is_a_whole_row(zoo, words):
    words = [*words, *LETTERS, "sampler=dynamic", "sampler.tries=4"]
    world, batch = rolled(zoo, words, "grpo")
    torch.testing.assert_close(
        world.policy.log_probs(batch) * batch["response_mask"], batch["old_log_probs"],
        atol=1e-5, rtol=0,
    )  # fmt: skip
    assert (batch["terminated"] ^ batch["truncated"]).all()


@pytest.mark.parametrize(
    ("recipe", "extra", "column"),
    [
        ("remax", [], "greedy_scores"),
        ("vineppo", ["columns.branch_scores.rollouts=2"], "branch_values"),
        ("otb", [], "sum_pi_squared"),
        ("ppo_gae", ["kl=full"], "full_kl"),
    ],
)
def test_columns_of_their_own_are_made_metered_and_repeatable(zoo, words, recipe, extra, column):
    plain_world, _ = rolled(zoo, words, "grpo")
    runs = [rolled(zoo, [*words, *extra], recipe) for _ in range(2)]
    (world, batch), (_, again) = runs
    assert torch.equal(batch[column], again[column])
    assert (world.engine.meter.tokens > plain_world.engine.meter.tokens) == (
        recipe in ("remax", "vineppo")
    )


def test_full_kl_is_the_sum_over_the_vocabulary(zoo, words):
    world, batch = rolled(zoo, [*words, "kl=full"], "ppo_gae")
    assert (batch["full_kl"].abs() < 1e-6).all()  # the reference is the policy itself
    with torch.no_grad():
        for p in world.policy.model.parameters():
            p.add_(0.1 * torch.randn_like(p))
        ours = world.policy.log_prob_stats(batch, want=("log_pi",))["log_pi"]
        theirs = world.engine.reference.log_prob_stats(batch, want=("log_pi",))["log_pi"]
    by_hand = (ours.exp() * (ours - theirs)).sum(-1) * batch["response_mask"]
    assert (by_hand > -1e-6).all()
    fresh = collect(world, draw(world, "train", 4, "train", 1), 4, stream="train", step=1)
    add_columns(world, fresh, stream="train", step=1)
    assert (fresh["full_kl"] >= 0).all()
    assert (fresh["full_kl"].sum(1) > 0).all()
