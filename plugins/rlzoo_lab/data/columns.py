"""Lines of numbers stored as columns: a million steps in the memory of a few thousand dicts."""

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, overload

from rlzoo.runs.disk import LARGEST

Line = Mapping[str, Any]


def usual(value: float) -> bool:
    return -LARGEST < value < LARGEST


def bounded(value: float) -> float:
    """A number as it is compared: infinite beyond LARGEST."""
    return value if usual(value) or value != value else math.inf if value > 0 else -math.inf


class Columns(Sequence[Line]):
    """A sequence of lines that keeps 4 or 8 bytes a number, and makes a line on request.

    wanted: if a name is kept; default: all.
    single: 4 bytes a number, rounded to float32 (relative error at most 6e-8).
    A number with which sums and squares overflow is an infinity. `not_finite` is of the first line
    with a NaN or an infinity, kept or not: (its step, the names);
    `not_finite_steps` are the steps of all.
    """

    def __init__(
        self,
        lines: Iterable[Line] = (),
        wanted: Callable[[str], bool] | None = None,
        single: bool = False,
    ):
        self._count = 0
        self._off = 1e-7 if single else 0.0  # how far a float32 may be from its number
        self.numbers: dict[str, array] = {}
        self.there: dict[str, bytearray] = {}  # of a column with gaps: 1 where there is a value
        self.others: dict[int, dict[str, Any]] = {}  # values that are not numbers
        self.not_finite: tuple[int, list[str]] | None = None
        self.not_finite_steps: list[int] = []
        self._wanted, self._known = wanted, dict[str, bool]()
        for line in lines:
            self.append(line)

    def append(self, line: Line) -> None:
        """A line, after those that are there."""
        n = self._count
        for name, value in line.items():
            kind = type(value)
            if (kind is float or kind is int) and not usual(value):
                value = bounded(value)
                if self.not_finite is None:
                    bad = [k for k, v in line.items() if type(v) in (float, int) and not usual(v)]
                    self.not_finite = line["step"], bad
                if self.not_finite_steps[-1:] != [line["step"]]:
                    self.not_finite_steps.append(line["step"])
            if not self._keeps(name):
                continue
            if kind is float or kind is int:
                self._put(name, value, n)
            else:
                self.others.setdefault(n, {})[name] = value
        self._count += 1

    def _keeps(self, name: str) -> bool:
        if self._wanted is None or name == "step":
            return True
        if name not in self._known:
            self._known[name] = self._wanted(name)
        return self._known[name]

    def _put(self, name: str, value: float, n: int) -> None:
        column = self.numbers.get(name)
        if column is None:
            kind = "q" if type(value) is int else "f"  # most are of tensors in float32
            column = self.numbers[name] = array(kind)
        if len(column) < n:  # not in some lines before
            there = self.there.setdefault(name, bytearray(b"\1" * len(column)))
            there.extend(bytes(n - len(there)))
            column.extend([0] * (n - len(column)))
        if column.typecode == "q" and (type(value) is float or abs(value) >= 2**63):
            column = self.numbers[name] = array("d", column)
        column.append(value)
        if column.typecode == "f" and not math.isclose(column[-1], value, rel_tol=self._off):
            self.numbers[name] = array("d", column)
            self.numbers[name][-1] = value
        if name in self.there:
            self.there[name].append(1)

    def column(self, name: str) -> tuple[array, array]:
        """(steps, values) of a metric where it is finite and below LARGEST; raises KeyError if it
        is not kept."""
        if not self._keeps(name):
            raise KeyError(name)
        values = self.numbers.get(name, array("d"))
        steps = self.numbers.get("step", array("q"))[: len(values)]
        if name not in self.there and (values.typecode == "q" or all(map(usual, values))):
            return steps, values
        there = self.there.get(name, b"\1" * len(values))
        keep = [bool(t) and usual(v) for t, v in zip(there, values, strict=True)]
        picked = (array(c.typecode, (x for x, k in zip(c, keep, strict=True) if k))
                  for c in (steps, values))  # fmt: skip
        return next(picked), next(picked)

    def names(self) -> set[str]:
        """The names of all numeric metrics that were kept."""
        return set(self.numbers)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Line: ...
    @overload
    def __getitem__(self, at: slice) -> list[Line]: ...
    def __getitem__(self, at: int | slice) -> Line | list[Line]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(self._count))]
        i = at + self._count if at < 0 else at
        if not 0 <= i < self._count:
            raise IndexError(at)
        line = {
            name: column[i]
            for name, column in self.numbers.items()
            if i < len(column) and (name not in self.there or self.there[name][i])
        }
        return line | self.others.get(i, {})
