"""The only place where components are called: it prepares their inputs and checks their outputs.

Inputs: copies of the needed columns, so that a component cannot change the batch, each (B, T) one
exactly 0 off the mask, and without unneeded gradients. Outputs: the right shape, dtype and device,
finite if the input was, and 0 off the mask. An error names a component that violates this and its
file.

The host must wait for a device to check that a tensor is finite. So `together` checks all calls
once, at its end; on a CPU, and outside `together`, each call is checked immediately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import torch
from torch import Tensor

from rlzoo.errors import ComponentError, RlzooError, nearest
from rlzoo.ops import carried, carry, numbers, put
from rlzoo.plugin.columns import COLUMNS, KEPT_OFF_MASK, RESOURCES, WITH_GRADIENT


class Component(Protocol):
    """Members read of `rlzoo.plugin.component.Component`, which imports this module."""

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def needs(self) -> tuple[str, ...]: ...
    @property
    def shape(self) -> str: ...
    @property
    def label(self) -> str: ...


Fault = Callable[[], RlzooError | None]  # looks closer: None where all is well after all


class Checks:
    """Conditions on tensors on a device, and the function that finds the fault where one fails."""

    def __init__(self) -> None:
        self._asked: list[tuple[Tensor, Fault]] = []

    def add(self, fine: Tensor, fault: Fault) -> None:
        self._asked.append((fine, fault))

    def read(self, *more: Tensor) -> list[float]:
        """`more`, tensors (), as numbers, by the same transfer. Raises the first fault."""
        asked, self._asked = self._asked, []
        found = numbers([*(fine for fine, _ in asked), *more]) if asked or more else []
        for answer, (_, fault) in zip(found[: len(asked)], asked, strict=True):
            if not answer and (error := fault()) is not None:
                raise error
        return found[len(asked) :]


_CHECKS: ContextVar[Checks | None] = ContextVar("checks", default=None)


@contextmanager
def together() -> Iterator[Checks]:
    """In this context, components' outputs on a device are checked when it ends, or by `read`: a
    fault is raised then, before any error that it caused."""
    checks = Checks()
    token = _CHECKS.set(checks)
    try:
        yield checks
    except Exception:
        checks.read()
        raise
    finally:
        _CHECKS.reset(token)
    checks.read()


def check(fine: Tensor, fault: Fault) -> None:
    """Raise the result of `fault` unless `fine` () bool is true: now, or, on a device in
    `together`, later."""
    checks = _CHECKS.get()
    if checks is not None and fine.device.type != "cpu":
        checks.add(fine, fault)
    elif not bool(fine) and (error := fault()) is not None:
        raise error


def call(component: Component, columns: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Call `component` on `columns`; `options` are checked and complete."""
    inputs = {name: _take(component, columns, name) for name in component.needs}
    finish = _FINISH.get(component.kind)
    if finish is None:  # tasks, samplers, loggers, executors: objects and columns of their own
        return component.function(*map(own, inputs.values()), **options)
    mask = columns.get("response_mask")
    inputs = {n: _own_off_mask(n, x, mask) for n, x in inputs.items()}
    with_gradient = component.kind in ("policy_losses", "value_losses", "kl_penalties")
    with torch.set_grad_enabled(with_gradient and torch.is_grad_enabled()):
        output = component.function(*inputs.values(), **options)
    return finish(_Call(component, columns, inputs), output)


def _take(component: Component, columns: Mapping[str, Any], name: str) -> Any:
    if name not in columns:
        given = ", ".join(columns) or "nothing"
        raise ComponentError(
            f"{component.label} needs {name!r}{nearest(name, columns)} (given: {given})",
            key=name,
            kind="unmet-need",
        )
    value = columns[name]
    # Targets are numbers: whatever history one has stays outside.
    leaks = isinstance(value, Tensor) and name not in WITH_GRADIENT
    return value.detach() if leaks and value.requires_grad else value


def own(x: Any) -> Any:
    """A copy of a tensor, or of texts and numbers in lists and mappings, which a component may
    change without changing the batch. Other objects are returned as they are."""
    if isinstance(x, Tensor):
        return carry(x.clone(), None if x.device.type == "cpu" else carried(x))
    if isinstance(x, list | tuple) and type(x) in (list, tuple):
        return type(x)(v if isinstance(v, _PLAIN) else own(v) for v in x)
    return {k: own(v) for k, v in x.items()} if type(x) is dict else x


