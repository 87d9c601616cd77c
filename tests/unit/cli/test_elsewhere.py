"""The words of other trainers lead to rlzoo's keys and components."""

import json

import pytest

from helpers.zoo import ZOO
from rlzoo.cli import main
from rlzoo.cli.plugins import details
from rlzoo.recipe.elsewhere import meant
from rlzoo.recipe.keys import COLLECTIONS, KEYS, SECTIONS
from rlzoo_bridges.words import ELSEWHERE

CASES = {
    "geo_mean": "policy_loss=gmpo",
    "rollout correction": "correction",
    "bypass": "rollout.old_log_probs=sampled",
    "clip-higher": "policy_loss.clip_high",
    "advantage normalization": "whiten",
    "skip-observation GAE": "estimator=gae",
    "grpo_passk": "estimator=passk_max",
    "use_bias_correction_kl": "kl=k3_unbiased",
    "algorithm.filter_groups.enable": "sampler=dynamic",
    "actor_rollout_ref.rollout.val_kwargs.n": "eval.samples",
    "trainer.total_epochs": "train.steps",
    "actor_rollout_ref.actor.ppo_mini_batch_size": "train.minibatches",
    "enable_thinking": "model.chat_args",
    "data.max_prompt_length": "task.max_prompt",
    "keep sampling mask": "rollout.replay=kept",
    "loss_fn.ratio_clip_min": "policy_loss.clip_low",
    "grpo.async_grpo.max_trajectory_age_steps": "rollout.staleness",
    "use-rollout-logprobs": "rollout.old_log_probs=sampled",
    "actor_rollout_ref.rollout.n": "rollout.samples",
    "gradient_accumulation_steps": "train.microbatch",
    "actor_rollout_ref.actor.use_kl_loss": "kl.coef",
    "critic.optim.lr": "critic.lr",
    "use_vllm": "sampler=vllm",
    "no_such_word": "",
}


@pytest.mark.parametrize(("word", "here"), CASES.items())
def test_a_word_of_elsewhere(word, here):
    assert meant(word, ZOO) == here


def test_each_heir_exists_and_each_word_is_given_once():
    words = [word for theirs in ELSEWHERE.values() for word in theirs]
    words += [
        word for shelf in ZOO.shelves.values() for c in shelf.values() for word in c.elsewhere
    ]
    assert len({*words}) == len(words)
    assert not {*words} & KEYS.keys()
    for here in ELSEWHERE:
        key, _, value = here.partition("=")
        section, _, option = key.partition(".")
        shelf = ZOO.shelves[SECTIONS[section]] if option and section in SECTIONS else {}
        offered = {name for component in shelf.values() for name in component.options}
        assert {key, option} & {*KEYS, *SECTIONS, *COLLECTIONS, *offered}, here
        if value and key in SECTIONS:
            assert value in ZOO.shelves[SECTIONS[key]], here
        elif value:
            KEYS[key].check(value)


def document(capsys, *words) -> dict:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_plugins_answers_with_the_component(capsys):
    found = document(capsys, "plugins", "geo_mean")["components"]
    assert {"policy_loss", "gmpo"} <= {c[part] for c in found for part in ("kind", "name")}


def test_plugins_answers_with_the_key(capsys):
    found = document(capsys, "plugins", "advantage", "normalization")
    assert found["components"] == []
    assert "whiten" in found["notes"][0]


@pytest.mark.parametrize(
    ("word", "key", "name"),
    [("clip-higher", "policy_loss.clip_high", "ppo_clip"),
     ("max_prompt_length", "task.max_prompt", "dataset")],
)  # fmt: skip
def test_plugins_answers_with_the_components_that_have_the_option(word, key, name, capsys):
    found = document(capsys, "plugins", word)
    assert key in found["notes"][-1]
    assert name in {component["name"] for component in found["components"]}


def test_a_name_in_capitals_is_a_name(capsys):
    assert main(["plugins", "DIS"]) == 0
    assert capsys.readouterr().out.startswith("policy loss dis")


def test_an_option_has_its_meaning():
    option = ZOO.rewards["random"].options["p"]
    assert f"{option.type_text}: {option.meaning}" in details("random", ZOO.rewards["random"])


def test_keys_and_errors_answer(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["help", "keys", "bypass"])
    assert "rollout.old_log_probs=sampled" in capsys.readouterr().out
    assert main(["show", "grpo", "policy_loss=geo_mean"]) == 2
    assert "did you mean 'policy_loss=gmpo'?" in capsys.readouterr().err
    assert main(["show", "grpo", "algorithm.filter_groups.enable=true"]) == 2
    assert "did you mean 'sampler=dynamic'?" in capsys.readouterr().err
