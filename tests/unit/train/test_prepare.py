"""One start-up for run, resume, sweep and eval: what cannot be is refused before a model loads."""

import pytest

import rlzoo
from helpers.runs import StopAt
from rlzoo.errors import ModelError
from rlzoo.recipe.compose import compose
from rlzoo.train.start import prepare
from rlzoo_lab.sweep.plan import plan_sweep

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
