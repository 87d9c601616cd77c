"""A reward model's score: how it reads rows, and what is no reward model."""

import pytest
import torch

from helpers.reward_models import make_model, make_tokenizer, save_reward_model, spoiled
from helpers.rows import USER, said
from rlzoo import RlzooError
from rlzoo.errors import RecipeError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.supervised import reward_models
from rlzoo_lab.supervised.tiny import EOS
from rlzoo_zoo.rewards import reward_model as component

ROWS = [("ab:", "cd"), ("a:", ""), ("abcdefgh:", "xyzxyz"), ("q:", "a b c")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_reward_model(tmp_path_factory.mktemp("reward") / "model")


def ids_of(tokenizer, **options):
    return [reward_models.encode(tokenizer, p, r, **options) for p, r in ROWS]


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "bert"])
@pytest.mark.parametrize("pad", ["own", "eos"])
def test_padding_moves_no_score(architecture, pad):
    model, tokenizer = make_model(architecture, pad=pad), make_tokenizer(pad=pad)
    rows = ids_of(tokenizer) + ids_of(tokenizer, ended=False)
    alone = torch.stack([reward_models.score(model, [row])[0] for row in rows])
    assert alone.std() > 0.01
    for batch in (2, 3, 64):
        torch.testing.assert_close(
            reward_models.score(model, rows, batch), alone, atol=1e-5, rtol=0
        )
    assert model.config.pad_token_id == tokenizer.pad_token_id


@pytest.mark.parametrize("pad", ["own", "eos"])
def test_a_score_sees_whether_the_response_ended(pad):
    """Also where the tokenizer pads with EOS, which transformers alone would not see."""
    model, tokenizer = make_model(pad=pad), make_tokenizer(pad=pad)
    ended = reward_models.score(model, ids_of(tokenizer))
    cut = reward_models.score(model, ids_of(tokenizer, ended=False))
    assert ((ended - cut).abs() > 1e-3).all()


def test_a_plain_prompt_is_read_as_the_policy_reads_it(golden):
    tokenizer = make_tokenizer()
    ids = reward_models.encode(tokenizer, "ab:", "cd")
    assert tokenizer.decode(ids) == f"ab:cd{EOS}"
    assert tokenizer.decode(reward_models.encode(tokenizer, "ab:", "cd", ended=False)) == "ab:cd"
    assert tokenizer.decode(reward_models.encode(tokenizer, "ab:", "cd", limit=3)) == f"cd{EOS}"
    with golden.refuses(RlzooError):
        reward_models.encode(tokenizer, [USER], "cd")


def test_a_chat_template_writes_the_whole_conversation():
    tokenizer = make_tokenizer(chat=True)
    turns = [USER, said("yes"), USER]
    whole = f"u|hi\na|yes{EOS}\nu|hi\na|no{EOS}\n"
    assert tokenizer.decode(reward_models.encode(tokenizer, turns, "no")) == whole
    cut = tokenizer.decode(reward_models.encode(tokenizer, turns, "no", ended=False))
    assert cut == f"u|hi\na|yes{EOS}\nu|hi\na|no"
    empty = tokenizer.decode(reward_models.encode(tokenizer, turns, "", ended=False))
    assert empty == f"u|hi\na|yes{EOS}\nu|hi\na|"
    assert reward_models.encode(tokenizer, "hi", "no") == reward_models.encode(
        tokenizer, [USER], "no"
    )


# ---------------------------------------------------------------- the reward component


def columns(texts=ROWS, terminated=None):
    rows = len(texts)
    return {
        "prompts": [p for p, _ in texts],
        "messages": [[{"role": "user", "content": p}] for p, _ in texts],
        "responses": [r for _, r in texts],
        "terminated": torch.ones(rows, dtype=torch.bool) if terminated is None else terminated,
        "response_mask": torch.ones(rows, 3),
    }


def test_the_reward_is_the_models_score(zoo, folder):
    model, tokenizer = reward_models.load(folder, "cpu")
    given = zoo.rewards["reward_model"](columns(), path=str(folder))
    torch.testing.assert_close(
        given, reward_models.score(model, ids_of(tokenizer)), atol=1e-5, rtol=0
    )
    some = torch.tensor([True, False, True, False])
    mixed = zoo.rewards["reward_model"](columns(terminated=some), path=str(folder), batch=2)
    cut = reward_models.score(model, ids_of(tokenizer, ended=False))
    torch.testing.assert_close(mixed, torch.where(some, given, cut), atol=1e-5, rtol=0)
    short = zoo.rewards["reward_model"](columns(), path=str(folder), max_length=3)
    expected = reward_models.score(model, ids_of(tokenizer, limit=3))
    torch.testing.assert_close(short, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_tokenizers_padding_side_moves_no_score(zoo, folder, tmp_path, side):
    make_model().save_pretrained(tmp_path)
    tokenizer = make_tokenizer()
    tokenizer.padding_side = side
    tokenizer.save_pretrained(tmp_path)
    scores = zoo.rewards["reward_model"](columns(), path=str(tmp_path))
    plain = zoo.rewards["reward_model"](columns(), path=str(folder))
    torch.testing.assert_close(scores, plain, atol=1e-5, rtol=0)


def test_a_model_with_a_template_reads_the_messages(zoo, tmp_path):
    """By its own template: `prompts` hold what the policy's made of them."""
    make_model().save_pretrained(tmp_path)
    tokenizer = make_tokenizer(chat=True)
    tokenizer.save_pretrained(tmp_path)
    given = columns()
    given["messages"] = [[{"role": "system", "content": "be kind"}, *m] for m in given["messages"]]
    scores = zoo.rewards["reward_model"](given, path=str(tmp_path))
    asked = zip(given["messages"], given["responses"], strict=True)
    rows = [reward_models.encode(tokenizer, *pair) for pair in asked]
    torch.testing.assert_close(scores, reward_models.score(make_model(), rows), atol=1e-5, rtol=0)


def test_the_model_is_loaded_once_frozen_and_in_eval_mode(zoo, folder):
    component._loaded.cache_clear()
    for _ in range(3):
        zoo.rewards["reward_model"](columns(), path=str(folder))
    assert component._loaded.cache_info().misses == 1
    model = component._loaded(str(folder), "cpu", "float32").model
    assert not model.training
    assert not any(weight.requires_grad for weight in model.parameters())


@pytest.mark.parametrize(
    "how",
    [
        "causal",
        "labels",
        "three labels",
        "no tokenizer",
        "no config",
        "misspelled",
    ],
)
def test_what_is_no_reward_model_is_refused_when_planning(zoo, tmp_path, how, golden):
    place = spoiled(tmp_path, how)
    words = ["recipe=ppo_gae", "task=seasoning", f"rewards.reward_model.path={place}"]
    with golden.refuses(RecipeError):
        make_plan(compose(words, zoo), zoo)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["rewards.reward_model.path=nowhere"],
        ["rewards.reward_model.path=./a/b"],
        ["rewards.reward_model.device=cuba"],
    ],
)
def test_a_missing_path_is_refused_when_planning(zoo, words, golden):
    with golden.refuses(RecipeError):
        make_plan(compose(["recipe=ppo_gae", "rewards=reward_model", *words], zoo), zoo)


def test_a_hub_id_is_left_to_the_run(zoo, golden):
    """Planning needs no network; the run says what is missing, in a line."""
    words = ["recipe=ppo_gae", "rewards.reward_model.path=nobody-at-all/no-such-model"]
    make_plan(compose(words, zoo), zoo)
    with golden.refuses(RlzooError):
        zoo.rewards["reward_model"](columns(), path="nobody-at-all/no-such-model")
