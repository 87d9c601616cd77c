"""The component under test, which the kit calls directly, without the core's corrections.

The core zeroes outputs outside the mask, detaches and copies. To see a component's own output, the
kit calls its bare function; a check that needs the core calls the component.
"""

import math
import random
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import torch
from torch import Tensor

from rlzoo.errors import ComponentError, RlzooError
from rlzoo.plugin.call import scores
from rlzoo.plugin.columns import RESOURCES, WITH_GRADIENT
from rlzoo.plugin.component import Component
from rlzoo.plugin.options import Option, Range
from rlzoo_lab.kit.checks import made_up

LOSSES = ("policy_losses", "value_losses", "kl_penalties")

_WORD = {"kl_penalties": "penalty", "aggregations": "weights", "rewards": "scores",
         "policy_losses": "loss", "value_losses": "loss", "columns": "column"}  # fmt: skip


class NotApplicable(Exception):
    """A check that does not apply to this component, and why."""


class Subject:
    """One component, the zoo that defines the shapes of columns, and the options of its calls."""

    def __init__(self, component: Component, zoo: Any, options: Mapping[str, Any] | None = None):
        self.component = component
        self.zoo = zoo
        self.options = dict(options or {})
        options = component.check_options({}) if component.parts else {}
        self.needs = component.needs_with(options)
        self.kind = component.kind
        self._batches: dict[Any, made_up.Columns] = {}
        self._taken: dict[tuple[str, str], bool] = {}

    def batch(self, seed: int = 0, **changes: Any) -> made_up.Columns:
        """A copy of the synthetic batch, made only once: copying is ten times faster."""
        key = (seed, *changes.items())
        if any(isinstance(x, Tensor) for x in changes.values()):
            return made_up.made_up(self.zoo, seed, **changes)
        if key not in self._batches:
            self._batches[key] = made_up.made_up(self.zoo, seed, **changes)
        return {n: x.clone() if isinstance(x, Tensor) else deepcopy(x)
                for n, x in self._batches[key].items()}  # fmt: skip

    def require(self, *names: str) -> None:
        """Skip the check unless the component needs one of these columns."""
        if not set(names) & set(self.needs):
            raise NotApplicable(f"does not need {' or '.join(names)}")

    def exotic(self) -> list[str]:
        """The needs that are columns of plugins."""
        return [name for name in self.needs if name in self.zoo.columns]

    def call(self, columns: Mapping[str, Any]) -> dict[str, Tensor]:
        """The bare function's output by name, with the `memory` of a run's first step."""
        resources = [name for name in self.needs if name in RESOURCES and name != "memory"]
        if resources:
            raise NotApplicable(f"needs {' and '.join(resources)}, which only a run has")
        inputs = [{} if name == "memory" else columns[name] for name in self.component.needs]
        checked = self.component.check_options(self.options)
        if parts := self.component.parts_of(checked):
            made = [Subject(part, self.zoo, own).call(columns) for part, own in parts]
            checked[self.component.parts] = made
        try:
            return self.named(self.component.function(*inputs, **checked), columns)
        except RlzooError as error:
            if any(value == "" for value in checked.values()):  # an option that must be set
                raise NotApplicable(f"requires options to be set: {error}") from None
            raise

    def named(self, output: Any, columns: Mapping[str, Any]) -> dict[str, Tensor]:
        if self.kind == "estimators":
            pair = output if isinstance(output, tuple) else (output,)
            return dict(zip(("advantages", "returns"), pair, strict=False))
        if self.kind in ("policy_losses", "value_losses") and isinstance(output, tuple):
            loss, metrics = output
            return {"loss": loss, **{f"metric {name}": x for name, x in metrics.items()}}
        if self.kind == "rewards" and not isinstance(output, Tensor):
            output = scores(output, columns["response_mask"], ComponentError)
        return {_WORD[self.kind]: output}

    def tensors(self, columns: Mapping[str, Any]) -> dict[str, Tensor]:
        """Like `call`; skips a column of lists, because they cannot be compared."""
        if self.component.shape == "list":
            raise NotApplicable("its output is not a tensor")
        return self.call(columns)

    def gradient(self, columns: Mapping[str, Any]) -> dict[str, Tensor]:
        """d (sum of the loss) / d (each column that carries the model's gradient)."""
        leaves = {n: columns[n].detach().clone().requires_grad_()
                  for n in WITH_GRADIENT if n in self.needs}  # fmt: skip
        if not leaves:
            raise NotApplicable("reads no input that has a gradient")
        with torch.enable_grad():
            total = next(iter(self.call({**columns, **leaves}).values())).sum()
            assert total.requires_grad, f"no gradient reaches {', '.join(leaves)}"
            grads = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        return {
            name: torch.zeros_like(leaf) if grad is None else grad
            for (name, leaf), grad in zip(leaves.items(), grads, strict=True)
        }

    def variants(self) -> Iterator[dict[str, Any]]:
        """The default options, then one option changed at a time; values that the component
        refuses are left out. Calls and the messages of faults have the options of the moment."""
        self.options = {}
        yield self.options
        for name, option in self.component.options.items():
            for value in others(option):
                self.options = {name: value}
                if self._takes(name, value):
                    yield self.options
        self.options = {}

    def _takes(self, name: str, value: Any) -> bool:
        key = (name, repr(value))
        if key not in self._taken:
            try:
                self.call(self.batch())
                self._taken[key] = True
            except RlzooError:
                self._taken[key] = False
        return self._taken[key]

    def trials(self, **changes: Any) -> Iterator[made_up.Columns]:
        """Each variant's own batch."""
        return (self.batch(**changes) for _ in self.variants())


