"""The adaptive entropy coefficient: TRL's rule, the bonus it makes, and what a checkpoint keeps."""

import json

import pytest
import torch
from torch.testing import assert_close

import rlzoo
from helpers.runs import StopAt, lines, untimed
from helpers.zoo import ZOO
from rlzoo.rollout.sample import draw
from rlzoo.train.start import open_recipe, resume
from rlzoo_lab.diagnose.trace.sources import observe

F64 = torch.float64
BONUS = ["kl.place=none", "policy_loss=ppo_entropy", "aggregation=token_mean"]


def coefficients(entropies: list[float], **options) -> list[float]:
    """The column's value at each step, for batches of two actions whose mean entropies these are;
    a third position is not an action."""
    memory: dict = {}
    found = []
    for entropy in entropies:
        mask = torch.tensor([[1.0, 1.0, 0.0]], dtype=F64)
        old = torch.tensor([[entropy - 0.05, entropy + 0.05, 9.0]], dtype=F64)
        given = {"old_entropy": old, "response_mask": mask, "memory": memory}
        out = ZOO.columns["entropy_coef"](given, **options)
        memory = json.loads(json.dumps(memory))  # as through a checkpoint
        assert out[0, 0] == out[0, 1]
        assert out[0, 2] == 0
        found.append(out[0, 0].item())
    return found


def rule(entropies, start=0.0, target=0.2, delta=0.005, least=0.0, most=1.0):
    """The coefficient that TRL applies at each optimizer step, as its settings describe it."""
    applied, coef, last = [], start, float("inf")
    for entropy in entropies:
        applied.append(coef if last <= target else 0.0)
        coef += delta if entropy <= target else -delta
        coef, last = max(least, min(most, coef)), entropy
    return applied


ENTROPIES = [0.5, 0.3, 0.15, 0.1, 0.1, 0.1, 0.25, 0.1, 0.2, 0.4, 0.4, 0.05, 0.05]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"start": 0.01},
        {"target": 0.125, "delta": 0.3},
        {"target": 1.0, "delta": 0.4, "most": 0.7},
        {"start": 0.5, "delta": 0.2, "least": 0.15},
    ],
)
def test_the_coefficient_is_trls(options):
    assert_close(coefficients(ENTROPIES, **options), rule(ENTROPIES, **options), rtol=0, atol=1e-15)


def test_limits_in_the_wrong_order_are_refused(golden):
    with golden.refuses(rlzoo.RlzooError):
        coefficients([0.1], least=0.5, most=0.1)


def gradient_by_entropy(coef: float) -> torch.Tensor:
    mask = torch.ones(1, 3, dtype=F64)
    entropy = torch.full_like(mask, 0.7).requires_grad_()
    zeros = torch.zeros_like(mask)
    columns = {"log_probs": zeros, "old_log_probs": zeros, "advantages": mask, "entropy": entropy}
    loss, _ = ZOO.policy_losses["ppo_entropy"]({**columns, "entropy_coef": coef * mask})
    return torch.autograd.grad(loss.sum(), entropy)[0]


def test_the_bonus_pushes_the_entropy_up():
    assert torch.equal(gradient_by_entropy(0.25), torch.full((1, 3), -0.25, dtype=F64))


def weights_after(*words: str) -> list[torch.Tensor]:
    trainer = open_recipe("grpo", list(words), zoo=ZOO)
    for _ in range(3):
        trainer.step()
    return [p.detach().clone() for p in trainer.policy.model.parameters()]


def test_a_target_of_0_is_ppo_clip_and_one_above_is_not(words):
    plain = weights_after(*words, *BONUS, "policy_loss=ppo_clip")
    off = weights_after(*words, *BONUS, "columns.entropy_coef.target=0")
    assert all(torch.equal(a, b) for a, b in zip(plain, off, strict=True))
    on = weights_after(*words, *BONUS, "columns.entropy_coef.target=99")
    assert not all(torch.equal(a, b) for a, b in zip(plain, on, strict=True))


def test_only_training_batches_change_the_memory(words):
    trainer = open_recipe("grpo", [*words, *BONUS], zoo=ZOO)
    prompts = draw(trainer.world, "train", 2, "train", 0)
    observe(trainer.world, prompts, 0, 0.0, stream="look")
    assert trainer.world.memory == {}
    trainer.sample()
    _, entropy = trainer.world.memory["entropy_coef"]
    assert entropy > 0


@pytest.mark.landing
@pytest.mark.process
def test_a_run_that_was_cut_goes_on_with_the_coefficient(words, tmp_path):
    words = [*words, *BONUS, "actor.lr=1e-2", "train.steps=6", "columns.entropy_coef.target=9"]
    rlzoo.run("grpo", [*words, f"run.dir={tmp_path / 'whole'}"], zoo=ZOO)
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("grpo", [*words, f"run.dir={tmp_path / 'cut'}"], zoo=ZOO, display=StopAt(5))
    resume(tmp_path / "cut", zoo=ZOO)
    assert untimed(tmp_path / "cut") == untimed(tmp_path / "whole")
    bonus = [x["actor/entropy_bonus"] for x in lines(tmp_path / "cut")
             if "actor/entropy_bonus" in x]  # fmt: skip
    assert_close(bonus, [0.005 * k for k in range(6)], rtol=1e-6, atol=0)
