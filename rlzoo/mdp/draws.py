"""Prompts that a task draws: what a stranger's `draw` gave, looked at before anything is made of
it."""

import operator
from collections.abc import Mapping
from typing import Any, cast

import torch

from rlzoo.errors import ComponentError
from rlzoo.plugin.border import border
from rlzoo.plugin.component import Example
from rlzoo.plugin.protocols import Split, Task

PLAIN = (str, int, float, type(None))  # bools are ints


def draw_examples(
    task: Task, name: str, split: str, n: int, generator: torch.Generator
) -> list[Example]:
    """n examples of a task; ComponentError, naming it, where it gave something else."""
    with border(f"task {name!r}: draw"):
        found = list(task.draw(cast(Split, split), n, generator))
    label = f"task {name!r}: draw"
    if len(found) != n:
        raise ComponentError(f"{label} gave {len(found)} {split} prompts, and {n} were asked for")
    return [_example(item, label) for item in found]


def _example(item: Any, label: str) -> Example:
    """As an example, its index an int."""
    if not isinstance(item, tuple | list) or not 1 <= len(item) <= 3:
        raise ComponentError(
            f"{label} gave {type(item).__name__}, not rlzoo.Example(prompt, answer, index)"
        )
    example = Example(*item)
    prompt, answer, index = example
    if not isinstance(prompt, str) and not _are_messages(prompt):
        raise ComponentError(
            f"{label}: a prompt is a text, or a list of messages, each a role and a content. "
            f"Got {prompt!r}"
        )
    if not _is_plain(answer):
        raise ComponentError(
            f"{label}: an answer is a text, a number, or lists and mappings of them, so that it "
            f"can be written down. Got {answer!r} for the prompt {prompt!r}"
        )
    try:
        number = operator.index(index)
    except TypeError:
        number = 2**63
    if not -(2**63) <= number < 2**63:
        raise ComponentError(f"{label}: an index is an int of 64 bits. Got {index!r}")
    return example._replace(index=number)


def _are_messages(prompt: Any) -> bool:
    return (
        isinstance(prompt, list | tuple)
        and len(prompt) > 0
        and all(isinstance(m, Mapping) and {"role", "content"} <= m.keys() for m in prompt)
    )


def _is_plain(x: Any) -> bool:
    if isinstance(x, PLAIN):
        return True
    if isinstance(x, list | tuple):
        return all(map(_is_plain, x))
    return isinstance(x, dict) and all(isinstance(k, PLAIN) and _is_plain(v) for k, v in x.items())
