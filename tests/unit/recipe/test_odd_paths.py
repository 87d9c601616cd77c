"""A name that no file can have, a home that nobody has: no such file, in one line."""

import contextlib

import pytest

from rlzoo import RlzooError
from rlzoo.lm.loading import resolve_path
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.recipe.words import name_recipe
from rlzoo.runs.folder import is_run
from rlzoo_zoo.data import read

LONG, NOBODY = "x" * 5000, "~nobody-has-this-name/model"


@pytest.mark.parametrize(
    "word",
    [
        f"task={LONG}", f"model={LONG}", f"model.path={LONG}", f"critic.init={LONG}",
        f"critic.init={NOBODY[:-6]}", f"recipe={LONG}.yaml", LONG,
    ],
    ids=lambda word: word[:20],
)  # fmt: skip
def test_of_a_recipe(word, zoo):
    words = [word] if "recipe" in word else ["recipe=ppo_gae", word]
    with contextlib.suppress(RlzooError):  # and nothing else
        make_plan(compose(words, zoo), zoo)


@pytest.mark.parametrize("path", [LONG, f"{LONG}.jsonl", NOBODY, f"{NOBODY}.jsonl"],
                         ids=lambda path: path[-20:])  # fmt: skip
def test_of_data_and_models(path):
    for reader in (lambda: list(read(path)), lambda: resolve_path(path)):
        with pytest.raises(RlzooError):
            reader()


def test_of_a_word():
    assert is_run(LONG)
    assert not is_run(f"{LONG}=1")
    assert name_recipe([f"{LONG}.yaml"]) == [f"recipe={LONG}.yaml"]
