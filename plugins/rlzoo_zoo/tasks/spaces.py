"""Spaces of gymnasium as text: the form of an action, actions read and written, observations.

An action is as many numbers as its space has, those of a Dict or Tuple in order: Discrete (with any
start), MultiDiscrete, MultiBinary and Box of any shape, bounds and dtype of integers or floats. An
action of a Text space is the text. Sequence, OneOf, Graph and a Text within others have no text.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy

from rlzoo.errors import in_short
from rlzoo_zoo.numbers import numbers, plain

MOST = 2000  # numbers of an observation
Array = numpy.ndarray


def describe(space: Any) -> str:
    """The form of an action; raises ValueError where it cannot be text."""
    from gymnasium import spaces

    if isinstance(space, spaces.Text):
        return f"a text of {space.min_length} to {space.max_length} characters"
    parts = [f"{name} {part}".lstrip() for name, leaf in leaves(space) for part in _ranges(leaf)]
    if len(parts) == 1:
        return f"a number {parts[0]}"
    if len(set(parts)) == 1:
        return f"{len(parts)} numbers, each {parts[0]}"
    return f"{len(parts)} numbers: {'; '.join(parts)}"


def leaves(space: Any, name: str = "") -> list[tuple[str, Any]]:
    """The spaces of numbers in a space, in order, with their keys; raises ValueError on others."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        found = [leaf for key, each in space.items() for leaf in leaves(each, str(key))]
    elif isinstance(space, spaces.Tuple):
        found = [leaf for each in space.spaces for leaf in leaves(each, name)]
    else:
        found = [(name, space)]
        whole = isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary))
        if not whole and not (isinstance(space, spaces.Box) and space.dtype.kind in "iuf"):
            raise ValueError(
                f"an action of the space {in_short(space)} cannot be written as numbers"
            )
    if not sum(_count(leaf) for _, leaf in found):
        raise ValueError(f"an action of the space {in_short(space)} has no numbers")
    return found


def _count(leaf: Any) -> int:
    return int(numpy.prod(leaf.shape, dtype=int))


def _ranges(leaf: Any) -> Iterator[str]:
    """`from LOW to HIGH` of each number of a leaf."""
    from gymnasium import spaces

    low: Any
    high: Any
    if isinstance(leaf, spaces.Box):
        low, high = leaf.low, leaf.high
    elif isinstance(leaf, spaces.MultiBinary):
        low, high = 0, 1
    else:
        low = leaf.start
        high = low + (leaf.nvec if isinstance(leaf, spaces.MultiDiscrete) else leaf.n) - 1
    for pair in zip(*(numpy.broadcast_to(x, leaf.shape).ravel() for x in (low, high)), strict=True):
        yield "from {} to {}".format(*map(shown, pair))


def read(space: Any, text: str) -> Any:
    """The action of a text, its last numbers; None where it has none in the space."""
    from gymnasium import spaces

    if isinstance(space, spaces.Text):
        return next((t for t in (text, text.strip()) if space.contains(t)), None)
    count = sum(_count(leaf) for _, leaf in leaves(space))
    found = [n.value for n in numbers(plain(text), listed=count > 1) if not n.denied]
    try:
        action = _built(space, iter(found[-count:]))
    except (StopIteration, ArithmeticError, ValueError):  # too few, too large, not whole
        return None
    return action if space.contains(action) else None


def _built(space: Any, values: Iterator[Fraction | None]) -> Any:
    """An action of a space from the next of some numbers."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {key: _built(each, values) for key, each in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple([_built(each, values) for each in space.spaces])
    exact = [_exact(next(values), space.dtype.kind) for _ in range(_count(space))]
    if isinstance(space, spaces.Discrete):
        return exact[0]
    with numpy.errstate(over="raise"):
        array = numpy.array(exact, dtype=space.dtype)
    if array.dtype.kind != "f" and array.tolist() != exact:  # wrapped around, by numpy 1
        raise ValueError
    return array.reshape(space.shape)


def _exact(value: Fraction | None, kind: str) -> float:
    if value is None or (kind in "iu" and value.denominator != 1):
        raise ValueError
    return float(value) if kind == "f" else int(value)


def written(action: Any) -> str:
    """An action as the text from which it is read."""
    if isinstance(action, str):
        return action
    if isinstance(action, (dict, tuple)):
        inner = action.values() if isinstance(action, dict) else action
        return " ".join(map(written, inner))
    return " ".join(map(str, numpy.ravel(action)))


def shown(observation: Any) -> str:
    """An observation as text: integers exactly, other numbers with four digits, those before the
    point at least; a mapping has a line for each key."""
    if isinstance(observation, (str, int)) and not isinstance(observation, bool):
        return str(observation)
    if isinstance(observation, dict):
        return "\n".join(f"{key}: {shown(value)}" for key, value in observation.items())
    if isinstance(observation, (list, tuple)):
        return " ".join(map(shown, observation))
    array = numpy.asarray(observation)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"an observation of type {type(observation).__name__} has no text")
    if array.size > MOST:
        raise ValueError(f"an observation has {array.size} numbers, and at most {MOST} are shown")
    return " ".join(_digits(x) for x in array.ravel().tolist())


def _digits(x: float) -> str:
    if isinstance(x, int):
        return str(int(x))
    return f"{x:.0f}" if 1000 <= abs(x) < 1e15 else f"{x:.4g}"
