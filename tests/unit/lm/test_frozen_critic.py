"""`critic.freeze`: which weights of a critic's own trunk are trained."""

import pytest
import torch

import rlzoo
from helpers.runs import StopAt, untimed
from helpers.worlds import step, world_of
from rlzoo.errors import ModelError, RecipeError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.train.start import resume

IN = {"trunk": "", "attention": ".self_attn.", "mlp": ".mlp.", "embed_tokens": "embed_tokens"}


def weights(world) -> dict[str, torch.Tensor]:
    own = [("trunk", world.engine.critic.trunk), ("head", world.engine.critic.head)]
    return {f"{part}.{n}": w.detach().clone() for part, m in own for n, w in m.named_parameters()}


@pytest.mark.parametrize("part", [[], ["trunk"], ["attention"], ["mlp", "embed_tokens"]])
def test_a_step_moves_all_but_the_frozen_weights(zoo, words, part):
    world = world_of(zoo, [*words, f"critic.freeze=[{','.join(part)}]"])
    with torch.no_grad():
        world.engine.critic.head.weight.fill_(0.1)  # at 0 it would pass no gradient to the trunk
    before = weights(world)
    step(world)
    after = weights(world)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    still = {n for n in before if n.startswith("trunk.") and any(IN[p] in n for p in part)}
    assert moved == set(before) - still
    assert bool(still) == bool(part)


def test_a_name_of_no_weight_and_a_shared_trunk_are_refused(zoo, words):
    with pytest.raises(ModelError, match=r"critic.freeze: .*'attn0'.*attention"):
        world_of(zoo, [*words, "critic.freeze=[attn0]"])
    shared = ["recipe=ppo_gae", *words, "critic.freeze=[trunk]", "critic.trunk=shared"]
    with pytest.raises(RecipeError, match=r"critic.freeze .*critic.trunk=own"):
        make_plan(compose(shared, zoo), zoo)


def test_a_run_that_was_cut_off_goes_on_as_if_it_had_not(zoo, words, tmp_path):
    frozen = [*words, "critic.freeze=[attention]"]
    rlzoo.run("ppo_gae", [*frozen, f"run.dir={tmp_path / 'whole'}"], zoo=zoo)
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", [*frozen, f"run.dir={tmp_path / 'cut'}"], zoo=zoo, display=StopAt(2))
    resume(tmp_path / "cut", zoo=zoo, display=StopAt(99))
    assert untimed(tmp_path / "cut") == untimed(tmp_path / "whole")
