"""Composing and blaming: each value's origin, each fault on one line, before a model loads."""

import pytest
from omegaconf import OmegaConf

from rlzoo.errors import ComponentError, RecipeError
from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe import faults
from rlzoo.recipe.compose import compose
from rlzoo.recipe.files import list_configs
from rlzoo.recipe.keys import KEYS
from rlzoo.recipe.plan import make_plan
from rlzoo.recipe.words import split_values


def value(recipe, key):
    return OmegaConf.select(recipe.config, key)


def test_every_shipped_recipe_composes_and_plans(zoo):
    for name in list_configs("recipes"):
        plan = make_plan(compose([f"recipe={name}"], zoo), zoo)
        assert plan.recipe.name == name
        assert not list(faults.warnings(plan))  # it heeds what its own components say


def test_the_five_cards_share_prompts_and_samples(zoo):
    shapes = {
        (value(r, "rollout.prompts"), value(r, "rollout.samples"))
        for name in ("ppo_gae", "ppo_mc", "ppo_td0", "grpo", "rloo")
        for r in [compose([f"recipe={name}"], zoo)]
    }
    assert len(shapes) == 1
    assert next(iter(shapes))[1] >= 4


def test_defaults_cover_every_key(zoo):
    origins = compose(["recipe=ppo_gae"], zoo).origins
    assert set(KEYS) <= set(origins)


def test_precedence_and_origins(zoo):
    recipe = compose(["recipe=ppo_gae", "estimator.lam=0.5", "task=key_door"], zoo)
    assert value(recipe, "estimator.lam") == 0.5
    assert recipe.origins["estimator.lam"] == "command line"
    assert recipe.origins["estimator.gamma"].endswith("ppo_gae.yaml")
    assert recipe.origins["rollout.max_new_tokens"].endswith("task/key_door.yaml")
    assert recipe.origins["task.keys"] == "key_door's default"
    assert recipe.origins["seed"].endswith("defaults.yaml")


def test_selecting_another_component_drops_the_options_of_the_first(zoo):
    recipe = compose(["recipe=ppo_gae", "estimator=mc"], zoo)
    assert recipe.options("estimator") == {"gamma": 1.0}
    recipe = compose(["recipe=ppo_gae", "estimator=gae"], zoo)
    assert recipe.options("estimator")["lam"] == 0.95


def test_task_presets_name_the_component_and_its_options(zoo):
    recipe = compose(["recipe=grpo", "task=reverse_dense"], zoo)
    assert value(recipe, "task.name") == "reverse"
    assert value(recipe, "task.dense") is True


@pytest.mark.parametrize(
    ("words", "pair"),
    [
        ([], ("speller", "spelling")),
        (["task=reverse"], ("tiny", "reverse")),
        (["model=nano"], ("nano", "addition")),
        (["teacher.name=nano"], ("tiny", "addition")),
    ],
)
def test_a_recipe_without_a_model_and_a_task_trains_a_pair_that_learns(zoo, words, pair):
    recipe = compose(["recipe=grpo", *words], zoo)
    assert (value(recipe, "model.name"), value(recipe, "task.name")) == pair


def test_model_path_replaces_model_name(zoo):
    recipe = compose(["recipe=grpo", "model.path=/x"], zoo)
    assert (value(recipe, "model.name"), value(recipe, "model.path")) == (None, "/x")
    recipe = compose(["recipe=grpo", "model=nano"], zoo)
    assert (value(recipe, "model.name"), value(recipe, "model.path")) == ("nano", "model/nano")


def test_collections_merge_replace_and_remove(zoo):
    assert list(compose(["recipe=grpo"], zoo).config.rewards) == ["verifier"]
    both = compose(["recipe=grpo", "rewards.python.function=a:b"], zoo).config.rewards
    assert sorted(both) == ["python", "verifier"]
    only = compose(["recipe=grpo", "rewards=python"], zoo).config.rewards
    assert list(only) == ["python"]
    gone = compose(["recipe=grpo", "rewards.verifier=null", "rewards.python.weight=2"], zoo)
    assert list(gone.config.rewards) == ["python"]
    assert gone.config.rewards.python.weight == 2.0


def test_interpolations(zoo):
    recipe = compose(["recipe=grpo", "actor.lr=${critic.lr}"], zoo)
    assert value(recipe, "actor.lr") == value(recipe, "critic.lr")


