"""What may change no number: adapters, rounding at ratio 1, float64, rows that are left out."""

import pytest
import torch

from helpers.architectures import LORA
from helpers.worlds import rolled
from rlzoo.mdp.batch import take
from rlzoo.step.trainer import Trainer
from rlzoo.step.update import Experience, gradients, make_optimizers, update


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_implicit_reward_of_the_starting_model_is_zero_under_lora(make, folders, name):
    path = f"columns.implicit_rewards.path={folders[name]}"
    world = make(name, *LORA, path, "rollout.temperature=0.7", recipe="grpo")
    generator = torch.Generator().manual_seed(0)
    for key, weight in world.policy.model.named_parameters():
        if "lora_B" in key:
            weight.data = torch.randn(weight.shape, generator=generator)
    batch = rolled(world)
    assert (batch["old_log_probs"] - batch["ref_log_probs"]).abs().max() > 0.1
    assert batch["implicit_rewards"].abs().max() < 1e-6


@pytest.mark.parametrize(
    "words",
    [
        ("kl.name=abs", "kl.place=loss", "kl.coef=1"),
        ("kl.place=none", "policy_loss=kl_cov", "policy_loss.fraction=0.2"),
    ],
)
def test_rounding_at_ratio_one_moves_no_gradient(make, words):
    def gradient(*more):
        words_ = ("rollout.old_log_probs=recomputed", *words, *more)
        world = make("gpt2", *words_, recipe="grpo")
        batch = rolled(world)
        gradients(world.engine, world.plan, take(batch, torch.arange(batch.rows)), 1.0)
        found = [x.grad.flatten() for x in world.policy.model.parameters() if x.grad is not None]
        return torch.cat(found)

    whole, cut = gradient(), gradient("train.microbatch=1")
    assert float((whole - cut).norm() / whole.norm()) < 1e-3


@pytest.mark.parametrize("value_loss", ["hl_gauss", "bce"])
@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_a_critic_of_bins_runs_in_float64(make, value_loss, trunk):
    words = (f"value_loss={value_loss}", "model.dtype=float64", f"critic.trunk={trunk}")
    world = make("gpt2", *words)
    metrics = Trainer(world).step()[1]
    assert world.engine.critic.support.dtype == torch.float64
    assert metrics["critic/vf_loss"] > 0


@pytest.mark.parametrize("cut", ["train.microbatch=null", "train.microbatch=2"])
def test_metrics_are_of_all_rows_whether_some_are_left_out_or_not(make, cut):
    found = {}
    for skip in ("true", "false"):
        words = ("kl.place=none", f"train.skip_no_signal={skip}", cut, "actor.lr=1e-2")
        world = make("gpt2", *words, recipe="grpo")
        world.policy.model.double()
        batch = rolled(world)
        batch["advantages"][batch["group_ids"] % 2 == 1] = 0
        found[skip] = update(
            world, Experience(batch, 0.0), make_optimizers(world.engine, world.plan), 0, 0.0
        )
    assert found["true"]["actor/ppo_kl"] != 0
    assert found["true"] == pytest.approx(found["false"], rel=1e-7, abs=1e-12)
