"""What a task draws, looked at where it comes in."""

from collections.abc import Mapping
from typing import Any

from rlzoo.errors import ComponentError
from rlzoo.plugin.border import border
from rlzoo.plugin.component import Example, name_of


def draw_examples(task: Any, split: str, n: int, generator: Any) -> list[Example]:
    """n examples that a task draws. Raises ComponentError where it raises, or draws others."""
    label = f"task {name_of(type(task).__name__)!r}"
    with border(f"{label}: draw"):
        items = list(task.draw(split, n, generator))
    if len(items) != n:
        raise ComponentError(f"{label}: draw was asked for {n} examples and returned {len(items)}")
    return [_example(label, item) for item in items]


def _example(label: str, item: Any) -> Example:
    if not isinstance(item, tuple | list) or not 1 <= len(item) <= 3:
        raise ComponentError(
            f"{label}: draw returned {type(item).__name__}, "
            "not rlzoo.Example(prompt, answer, index)"
        )
    example = Example(*item)
    prompt = example.prompt
    chat = (
        isinstance(prompt, list | tuple)
        and prompt
        and all(isinstance(m, Mapping) and isinstance(m.get("content"), str) for m in prompt)
    )
    if not isinstance(prompt, str) and not chat:
        raise ComponentError(
            f"{label}: a prompt is a text, or chat messages with a role and a content. "
            f"Got {prompt!r}"
        )
    if not hasattr(example.index, "__index__"):
        raise ComponentError(f"{label}: an example's index is an int. Got {example.index!r}")
    return example