def others(option: Option) -> list[Any]:
    """Some legal values other than the default, one of each kind."""
    values: list[Any] = []
    for arm in _arms(option.type):
        low, high = _ends(option.range)
        if arm is bool:
            values += [True, False]
        elif arm is type(None):
            values.append(None)
        elif get_origin(arm) is Literal:
            values += get_args(arm)
        elif arm is int:
            # A length in the thousands would never bite on a made-up batch.
            small = (option.default or 0) < made_up.STEPS
            values.append((option.default or 0) + 1 if small else 2 * made_up.STEPS)
        elif arm is float and math.isfinite(low) and math.isfinite(high):
            values.append((low + high) / 2)
        elif arm is float:
            values.append((option.default or 0.0) * 1.5 + 0.1)
    return [x for x in values if x != option.default and option.allows(x)]


def extremes(option: Option) -> list[Any]:
    """The legal values at the ends: the bounds, or just inside open ones, or large numbers."""
    ends: list[Any] = []
    for arm in _arms(option.type):
        low, high = _ends(option.range)
        if arm is int:
            bounds = round(max(low, -1000)), round(min(high, 1000))
            ends += [x for end in bounds for x in (end, end + 1, end - 1)]
        elif arm is float:
            low, high = max(low, -1e3), min(high, 1e3)
            ends += next(([x] for x in (low, low + 1e-6) if option.allows(x)), [])
            ends += next(([x] for x in (high, high - 1e-6) if option.allows(x)), [])
    return [*others(option), *(x for x in ends if option.allows(x))]


def _arms(kind: Any) -> tuple[Any, ...]:
    union = get_origin(kind) is Union or type(kind).__name__ == "UnionType"
    return get_args(kind) if union else (kind,)


def _ends(span: Range | None) -> tuple[float, float]:
    low = span.low if span and span.low is not None else -math.inf
    high = span.high if span and span.high is not None else math.inf
    return low, high


def equal(x: Any, y: Any) -> bool:
    """Whether two values are the same, NaN where the other has it."""
    if not isinstance(x, Tensor):
        return bool(x == y)
    return x.shape == y.shape and bool(((x == y) | ((x != x) & (y != y))).all())


def dice() -> tuple[Any, ...]:
    """The states of the generators that all of a process shares."""
    arrays: Any = np.random.get_state()
    rest = (arrays[1].tobytes(), *arrays[2:])
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), rest


def thrown() -> tuple[Any, ...]:
    """These states after a draw from each, so that one that is seeded again differs."""
    torch.rand(()), random.random(), np.random.random()
    return dice()


def small(x: Tensor, limit: float, fault: str) -> None:
    """Assert that all of x is below the limit; {} in the error's text is the largest."""
    worst = float(x.abs().max())
    assert worst < limit, fault.format(f"{worst:.3g}")


def same(got: dict[str, Tensor], want: dict[str, Tensor], fault: str) -> None:
    """Assert equality up to rounding in float64; `fault` is the text of the error."""
    for name, x in got.items():
        y = want[name]
        assert x.shape == y.shape, (
            f"{fault}: {name} have shapes {tuple(x.shape)} and {tuple(y.shape)}"
        )
        if not x.is_floating_point():
            assert torch.equal(x, y), f"{fault}: {name} differ"
            continue
        gap = (x - y).abs()
        allowed = 1e-9 + 1e-9 * y.abs()
        off = gap[~((gap <= allowed) | (x.isnan() & y.isnan()))]  # NaN has a check of its own
        assert not len(off), f"{fault}: {name} differ by {float(off.max()):.3g}"
