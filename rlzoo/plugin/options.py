"""A typed setting: a description of its type, and the conversion of texts and numbers to it."""

import inspect
import math
import types
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin


@dataclass(frozen=True)
class Range:
    """The interval of an option; `closed` as in scikit-learn's `Interval`.

    Infinity is only in a range that ends with it, such as Range(0, math.inf).
    """

    low: float | None = None
    high: float | None = None
    closed: Literal["both", "left", "right", "neither"] = "both"

    def holds(self, value: float) -> bool:
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        above = value >= low if self.closed in ("both", "left") else value > low
        below = value <= high if self.closed in ("both", "right") else value < high
        return above and below

    def __str__(self) -> str:
        left = "[" if self.closed in ("both", "left") and self.low is not None else "("
        right = "]" if self.closed in ("both", "right") and self.high is not None else ")"
        low = "-inf" if self.low is None else self.low
        high = "inf" if self.high is None else self.high
        return f"{left}{low}, {high}{right}"


class _DiscountMark:
    """Marks an option as the discount, which the metrics also use."""


Discount = Annotated[float, Range(0, 1), _DiscountMark()]

_SCALARS = {bool: "a bool", int: "an int", float: "a float", str: "a str", dict: "a mapping",
            Any: "?"}  # fmt: skip

REQUIRED: Any = inspect.Parameter.empty


@dataclass(frozen=True)
class Option:
    """A typed setting: a component's option, or a key of the core's recipe."""

    name: str
    type: Any
    default: Any = REQUIRED
    range: Range | None = None
    meaning: str = ""
    discount: bool = False  # annotated as `Discount`

    @classmethod
    def read(cls, name: str, annotation: Any, default: Any = REQUIRED) -> "Option":
        """The option of an annotation; raises ValueError on one that recipes cannot express."""
        interval, meaning, discount = None, "", False
        if get_origin(annotation) is Annotated:
            annotation, *extras = get_args(annotation)
            interval = next((e for e in extras if isinstance(e, Range)), None)
            meaning = next((e for e in extras if isinstance(e, str)), "")
            discount = any(isinstance(e, _DiscountMark) or e is Discount for e in extras)
            for extra in extras:
                if not isinstance(extra, Range | str | _DiscountMark) and extra is not Discount:
                    raise ValueError(f"has {extra!r} in Annotated; write a Range or a description")
        option = cls(name, annotation, default, interval, meaning, discount)
        option._describe(annotation)
        if default is not REQUIRED:
            option.check(default)
        return option

    def _describe(self, kind: Any) -> str:
        if kind in _SCALARS:
            within = f" in {self.range}" if self.range and kind in (int, float) else ""
            return _SCALARS[kind] + within
        origin, args = get_origin(kind), get_args(kind)
        if origin is Literal:
            return "one of " + ", ".join(map(str, args))
        if origin in (Union, types.UnionType):
            return " or ".join("null" if a is type(None) else self._describe(a) for a in args)
        if origin is list and args:
            return f"a list of {self._describe(args[0]).removeprefix('a ').removeprefix('an ')}s"
        raise ValueError(f"has no usable type. Got {kind!r}")

    @property
    def type_text(self) -> str:
        return self._describe(self.type)

    def check(self, value: Any) -> Any:
        """`value` as this option's type; raises ValueError with the type and the value."""
        fits, result = self._coerce(value, self.type)
        if not fits:
            raise ValueError(f"must be {self.type_text}. Got {value!r}")
        return result

    def allows(self, value: object) -> bool:
        return self._coerce(value, self.type)[0]

    def fault(self, value: object) -> str:
        """The error kind of a value that this option does not allow."""
        return "out-of-range" if self.fits(value) else "wrong-type"

    def fits(self, value: object) -> bool:
        """Whether a value has this option's type, whatever its range."""
        return replace(self, range=None).allows(value)

    def _coerce(self, value: Any, kind: Any) -> tuple[bool, Any]:
        origin, args = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            arms = (self._coerce(value, arm) for arm in args)
            return next((pair for pair in arms if pair[0]), (False, None))
        if origin is Literal:
            # True == 1 in Python: a bool must not pass for Literal[1].
            fits = any(type(value) is type(arm) and value == arm for arm in args)
            return fits, value
        if origin is list:
            if not isinstance(value, list):
                return False, None
            pairs = [self._coerce(item, args[0]) for item in value]
            return all(fits for fits, _ in pairs), [result for _, result in pairs]
        if kind is Any:
            return True, value
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            large = abs(value) >= 2**1023  # too large for a float
            value = float(value) if not large else math.inf if value > 0 else -math.inf
        if kind in (int, float):
            fits = type(value) is kind
            if fits and kind is float and not math.isfinite(value):
                fits = self.range is not None and value in (self.range.low, self.range.high)
            if fits and kind is int:
                fits = -(2**63) <= value < 2**63  # what a tensor holds
            return fits and (self.range is None or self.range.holds(value)), value
        if kind is str and type(value) in (int, float):
            value = str(value)  # YAML reads a name such as 2026 as a number
        return isinstance(value, kind), value