def test_a_resolved_recipe_resolves_to_itself(zoo, tmp_path):
    recipe = compose(["recipe=ppo_gae", "task=reverse_dense", "estimator.lam=0.7"], zoo)
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe.to_yaml())
    again = compose([f"recipe={file}"], zoo)
    assert again.config == recipe.config
    assert again.name == recipe.name


def test_own_configs_come_first(zoo, tmp_path, monkeypatch):
    (tmp_path / "configs" / "recipes").mkdir(parents=True)
    mine = tmp_path / "configs" / "recipes" / "grpo.yaml"
    mine.write_text("# mine\nestimator: mc\n")
    monkeypatch.chdir(tmp_path)
    recipe = compose(["recipe=grpo"], zoo)
    assert value(recipe, "estimator.name") == "mc"
    assert recipe.origins["estimator.name"] == "configs/recipes/grpo.yaml"
    monkeypatch.chdir("/")
    monkeypatch.setenv("RLZOO_CONFIGS", str(tmp_path / "configs"))
    assert value(compose(["recipe=grpo"], zoo), "estimator.name") == "mc"


def test_a_file_that_names_a_recipe_is_told_that_it_is_one(zoo, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("recipe: grpo\nactor:\n  lr: 1e-4\n")
    with pytest.raises(RecipeError, match=r"recipe \(.*mine.yaml\): .* except for defaults.yaml"):
        compose([f"recipe={file}"], zoo)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], ["give a recipe, for example ppo_gae", "ppo_gae"]),
        (["recipe=ppo_gea"], ["'ppo_gea'", "did you mean 'ppo_gae'"]),
        (["recipe=ppo_gae,grpo"], ["rlzoo sweep"]),
        (["recipe=nowhere.yaml"], ["no file nowhere.yaml"]),
        (["recipe=ppo_gae", "=3"], ["expected key=value, got '=3'"]),
        (["recipe=ppo_gae", "lam"], ["expected key=value, got 'lam'"]),
        (["recipe=ppo_gae", "estimator=gea"], ["estimator.name (command line)", "'gae'"]),
        (["recipe=ppo_gae", "estimator.lamm=1"], ["estimator.lamm (command line)", "'lam'"]),
        (["recipe=ppo_gae", "estimator=mc", "estimator.lam=1"], ["'mc' has no option 'lam'"]),
        (["recipe=ppo_gae", "estimator=mc", "estimator.lam=1"], ["it has: gamma"]),
        (["recipe=ppo_gae", "trian.steps=3"], ["trian.steps (command line)", "'train.steps'"]),
        (
            ["recipe=ppo_gae", "lr=3"],
            ["lr (command line): is ambiguous; use actor.lr or critic.lr"],
        ),
        (["recipe=ppo_gae", "train=3"], ["is a section with its own keys"]),
        (["recipe=ppo_gae", "train.steps=many"], ["must be an int", "Got 'many'"]),
        (["recipe=ppo_gae", "estimator.lam=1.5"], ["[0, 1]", "Got 1.5"]),
        (["recipe=ppo_gae", "kl.place=everywhere"], ["one of reward, loss, none"]),
        (["recipe=ppo_gae", "estimator.lam=0,0.5"], ["sweep syntax"]),
        (["recipe=ppo_gae", "model=tinny"], ["model.name (command line)", "did you mean 'tiny'"]),
        (["recipe=ppo_gae", "task=adition"], ["did you mean 'addition'"]),
        (["recipe=ppo_gae", "rewards.verifir.weight=1"], ["did you mean 'verifier'"]),
        (["recipe=ppo_gae", "actor.lr=${nope}"], ["actor.lr (command line)", "nope"]),
        (["recipe=ppo_gae", "actor.betas=[0.9"], ["actor.betas", "cannot read"]),
        (["recipe=ppo_gae", "train.steps=null"], ["give a budget"]),
        (["recipe=grpo", "rollout.samples=1"], ["rollout.samples (command line)", "at least 2"]),
        (["recipe=grpo", "rollout.truncation=bootstrap"], ["needs a critic"]),
        (["recipe=grpo", "train.minibatches=9999"], ["cannot fill"]),
        (["recipe=grpo", "correction=tiss"], ["correction.name (command line)", "'tis'"]),
        (["recipe=grpo", "task=reverse", "task.min_length=9"], ["task", "reverse"]),
        (["recipe=grpo", "estimator=gigpo"], ["'turn_ids' exists only in conversations"]),
        (["recipe=dapo", "sampler.inner=dynamic"], ["sampler.inner (command line)", "'inner'"]),
        (["recipe=dapo", "rollout.samples=1"], ["at least 2"]),
    ],
)
def test_bad_input_is_one_line_that_names_the_place(zoo, words, said):
    with pytest.raises(RecipeError) as caught:
        make_plan(compose(words, zoo), zoo)
    text = str(caught.value)
    assert "\n" not in text
    for part in said:
        assert part in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("estimator: {name: gae\nwhiten", "mine.yaml:"),
        ("- a\n- b\n", "must be a mapping"),
        ("estimator: {name: gae, lamm: 1}", "mine.yaml): estimator 'gae' has no option"),
    ],
)
def test_broken_files_are_named(zoo, tmp_path, text, said):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(RecipeError) as caught:
        compose([f"recipe={file}"], zoo)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_part_at_commas_outside_brackets_and_quotes():
    assert split_values("0,0.5,1") == ["0", "0.5", "1"]
    assert split_values("[a,b],[c]") == ["[a,b]", "[c]"]
    assert split_values("'a,b',c") == ["'a,b'", "c"]
    assert split_values("{a: 1, b: 2},c") == ["{a: 1, b: 2}", "c"]


