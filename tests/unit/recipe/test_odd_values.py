"""Values that no recipe means: each is one line, before anything starts."""

import math
from typing import Annotated

import pytest

from rlzoo.cli import main
from rlzoo.errors import RecipeError, RlzooError
from rlzoo.plugin.options import Option, Range
from rlzoo.recipe.compose import compose
from rlzoo.train.start import prepare

WORDS = ["recipe=ppo_gae", "model=nano", "task=reverse"]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 10**400, -(10**400)])
def test_infinity_is_in_no_range_that_does_not_say_so(value):
    for kind in (float, float | None, Annotated[float, Range(0)], list[float]):
        given = [value] if kind == list[float] else value
        assert not Option.read("x", kind).allows(given)
    assert Option.read("x", Annotated[float, Range(0, math.inf)]).allows(value) == (value > 1)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("actor.lr=.inf", "actor.lr (command line): must be a float in [0, inf). Got inf"),
        ("rewards.verifier.weight=.inf", "rewards.verifier.weight"),
        ("critic.low=-.inf", "critic.low"),
        ("seed=99999999999999999999999", "seed (command line): must be an int"),
        ("critic.bins=1000000000", "critic.bins"),
        ("run.threads=99999999", "run.threads (command line): must be an int in [1, 1024]"),
        ("train.minutes=1:30", "train.minutes"),
        ("device=???", "device (command line): has no value"),
        ("device=gpu", "device (command line): 'gpu' is not"),
        ("model.path=", "model"),
        ("model.path=nowhere", "model.path (command line): 'nowhere' is not a model"),
        ("model=../recipes/ppo_gae", "model.name (command line): there is no model"),
        ("task.name=[]", "task.name (command line): must be a str. Got []"),
        ("rewards!=true", "there is no key 'rewards!'"),
        ("run.dir=" + "[" * 5000, "run.dir (command line): cannot read the value"),
        ("run.dir=" + "- " * 5000, "run.dir (command line): cannot read the value"),
        ("run.dir=\udc80", "run.dir (command line): cannot read the value"),
    ],
)
def test_a_word_that_cannot_be_meant(word, text, zoo):
    words = [w for w in WORDS if not (w.startswith("model=") and word.startswith("model."))]
    with pytest.raises(RlzooError) as caught:
        prepare(compose([*words, word], zoo), zoo)
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "source",
    [
        "[" * 100_000,
        "{a: " * 2000,
        "- " * 100_000,
        "\n".join(" " * i + "a:" for i in range(3000)),
        "x: '" + "a" * 2**21 + "'",
        "train: {minutes: 1:30}",
        "'rewards!': true",
        "device: ???",
    ],
)
def test_a_file_that_cannot_be_meant(source, zoo, tmp_path):
    file = tmp_path / "odd.yaml"
    file.write_text(source)
    with pytest.raises(RecipeError) as caught:
        compose([f"recipe={file}", *WORDS[1:]], zoo)
    assert "\n" not in str(caught.value)


def test_a_word_is_printed_as_one_can_see_it(capfd):
    assert main(["show", *WORDS, "run.dir=\udc80\x1b[31m"]) == 2
    said = capfd.readouterr().err
    assert "\x1b" not in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("verb", ["show", "run", "check", "eval"])
def test_options_stand_before_and_behind_words(verb):
    from rlzoo.cli import parse

    words = ["gae", "lam=0.5"] if verb == "check" else ["recipe=ppo_gae", "seed=1"]
    for order in ([words[0], "--json", words[1]], ["--json", *words], [*words, "--json"]):
        arguments = parse([verb, *order])
        assert arguments.json
        found = [getattr(arguments, "name", None), *arguments.words]
        assert [w for w in found if w] == words


@pytest.mark.parametrize("key", ["rollout.prompts", "rollout.samples", "rollout.max_new_tokens",
                                 "eval.samples", "eval.max_new_tokens", "train.minibatches",
                                 "critic.minibatches", "model.lora.rank"])  # fmt: skip
def test_a_size_that_no_machine_holds_is_refused_before_it_is_made(key, zoo):
    with pytest.raises(RecipeError, match="Got") as caught:
        compose(["recipe=ppo_gae", f"{key}={10**9}"], zoo)
    assert (caught.value.key, caught.value.kind) == (key, "out-of-range")


def test_nor_is_their_product(zoo):
    words = [f"rollout.{name}={10**6}" for name in ("prompts", "samples", "max_new_tokens")]
    with pytest.raises(RecipeError, match="tokens") as caught:
        compose(["recipe=ppo_gae", *words], zoo)
    assert (caught.value.key, caught.value.kind) == ("rollout", "out-of-range")


def test_a_name_that_is_null_chooses_no_default(zoo, tmp_path):
    for key in ("model.name", "task.name"):
        with pytest.raises(RecipeError, match=key.partition(".")[0]):
            compose(["recipe=ppo_gae", f"{key}=null"], zoo)
    compose(["recipe=ppo_gae", "model.name=null", f"model.path={tmp_path}"], zoo)
