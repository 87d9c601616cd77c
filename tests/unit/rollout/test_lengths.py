"""Responses of a fixed and of a least length."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers.worlds import favour, make_world
from rlzoo.accel import decode
from rlzoo.errors import RecipeError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.rollout.evaluation import answer_probs
from rlzoo.rollout.sample import collect, draw

FIXED = ["task=reverse", "task.fixed=true", "task.letters=2", "task.min_length=3",
         "task.max_length=3", "rollout.ignore_eos=true", "rollout.max_new_tokens=3"]  # fmt: skip


def batch_of(world, n=64):
    return collect(world, draw(world, "train", n, "train", 0), 1, stream="train", step=0)


@pytest.fixture
def endless(model_dir, tmp_path):
    """A model whose tokenizer has neither EOS nor padding, although its config names both."""
    AutoModelForCausalLM.from_pretrained(model_dir).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    tokenizer.eos_token = tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("cached", [True, False])
def test_a_fixed_length_needs_no_eos(zoo, endless, monkeypatch, cached):
    if not cached:  # `model.generate` would end a row at the EOS of the model's config
        monkeypatch.setattr(decode, "plain_cache", lambda *given: False)
    world = make_world(zoo, endless, *FIXED)
    batch = batch_of(world)
    assert (batch["response_ids"] == world.policy.model.config.eos_token_id[0]).any()
    assert batch["response_mask"].all()
    assert batch["terminated"].all()
    assert not batch["truncated"].any()


def test_the_probability_of_an_answer_of_fixed_length(zoo, endless):
    world = make_world(zoo, endless, *FIXED)
    favour(world.policy, "ab", eos=0.0)
    found = sum(answer_probs(world, 64)) / 64
    assert found == pytest.approx(2**-3, rel=0.2)


@pytest.mark.parametrize("way", ["growing", "static", "generate"])
def test_eos_is_not_sampled_too_early(zoo, model_dir, monkeypatch, way):
    if way == "generate":
        monkeypatch.setattr(decode, "plain_cache", lambda *given: False)
    cache = "static" if way == "static" else "dynamic"
    words = ["task=reverse", "rollout.min_new_tokens=2", "rollout.max_new_tokens=5"]
    world = make_world(zoo, model_dir, *words, f"rollout.cache={cache}")
    favour(world.policy, "abc", eos=2.0)
    batch = batch_of(world)
    lengths = batch["response_mask"].sum(1)
    assert set(lengths.tolist()) == {3, 4, 5}
    log_pi = world.policy.log_prob_stats(batch, want=("log_pi",))["log_pi"]
    free = 1 - log_pi[..., world.policy.eos_ids].exp().sum(-1)  # what is left without EOS
    gap = batch["sampler_log_probs"] - batch["old_log_probs"]
    torch.testing.assert_close(gap[:, :2], -free[:, :2].log(), atol=1e-5, rtol=1e-4)
    assert gap[:, 2:].abs().max() < 1e-6


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["rollout.ignore_eos=true", "rollout.min_new_tokens=1"], "rollout.min_new_tokens"),
        (["rollout.min_new_tokens=9", "rollout.max_new_tokens=8"], "rollout.min_new_tokens"),
        (["rollout.min_new_tokens=3", "eval.max_new_tokens=2"], "rollout.min_new_tokens"),
        (["task=hi_lo", "rollout.ignore_eos=true"], "rollout.ignore_eos"),
        (["task=hi_lo", "rollout.min_new_tokens=1"], "rollout.min_new_tokens"),
    ],
)
def test_lengths_that_contradict_are_refused(zoo, words, key):
    with pytest.raises(RecipeError) as error:
        make_plan(compose(["recipe=grpo", *words], zoo), zoo)
    assert key in str(error.value)