_PLAIN = (str, int, float, type(None))  # most of what is in lists: it cannot be changed


def _own_off_mask(name: str, x: Any, mask: Any) -> Any:
    """A copy of x for the component, with exact zeros off the mask if it is (B, T, ...)."""
    if name in RESOURCES:
        return x
    if not isinstance(x, Tensor) or not isinstance(mask, Tensor) or name in KEPT_OFF_MASK:
        return own(x)
    known = COLUMNS.get(name)
    per_token = known.shape in ("BT", "BTK") if known else x.shape[:2] == mask.shape
    if not per_token or x.ndim < 2:
        return own(x)
    return zero_off_mask(x, mask)


def zero_off_mask(x: Tensor, mask: Tensor) -> Tensor:
    """x (B, T) or (B, T, K) with exact zeros off the mask (B, T); NaN there does not survive."""
    keep = mask.bool()
    out = torch.where(keep if x.ndim == 2 else keep[..., None], x, torch.zeros((), dtype=x.dtype))
    if x.device.type == "cpu":
        return out
    known, where = carried(x), carried(mask)
    return out if known is None or where is None else carry(out, zero_off_mask(known, where))


def has_shape(x: Tensor, shape: str, rows: int, steps: int) -> bool:
    """Whether x is what a column declares: "B", "BT", "BTK" or "K", K being any number."""
    size = {"B": rows, "T": steps}
    return x.ndim == len(shape) and all(
        n == size.get(c, n) for c, n in zip(shape, x.shape, strict=True)
    )


class _Call:
    """One call, for checking its outputs and blaming its component."""

    def __init__(self, component: Component, columns: Mapping[str, Any], inputs: Mapping[str, Any]):
        self.component = component
        self.columns = columns
        self.inputs = inputs
        tensors = {n: x for n, x in inputs.items() if isinstance(x, Tensor)}
        floats = {n: x for n, x in tensors.items() if x.is_floating_point()}
        # A (B, T) column that went in sets the dtype; only the mask may differ.
        wide = [x for n, x in floats.items() if n != "response_mask"]
        self.like = [*wide, *floats.values(), *tensors.values(), torch.zeros(())][0]
        shapes = [x.shape for n, x in tensors.items() if n in COLUMNS and COLUMNS[n].shape == "BT"]
        mask = columns.get("response_mask")
        self.mask = mask if isinstance(mask, Tensor) else None
        self.shape = self.mask.shape if self.mask is not None else (shapes[0] if shapes else None)
        self.given = [x.detach() for x in floats.values()]

    def fault(self, text: str) -> ComponentError:
        name = self.component.name
        return ComponentError(f"{self.component.label}: {text}", key=name, kind="plugin-fault")

    def tensor(self, x: Any, what: str, shape: Any) -> Tensor:
        if not isinstance(x, Tensor):
            raise self.fault(f"returned {what} of type {type(x).__name__}, not a tensor")
        if shape is not None and tuple(x.shape) != tuple(shape):
            raise self.fault(f"returned {what} of shape {tuple(x.shape)} instead of {tuple(shape)}")
        if x.device != self.like.device:
            raise self.fault(f"returned {what} on {x.device} instead of {self.like.device}")
        if not x.is_floating_point():
            raise self.fault(f"returned {what} of dtype {x.dtype}, not a float")
        if self.like.is_floating_point() and x.dtype != self.like.dtype:
            raise self.fault(f"returned {what} of dtype {x.dtype} instead of {self.like.dtype}")
        return x

    def per_token(self, x: Any, what: str) -> Tensor:
        x = self.tensor(x, what, self.shape)
        if self.mask is not None:
            x = zero_off_mask(x, self.mask)
        return self.finite(x, what)

    def finite(self, x: Tensor, what: str) -> Tensor:
        wrong = x.detach()

        def fault() -> ComponentError | None:
            if _is_finite(wrong) or not all(map(_is_finite, self.given)):
                return None
            return self.fault(f"returned {what} with NaN or infinity for finite inputs")

        check(wrong.sum().isfinite(), fault)
        return x


