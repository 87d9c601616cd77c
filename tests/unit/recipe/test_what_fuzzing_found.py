"""Recipes that the fuzzer of tests/faults got accepted, or a traceback for."""

import pytest

from rlzoo.errors import RecipeError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan

LARGE = 9999999999999999999999999


@pytest.mark.parametrize(
    "words",
    [
        [f"train.steps={LARGE}"],
        [f"eval.max_new_tokens={LARGE}"],
        ["task=local_search", f"task.searches={LARGE}"],
        ["sampler=dynamic", "sampler.tries=a: b"],
    ],
    ids=lambda words: words[-1],
)
def test_no_integer_of_more_than_64_bits_and_no_keys_below_a_value(words, zoo):
    key = words[-1].partition("=")[0]
    with pytest.raises(RecipeError, match=key):
        make_plan(compose(["recipe=dapo", *words], zoo), zoo)