def test_sweep_syntax():
    assert len(split_values("0,0.5")) == 2
    assert split_values("[0.9,0.99]") == ["[0.9,0.99]"]
    assert split_values("'a,b'") == ["'a,b'"]


def plan_of(zoo, *words):
    return make_plan(compose(list(words), zoo), zoo)


def test_what_nobody_asks_for_is_not_built(zoo):
    assert plan_of(zoo, "recipe=ppo_gae").critic
    assert not plan_of(zoo, "recipe=grpo").critic
    assert plan_of(zoo, "recipe=grpo").reference
    assert not plan_of(zoo, "recipe=grpo", "kl.coef=0").reference
    assert not plan_of(zoo, "recipe=grpo", "kl.place=none").reference
    assert "noise" not in plan_of(zoo, "recipe=grpo").needs
    assert "noise" in plan_of(zoo, "recipe=grpo", "task=key_door").needs


def test_a_kl_that_does_not_do_what_it_seems_to_is_warned_of(zoo):
    assert not plan_of(zoo, "recipe=ppo_gae").warnings
    assert "zero" in plan_of(zoo, "recipe=ppo_gae", "kl.place=loss").warnings[0]
    assert plan_of(zoo, "recipe=ppo_gae", "kl=k3").warnings
    assert not plan_of(zoo, "recipe=grpo").warnings


def test_truncated_sampling_is_said_to_be_off_policy(zoo):
    assert "off-policy" in plan_of(zoo, "recipe=grpo", "rollout.top_k=3").warnings[0]


def test_a_model_has_a_name_or_a_path_and_a_folder_may_hold_a_comma(zoo):
    with pytest.raises(RecipeError, match=r"model\.name and model\.path"):
        compose(["recipe=grpo", "model=nano", "model.path=elsewhere"], zoo)
    recipe = compose(["recipe=grpo", "model=nano", "run.dir=runs/a,b"], zoo)
    assert recipe.config.run.dir == "runs/a,b"


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("recipe=a_star_po whiten=batch", "whiten=batch"),
        ("recipe=a_star_po kl.place=reward", "kl.place=reward"),
        ("recipe=vimpo train.minibatches=4", "train.minibatches=4"),
        ("recipe=vimpo train.epochs=2", "train.epochs=2"),
        ("recipe=vimpo aggregation=seq_mean_token_sum", "aggregation.name=seq_mean_token_sum"),
        ("recipe=gpg train.minibatches=4", "train.minibatches=4"),
        ("recipe=opo train.minibatches=4", "train.minibatches=4"),
        ("recipe=deepseek_v3_2 rollout.top_p=.9", "rollout.top_p=0.9"),
        ("recipe=deepseek_v3_2 rollout.top_k=8", "rollout.top_k=8"),
        ("recipe=vc_ppo train.critic_warmup=0", "train.critic_warmup=0"),
    ],
)
def test_a_recipe_that_a_component_is_not_for_is_warned_of(zoo, words, key):
    said = [w for w in plan_of(zoo, *words.split()).warnings if w.startswith(f"{key} with ")]
    assert len(said) == 1, said
    assert not [w for w in plan_of(zoo, words.split()[0]).warnings if " with " in w]


