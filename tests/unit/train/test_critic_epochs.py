"""critic.epochs and critic.minibatches: passes of the critic's own over a batch."""

import pytest
import torch

import rlzoo
from helpers.rewards_for_tests import LETTERS
from helpers.runs import StopAt, untimed
from helpers.worlds import sampled, state_of, world_of
from rlzoo.errors import RecipeError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.step.update import make_optimizers, update
from rlzoo.train.start import resume


def updated(zoo, words, *more, recipe="ppo_gae", step=0):
    """Weights before and after one update, and how many steps each optimizer took."""
    world = world_of(zoo, [*words, *LETTERS, *more], recipe)
    before, optimizers = state_of(world), make_optimizers(world.engine, world.plan)
    metrics = update(world, sampled(world), optimizers, step, 0.1)
    steps = {
        name: {int(state["step"]) for state in optimizer.state.values()}
        for name, optimizer in optimizers.items()
    }
    return before, state_of(world), steps, metrics


def same(a, b, network):
    return all(torch.equal(a[k], b[k]) for k in a if k.startswith(network))


def test_the_default_is_the_actors_passes(zoo, words):
    _, default, steps, metrics = updated(zoo, words)
    _, stated, *_ = updated(zoo, words, "critic.epochs=1", "critic.minibatches=2")
    assert steps == {"actor": {2}, "critic": {2}}
    assert same(default, stated, "")
    assert metrics["train/skipped"] == 0
    _, _, steps, _ = updated(zoo, words, "train.epochs=2")
    assert steps == {"actor": {4}, "critic": {4}}


def test_k_epochs_are_k_passes_and_leave_the_actor_as_it_was(zoo, words):
    _, default, *_ = updated(zoo, words)
    for epochs, parts in ((3, 2), (1, 4), (2, 1)):
        more = [f"critic.epochs={epochs}", f"critic.minibatches={parts}"]
        _, after, steps, _ = updated(zoo, words, *more)
        assert steps == {"actor": {2}, "critic": {epochs * parts}}
        assert same(default, after, "actor")
        assert not same(default, after, "critic")


def test_the_epochs_of_one_update_are_as_many_updates_on_the_same_batch(zoo, words):
    """One mini-batch: no shuffle, so that k passes are k gradient steps, whoever counts them."""
    _, together, *_ = updated(zoo, words, "critic.epochs=3", "critic.minibatches=1")
    world = world_of(zoo, [*words, *LETTERS, "critic.epochs=1", "critic.minibatches=1"])
    optimizers, experience = make_optimizers(world.engine, world.plan), sampled(world)
    for _ in range(3):
        update(world, experience, optimizers, 0, 0.1)
    apart = state_of(world)
    for name, weight in together.items():
        if name.startswith("critic"):
            torch.testing.assert_close(weight, apart[name], rtol=1e-4, atol=1e-6)


def test_a_pass_that_serves_update_and_columns_is_made_where_both_take_one_step(zoo, words):
    once = [*words, "train.minibatches=1"]
    assert make_plan(compose(["recipe=ppo_gae", *once], zoo), zoo).one_update
    more = [*once, "critic.epochs=2"]
    assert not make_plan(compose(["recipe=ppo_gae", *more], zoo), zoo).one_update
    # Where there is no critic, its keys say nothing.
    assert make_plan(compose(["recipe=grpo", *more], zoo), zoo).one_update


def test_without_a_critic_nobody_warms_up(zoo, words):
    """As where an estimator is swept in a recipe that warms its critic up."""
    _, _, steps, metrics = updated(zoo, words, "train.critic_warmup=5", recipe="grpo")
    assert steps == {"actor": {2}}
    assert metrics["train/skipped"] == 0


def test_warm_up_and_lora_make_the_critics_passes(zoo, words):
    words = [*words, "critic.epochs=3"]
    before, after, steps, _ = updated(zoo, words, "train.critic_warmup=1")
    assert steps == {"actor": set(), "critic": {6}}
    assert same(before, after, "actor")
    _, _, steps, _ = updated(zoo, words, "model.lora.rank=2", "model.lora.alpha=8")
    assert steps == {"actor": {2}, "critic": {6}}


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("critic.epochs=2", "use critic.trunk=own"),
        ("critic.minibatches=2", "use critic.trunk=own"),
        ("critic.minibatches=99 critic.trunk=own", "cannot fill"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(zoo, words, word, says):
    recipe = compose(["recipe=ppo_gae", *words, "critic.trunk=shared", *word.split()], zoo)
    with pytest.raises(RecipeError, match=says) as caught:
        make_plan(recipe, zoo)
    assert "\n" not in str(caught.value)


@pytest.mark.process
def test_a_run_that_was_cut_off_goes_on_to_the_same_metrics(zoo, words, tmp_path):
    words = [*words, *LETTERS, "critic.epochs=3", "critic.minibatches=1"]
    rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'whole'}"], zoo=zoo)
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'cut'}"], zoo=zoo, display=StopAt(2))
    resume(tmp_path / "cut", zoo=zoo)
    assert untimed(tmp_path / "cut") == untimed(tmp_path / "whole")
