"""One start-up for run, resume, sweep and eval: what cannot be is refused before a model loads."""

import pytest

import rlzoo
from helpers.runs import StopAt
from rlzoo.errors import ModelError, RecipeError
from rlzoo.recipe.compose import compose
from rlzoo.train.start import prepare
from rlzoo_lab.compare.sweep.plan import plan_sweep

MISSING = "critic.init=./no/such/critic"


def test_a_sweep_refuses_a_critic_that_is_not_there_as_run_does(zoo, words, tmp_path):
    asked = ["recipe=ppo_gae", *words, MISSING]
    with pytest.raises(ModelError, match="critic.init") as by_run:
        rlzoo.run("ppo_gae", [*words, MISSING, f"run.dir={tmp_path / 'run'}"], zoo=zoo)
    with pytest.raises(ModelError, match="critic.init") as by_sweep:
        plan_sweep([*asked, "estimator.lam=0,1"], zoo, str(tmp_path / "sweep"))
    assert str(by_run.value) in str(by_sweep.value)
    assert not (tmp_path / "run").exists()


def test_a_policy_can_be_evaluated_without_what_its_critic_started_from(zoo, words):
    recipe = compose(["recipe=ppo_gae", *words, MISSING], zoo)
    assert prepare(recipe, zoo, training=False).critic
    with pytest.raises(ModelError, match="critic.init"):
        prepare(recipe, zoo)


def test_a_run_is_resumed_only_where_it_could_have_been_started(zoo, words, tmp_path, model_dir):
    import shutil

    critic = tmp_path / "critic"
    shutil.copytree(model_dir, critic)
    words = [*words, f"critic.init={critic}", f"run.dir={tmp_path / 'run'}"]
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", words, zoo=zoo, display=StopAt(1))
    shutil.rmtree(critic)
    with pytest.raises(ModelError, match="critic.init"):
        rlzoo.resume(tmp_path / "run", zoo=zoo)


@pytest.mark.parametrize(
    ("word", "key", "near"),
    [
        ("clip=0.1", "value_loss.clip", "policy_loss.clip_low"),
        ("low=3", "critic.low", "policy_loss.clip_low"),
        ("high=1", "critic.high", "policy_loss.clip_high"),
        ("critic.lr=5", "critic.lr", "actor.lr"),
        ("kl.target=3", "kl.target", "kl.coef"),
    ],
)
def test_a_key_of_a_part_that_the_recipe_does_not_have_is_refused(zoo, words, word, key, near):
    off = ["kl.coef=0"] if key.startswith("kl.") else []
    with pytest.raises(RecipeError) as refused:
        prepare(compose(["recipe=grpo", *words, *off, word], zoo), zoo)
    assert (refused.value.key, refused.value.kind) == (key, "no-effect")
    assert near in str(refused.value)


def test_a_sweep_leaves_out_what_has_no_effect_in_a_row(zoo, words, tmp_path):
    asked = ["recipe=ppo_gae", *words, "estimator=gae,grpo", "critic.lr=1e-3,1e-4"]
    rows = plan_sweep(asked, zoo, str(tmp_path / "sweep")).rows
    assert [row.recipe.config.estimator.name for row in rows] == ["gae", "gae", "grpo"]
    with pytest.raises(RecipeError, match="critic.lr"):
        plan_sweep(["recipe=grpo", *words, "critic.lr=1e-3,1e-4"], zoo, str(tmp_path / "none"))