def test_a_caution_about_a_kl_that_is_off_is_not_said(zoo):
    assert not plan_of(zoo, "recipe=a_star_po", "kl.place=reward", "kl.coef=0").warnings


@pytest.mark.parametrize("condition", ["train.minibatch > 1", "whiten", "whiten ~ batch"])
def test_a_caution_that_cannot_be_read_is_refused(zoo, monkeypatch, condition):
    """It names the component's file and the nearest key."""
    loss = zoo.policy_losses["gpg"]
    monkeypatch.setitem(loss.__dict__, "caution", {condition: "because"})
    with pytest.raises(
        ComponentError, match=r"policy_loss 'gpg' \(.*gpg.py:\d+\): caution"
    ) as told:
        plan_of(zoo, "recipe=gpg")
    assert ("train.minibatches" in str(told.value)) == ("minibatch" in condition)


def test_a_recipe_file_overrules_presets(zoo, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("estimator: gae\ntask: key_door\nrollout: {max_new_tokens: 5}\n")
    recipe = compose([f"recipe={file}", "model=nano"], zoo)
    assert value(recipe, "rollout.max_new_tokens") == 5
    assert recipe.origins["rollout.max_new_tokens"] == str(file)


def test_the_actor_waits_as_many_steps_as_the_warm_up_has(zoo):
    plan = plan_of(zoo, "recipe=ppo_gae", "train.critic_warmup=2")
    assert [step >= plan.actor_from for step in range(4)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("word", "key", "kind"),
    [
        ("trian.steps=3", "trian.steps", "unknown-key"),
        ("train.steps=many", "train.steps", "wrong-type"),
        ("train.steps=0", "train.steps", "out-of-range"),
        ("estimator=gea", "estimator.name", "unknown-component"),
        ("model=tinny", "model.name", "unknown-component"),
        ("lr=3", "lr", "ambiguous"),
        ("recipe=grpo", "recipe", "given-twice"),
    ],
)
def test_an_error_has_a_key_and_a_kind(zoo, word, key, kind):
    with pytest.raises(RecipeError) as caught:
        compose(["recipe=ppo_gae", word], zoo)
    assert (caught.value.key, caught.value.kind) == (key, kind)


def test_an_error_names_where_a_component_of_a_collection_was_set(zoo):
    words = ["recipe=ppo_gae", "loggers=[csv]", "rewards.python.function=m:f"]
    recipe = compose(words, zoo)
    for key in ("loggers.csv", "loggers", "rewards.python"):
        assert recipe.blame(key) == f"{key} (command line)"
    assert recipe.blame("rewards.verifier").endswith("defaults.yaml)")


def test_question_marks_in_a_text_are_a_text(zoo):
    assert compose(["recipe=grpo", "model.system=Really???"], zoo).config.model.system[-3:] == "???"
    for words in (["model.system=???"], ["model.chat_args={a: ['???']}"]):
        with pytest.raises(RecipeError) as refused:
            compose(["recipe=grpo", *words], zoo)
        assert refused.value.kind == "missing"


@pytest.mark.parametrize(
    ("kind", "option"), [("estimator", "name"), ("reward", "weight"), ("reward", "scale")]
)
def test_an_option_does_not_hide_a_key_of_the_core(kind, option, tmp_path):
    (tmp_path / "hides.py").write_text(
        f"import rlzoo\n@rlzoo.component('{kind}')\n"
        f"def hides(response_mask, *, {option}: str = 'x'):\n    return response_mask\n"
    )
    zoo = load_zoo(str(tmp_path / "hides.py"))
    words = [
        "recipe=grpo",
        "model=nano",
        f"{kind}s=[hides]" if kind == "reward" else "estimator=hides",
    ]
    if option == "scale":
        compose(words, zoo)
        return
    with pytest.raises(RecipeError, match=f"option '{option}' has the same name"):
        compose(words, zoo)