def _is_finite(x: Tensor) -> bool:
    """A finite sum means finite entries, at a fraction of the cost of looking at each."""
    return bool(torch.isfinite(x.sum())) or bool(torch.isfinite(x).all())


def _pair(call: _Call, output: Any, wanted: str) -> tuple[Any, Any] | None:
    """The output as a pair; None if it is not a tuple."""
    if not isinstance(output, tuple):
        return None
    if len(output) != 2:
        raise call.fault(f"returned a tuple of {len(output)}, not {wanted}")
    return output


def _estimator(call: _Call, output: Any) -> dict[str, Tensor]:
    pair = _pair(call, output, "advantages or (advantages, returns)")
    advantages, returns = pair or (output, None)
    result = {"advantages": call.per_token(advantages, "advantages").detach()}
    if returns is not None:
        result["returns"] = call.per_token(returns, "returns").detach()
    elif "values" in call.component.needs:
        # Without a critic there is no target; with one, the target is tied by the values.
        values = call.columns["values"].detach()  # the batch's: the component may change its own
        values = values if call.mask is None else zero_off_mask(values, call.mask)
        result["returns"] = result["advantages"] + values
    return result


def _loss(call: _Call, output: Any) -> tuple[Tensor, dict[str, Tensor]]:
    loss, metrics = _pair(call, output, "a loss or (loss, metrics)") or (output, {})
    if not isinstance(metrics, dict):
        raise call.fault(f"returned metrics of type {type(metrics).__name__}, not a dict")
    loss = call.per_token(loss, "a loss")
    given = [x for x in call.inputs.values() if isinstance(x, Tensor) and x.requires_grad]
    if given and torch.is_grad_enabled() and not loss.requires_grad:
        raise call.fault("returned a loss without a gradient; is it detached?")
    shape, mask = call.shape, call.mask
    checked = {}
    for name, x in metrics.items():
        if not isinstance(x, Tensor) or (shape is not None and x.shape != shape):
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise call.fault(
                f"metric {name!r} is {got}, not a tensor of shape {tuple(shape or ())}"
            )
        x = x.detach().to(loss.dtype)
        checked[name] = x if mask is None else zero_off_mask(x, mask)
    return loss, checked


def _column(call: _Call, output: Any) -> Any:
    shape = call.component.shape
    if shape == "list":
        return output
    name = f"column {call.component.name!r}"
    if not isinstance(output, Tensor):
        raise call.fault(f"returned {type(output).__name__}, not a tensor")
    if call.mask is None:
        return output
    if not has_shape(output, shape, *call.mask.shape):
        raise call.fault(f"returned {name} of shape {tuple(output.shape)}, but declares {shape}")
    if shape in ("BT", "BTK"):
        output = zero_off_mask(output, call.mask)
    return call.finite(output, name) if output.is_floating_point() else output


def real(x: Any) -> Any:
    """x; raises TypeError if it is complex, since a float would keep only its real part."""
    kind = getattr(x, "dtype", None)
    if getattr(kind, "is_complex", False) or getattr(kind, "kind", "") == "c":
        raise TypeError("complex numbers")
    return x


def _reward(call: _Call, output: Any) -> Tensor:
    """(B,) for an outcome, (B, T) for a score per token; lists of numbers are taken too."""
    mask = call.columns["response_mask"]
    try:
        score = torch.as_tensor(real(output), dtype=torch.float32)
        score = score if score.device == mask.device else put(score, mask.device)
    except (TypeError, ValueError) as error:
        raise call.fault(f"returned {type(output).__name__}, not scores ({error})") from None
    if score.shape not in (mask.shape, mask.shape[:1]):
        raise call.fault(
            f"returned scores of shape {tuple(score.shape)}; expected {tuple(mask.shape[:1])} "
            f"for outcomes or {tuple(mask.shape)} for scores per token"
        )
    return score.detach()


_FINISH: dict[str, Callable[[_Call, Any], Any]] = {
    "estimators": _estimator,
    "kl_penalties": lambda call, out: call.per_token(out, "a penalty"),
    "policy_losses": _loss,
    "value_losses": _loss,
    "aggregations": lambda call, out: call.per_token(out, "weights"),
    "columns": _column,
    "rewards": _reward,
}
