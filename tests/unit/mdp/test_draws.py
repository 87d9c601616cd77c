"""What a task draws is looked at where it comes in."""

from itertools import repeat

import numpy as np
import pytest

from rlzoo import Example
from rlzoo.errors import ComponentError
from rlzoo.mdp.rules import draw_examples

CHAT = [{"role": "user", "content": "1+1="}]


class Drawn:
    """A task that draws what it is given."""

    def __init__(self, items):
        self.items = items

    def draw(self, split, n, generator):
        return self.items


@pytest.mark.parametrize(
    "item", [Example("1+1=", "2", 3), ("1+1=", "2", 3), ["1+1="], Example(CHAT, "2", np.int64(3))]
)
def test_what_is_an_example(item):
    assert draw_examples(Drawn([item]), "drawn", "train", 1, None) == [Example(*item)]


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([None], "task 'drawn': draw returned NoneType, not rlzoo.Example(prompt, answer, index)"),
        (["1+1="], "draw returned str, not rlzoo.Example"),
        ([{"prompt": "1+1="}], "draw returned dict, not rlzoo.Example"),
        ([("1+1=", "2", 3, 4)], "draw returned tuple, not rlzoo.Example"),
        (
            [Example(12, "2")],
            "a prompt must be a string, or a list of messages with role and content. Got 12",
        ),
        ([Example([])], "a prompt must be a string"),
        ([Example([{"role": "user"}])], "a prompt must be a string"),
        ([Example("1+1=", "2", None)], "an index must be a 64-bit int. Got None"),
        ([], "draw returned 0 train prompts instead of 1"),
        (None, "task 'drawn': draw raised TypeError"),
        (repeat(Example("1+1=", "2")), "draw returned more train prompts instead of 1"),
    ],
)
def test_what_is_none_gets_a_line_that_names_the_task(items, said):
    with pytest.raises(ComponentError) as caught:
        draw_examples(Drawn(items), "drawn", "train", 1, None)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
