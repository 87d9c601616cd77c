"""From scores to advantages: truncated rows, the KL in the reward, whitening."""

from types import SimpleNamespace

import pytest
import torch

from helpers.rewards_for_tests import LETTERS
from helpers.worlds import rolled, world_of
from rlzoo.step.columns import next_kl_coef


def test_dropped_rows_change_nothing(zoo, words):
    """A mini-batch with truncated rows dropped has the gradient of the rest alone."""
    words = [*words, "rollout.truncation=drop", "rollout.max_new_tokens=2", "train.minibatches=1"]
    world = world_of(zoo, words, "rloo")
    batch = rolled(world)
    assert batch["truncated"].any()
    from rlzoo.step.columns import loss_mask

    assert (loss_mask(world.plan, batch)[batch["truncated"]] == 0).all()


def test_truncation_penalty_comes_off_the_score(zoo, words):
    words = [*words, "rollout.max_new_tokens=2", "rollout.truncation=penalty",
             "rollout.truncation_penalty=0.25"]  # fmt: skip
    batch = rolled(world_of(zoo, words))
    cut = batch["truncated"]
    assert cut.any()
    torch.testing.assert_close(batch["sequence_scores"][cut], torch.full((int(cut.sum()),), -0.25))


@pytest.mark.parametrize("spread", ["token", "last"])
def test_kl_in_the_reward(zoo, words, spread):
    world = world_of(zoo, [*words, f"kl.spread={spread}", "kl.coef=0.5"])
    with torch.no_grad():
        for p in world.policy.model.parameters():
            p.add_(0.05 * torch.randn_like(p))
    batch = rolled(world)
    gap = (batch["old_log_probs"] - batch["ref_log_probs"]) * batch["response_mask"]
    assert gap.abs().sum() > 0
    torch.testing.assert_close(
        batch["sequence_rewards"], batch["sequence_scores"] - 0.5 * gap.sum(1)
    )
    touched = (batch["rewards"] != batch["scores"]).sum(1)
    assert (touched == 1).all() if spread == "last" else (touched > 1).any()


def test_whitening_leaves_returns_and_pads_alone(zoo, words):
    words = [*words, *LETTERS]
    plain = rolled(world_of(zoo, [*words, "whiten=none"]))
    white = rolled(world_of(zoo, [*words, "whiten=batch"]))
    assert torch.equal(plain["returns"], white["returns"])
    mask = white["response_mask"].bool()
    assert (white["advantages"][~mask] == 0).all()
    assert white["advantages"][mask].mean().abs() < 1e-5
    assert white["advantages"][mask].std(correction=0) == pytest.approx(1, abs=1e-4)


def test_adaptive_controller_follows_its_formula():
    kl = SimpleNamespace(controller="adaptive", target=2.0, horizon=100)
    coef = next_kl_coef(kl, 0.1, 4.0, 10)
    assert coef == pytest.approx(0.1 * (1 + 0.2 * 10 / 100))
    coef = next_kl_coef(kl, coef, 1.9, 10)
    assert coef == pytest.approx(0.102 * (1 + (1.9 / 2 - 1) * 10 / 100))
    assert next_kl_coef(SimpleNamespace(controller="fixed"), 0.1, 4.0, 10) == 0.1
