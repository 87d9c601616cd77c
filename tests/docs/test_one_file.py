"""docs/examples/one_file.py is the same step as rlzoo's: the same weights and noise, and after two
steps the same weights."""

import copy
import runpy

import pytest
import torch

import rlzoo
from helpers import ROOT
from helpers.architectures import save_model
from helpers.rewards_for_tests import LETTERS, letters
from rlzoo.mdp import noise
from rlzoo.rollout.sample import draw

FILE = ROOT / "docs" / "examples" / "one_file.py"
ROWS = ["rollout.prompts=6", "rollout.samples=4", "rollout.max_new_tokens=6", "device=cpu"]


def test_it_is_short_and_needs_torch_and_transformers_alone():
    lines = FILE.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200
    imports = {
        line.split()[1].split(".")[0] for line in lines if line.startswith(("import", "from"))
    }
    assert imports == {"copy", "sys", "torch", "transformers"}


@pytest.mark.parametrize("recipe", ["ppo_gae", "grpo"])
def test_two_steps_leave_the_weights_that_rlzoo_leaves(recipe, zoo, tmp_path):
    folder = save_model(tmp_path / "model", "gpt2")
    words = [f"model.path={folder}", "model.dtype=float64", *ROWS, *LETTERS]
    trainer = rlzoo.open_recipe(recipe, words, zoo=zoo)
    world, one = trainer.world, runpy.run_path(str(FILE))
    policy = copy.deepcopy(world.policy.model)
    reference = copy.deepcopy(policy).requires_grad_(False)
    critic = one["Critic"](policy) if recipe == "ppo_gae" else None
    adamw = {"eps": 1e-6, "weight_decay": 0.0}
    optimizers = {"actor": torch.optim.AdamW(policy.parameters(), lr=2e-4, **adamw)}
    if critic is not None:
        optimizers["critic"] = torch.optim.AdamW(critic.parameters(), lr=1e-3, **adamw)
    start = {n: x.clone() for n, x in policy.state_dict().items()}
    (eos,), pad, rows = world.policy.eos_ids, world.policy.pad_id, torch.arange(24)
    for step in range(2):
        examples = draw(world, "train", 6, "train", step)
        batch, _ = trainer.step()

        def reward(i, ids):
            text = world.policy.tokenizer.decode(ids[:-1] if ids[-1] == eos else ids)
            return letters(None, [text], None)[0]

        score = one["train_step"](
            policy, reference, critic, optimizers,
            [world.prompt_format.encode(e.prompt) for e in examples], reward,
            noise.uniforms(0, "sample/train", step, rows, 6),
            torch.randperm(24, generator=noise.generator(0, "shuffle/0", step)), eos, pad,
        )  # fmt: skip
        assert score == pytest.approx(batch["sequence_scores"].mean().item(), abs=1e-12)
    mine, moved, worst = policy.state_dict(), 0.0, 0.0
    for name, x in world.policy.model.state_dict().items():
        worst = max(worst, (mine[name] - x).abs().max().item())
        moved = max(moved, (x - start[name]).abs().max().item())
    assert moved > 1e-3
    assert worst < 1e-10  # Adam makes that of a rounding error in a small gradient
    if critic is not None:
        for a, b in zip(critic.parameters(), world.engine.critic.parameters(), strict=True):
            torch.testing.assert_close(a, b, atol=2e-10, rtol=0)
