"""A saved recipe.yaml is the whole truth: nothing is merged under it."""

import pytest
from omegaconf import OmegaConf

from rlzoo.errors import RecipeError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.keys import RETIRED

REPLACED = {
    "rewards": ["rewards=python", "rewards.python.function=helpers.rewards_for_tests:letters"],
    "no rewards but one": ["rewards=numeric", "rewards.numeric.weight=2"],
    "a preset's task": ["task=key_door", "model=nano"],
    "columns and loggers": ["columns=greedy_scores", "loggers=csv"],
    "a loss's options": ["policy_loss=cispo", "policy_loss.clip_high=0.5"],
}


@pytest.mark.parametrize("words", REPLACED.values(), ids=REPLACED)
def test_a_saved_recipe_read_again_is_itself(zoo, tmp_path, words):
    saved = compose(["recipe=ppo_gae", *words], zoo)
    file = tmp_path / "recipe.yaml"
    file.write_text(saved.to_yaml())
    again = compose([f"recipe={file}"], zoo)
    assert OmegaConf.to_container(again.config) == OmegaConf.to_container(saved.config)
    assert set(again.origins.values()) == {str(file)}
    renamed = tmp_path / "mine.yaml"
    renamed.write_text(saved.to_yaml())
    assert compose([f"recipe={renamed}"], zoo).config == saved.config


def test_words_still_change_a_saved_recipe(zoo, tmp_path):
    saved = compose(["recipe=ppo_gae", "rewards=numeric"], zoo)
    file = tmp_path / "recipe.yaml"
    file.write_text(saved.to_yaml())
    changed = compose([f"recipe={file}", "rewards.overlong.weight=0.5", "estimator=mc"], zoo)
    assert list(changed.config.rewards) == ["numeric", "overlong"]
    assert changed.config.estimator.name == "mc"
    assert "lam" not in changed.config.estimator


def test_an_older_saved_recipe_takes_what_it_does_not_know_from_the_defaults(zoo, tmp_path):
    tree = OmegaConf.to_container(compose(["recipe=grpo", "rewards=numeric"], zoo).config)
    del tree["train"]["microbatch"]
    file = tmp_path / "recipe.yaml"
    file.write_text("# grpo\n" + OmegaConf.to_yaml(OmegaConf.create(tree)))
    again = compose([f"recipe={file}"], zoo)
    assert list(again.config.rewards) == ["numeric"]
    assert again.config.train.microbatch is None


@pytest.mark.parametrize(
    ("key", "other"),
    [("model.tf32", True), ("train.token_budget", 512), ("critic.privileged", "answer")],
)
def test_a_saved_recipe_may_have_a_key_that_is_gone(zoo, tmp_path, key, other):
    saved = compose(["recipe=grpo"], zoo)
    section, name = key.split(".")
    file = tmp_path / "recipe.yaml"
    for value in (RETIRED[key][0], other):
        tree = OmegaConf.to_container(saved.config)
        tree[section][name] = value
        file.write_text("# grpo\n" + OmegaConf.to_yaml(OmegaConf.create(tree)))
        if value == RETIRED[key][0]:
            assert compose([f"recipe={file}"], zoo).config == saved.config
    with pytest.raises(RecipeError) as refused:
        compose([f"recipe={file}"], zoo)
    assert (refused.value.key, refused.value.kind) == (key, "unknown-key")
    assert "is gone" in str(refused.value)


def test_the_recipe_of_an_imported_run_is_not_trained(zoo, tmp_path):
    (tmp_path / "imp").mkdir()
    file = tmp_path / "imp" / "recipe.yaml"
    file.write_text("imported:\n  from: trl\nactor:\n  lr: 1.0e-06\n")
    with pytest.raises(RecipeError) as refused:
        compose([f"recipe={file}"], zoo)
    assert refused.value.key == "recipe"
    with pytest.raises(RecipeError) as folder:
        compose([str(tmp_path / "imp")], zoo)
    assert "resume" not in str(folder.value)
