"""Settings as people write them in Python."""

import pytest

import rlzoo
from rlzoo.errors import UsageError
from rlzoo.recipe.compose import compose
from rlzoo_lab.api.arguments import as_words


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, []),
        ((), []),
        (["lam=0.9", "seed=1"], ["lam=0.9", "seed=1"]),
        ("lam=0.9", ["lam=0.9"]),
        ("lam=0.9 seed=1", ["lam=0.9", "seed=1"]),
        ({"lam": 0.9, "seed": 1}, ["lam=0.9", "seed=1"]),
        ({"train": {"steps": 2, "tokens": None}}, ["train.steps=2", "train.tokens=null"]),
        ({"checkpoint.best": True}, ["checkpoint.best=true"]),
        ({"actor.betas": [0.9, 0.99]}, ["actor.betas=[0.9,0.99]"]),
        ({"actor.lr": 1e-4}, ["actor.lr=0.0001"]),
    ],
)
def test_what_becomes_words(given, words):
    assert as_words(given) == words


@pytest.mark.parametrize(
    "text",
    ["a b", " a ", "", "a, b: {x}", "[x", "it's", "#x", "- a", "? a", "a=b", 'a "b" \\n', "a\n"],
)
def test_a_text_is_that_text(text, zoo):
    recipe = compose(["recipe=grpo", *as_words({"model": {"system": text}})], zoo)
    assert recipe.config.model.system == text


def test_a_list_is_swept_by_a_sweep():
    given = {"lam": [0, 0.95], "seed": range(3), "actor.betas": [[0.9, 0.99], (0.8, 0.99)]}
    assert as_words(given, swept=True) == [
        "lam=0,0.95", "seed=0,1,2", "actor.betas=[0.9,0.99],[0.8,0.99]",
    ]  # fmt: skip


@pytest.mark.parametrize("given", [8, [8], [["seed=1"]]])
def test_what_is_no_setting(given):
    with pytest.raises(UsageError, match="settings must be"):
        as_words(given)


def test_keys_are_settings_of_a_run_and_a_sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = {
        "model": "nano", "train": {"steps": 1}, "rollout.prompts": 2, "rollout.samples": 2,
        "eval.samples": 4,
    }  # fmt: skip
    run = rlzoo.run("ppo_gae", small, seed=3, lam=0.5)
    assert (run.recipe["seed"], run.recipe["estimator"]["lam"]) == (3, 0.5)
    with pytest.raises(rlzoo.RlzooError, match="did you mean 'train.steps'"):
        rlzoo.run("ppo_gae", train_steps=2)
    with pytest.raises(rlzoo.RlzooError, match=r"estimator.lam=2: .* must be a float in \[0, 1\]"):
        rlzoo.sweep("ppo_gae", small, lam=[0, 2], seed=range(2))
