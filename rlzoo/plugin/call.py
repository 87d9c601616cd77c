"""The only place where components are called: it prepares their inputs and checks their outputs.

Inputs: copies of the needed columns, so that a component cannot change the batch, each (B, T) one
exactly 0 off the mask, and without unneeded gradients. Outputs: the right shape, dtype and device,
finite if the input was, and 0 off the mask. An error names a component that violates this and its
file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlzoo.errors import ComponentError, RlzooError, nearest
from rlzoo.plugin.columns import COLUMNS, KEPT_OFF_MASK, RESOURCES, WITH_GRADIENT, Columns

Component = Any  # `rlzoo.plugin.component.Component`, which imports this module


def call(component: Component, columns: Columns, options: Mapping[str, Any]) -> Any:
    """Call `component` on `columns`; `options` are checked and complete."""
    if lacking := [name for name in component.needs if name not in columns]:
        name, given = lacking[0], ", ".join(columns) or "nothing"
        line = f"{component.label} needs {name!r}{nearest(name, columns)} (given: {given})"
        raise ComponentError(line, key=name, kind="unmet-need")
    mask = columns.get("response_mask")
    inputs = {
        name: columns[name] if name in RESOURCES else _own_input(name, columns[name], mask)
        for name in component.needs
    }
    if component.parts:
        results = [call(part, columns, chosen) for part, chosen in component.parts_of(options)]
        options = {**options, component.parts: results}
    with torch.set_grad_enabled(torch.is_grad_enabled() and component.kind not in NO_GRADIENT):
        output = component.function(*inputs.values(), **options)
    finish = _FINISH.get(component.kind)  # none: an object, such as a task or a logger
    return finish(_Call(component, columns, inputs, mask), output) if finish else output


# The outputs of these kinds have no gradient.
NO_GRADIENT = ("estimators", "aggregations", "columns", "rewards")


def _own_input(name: str, x: Any, mask: Tensor | None) -> Any:
    """A copy of x for the component, with exact zeros off the mask if it is (B, T, ...), and
    without a gradient unless the column brings one."""
    if not isinstance(x, Tensor):
        return own(x)
    x = x if name in WITH_GRADIENT else x.detach()
    shape = COLUMNS[name].shape if name in COLUMNS else "BT"  # a plugin's, if it has that shape
    per_token = shape in ("BT", "BTK") and mask is not None and x.shape[:2] == mask.shape
    return zero_off_mask(x, mask) if per_token and name not in KEPT_OFF_MASK else x.clone()


def own(x: Any) -> Any:
    """A copy of a tensor, or of texts and numbers in lists and mappings, which a component may
    change without changing the batch. Other objects are returned as they are."""
    if isinstance(x, Tensor):
        return x.clone()
    if type(x) in (list, tuple):
        return type(x)(v if isinstance(v, _PLAIN) else own(v) for v in x)
    return {k: own(v) for k, v in x.items()} if type(x) is dict else x


_PLAIN = (str, int, float, type(None))  # most of what is in lists: it cannot be changed


def zero_off_mask(x: Tensor, mask: Tensor | None) -> Tensor:
    """x (B, T) or (B, T, K) with exact zeros off the mask (B, T), if there is one; NaN there does
    not survive."""
    if mask is None:
        return x
    keep = mask.bool() if x.ndim == 2 else mask.bool()[..., None]
    return torch.where(keep, x, torch.zeros((), dtype=x.dtype))


def has_shape(x: Tensor, shape: str, rows: int, steps: int) -> bool:
    """Whether x is what a column declares: "B", "BT", "BTK" or "K", K being any number."""
    size = {"B": rows, "T": steps}
    return x.ndim == len(shape) and all(
        n == size.get(c, n) for c, n in zip(shape, x.shape, strict=True)
    )


class _Call(NamedTuple):
    """One call, for checking its outputs and blaming its component."""

    component: Component
    columns: Columns
    inputs: Columns
    mask: Tensor | None

    def fault(self, text: str) -> ComponentError:
        name = self.component.name
        return ComponentError(f"{self.component.label}: {text}", key=name, kind="plugin-fault")

    def per_token(self, x: object, what: str) -> Tensor:
        """x (B, T), after all checks of an output, with exact zeros off the mask."""
        if not isinstance(x, Tensor):
            raise self.fault(f"returned {what} of type {type(x).__name__}, not a tensor")
        shape = x.shape if self.mask is None else self.mask.shape
        # A float that went in sets dtype and device, the mask if there is no other.
        given = (self.inputs[name] for name in sorted(self.inputs, key="response_mask".__eq__))
        floats = (i for i in given if isinstance(i, Tensor) and i.is_floating_point())
        like = next(floats, x)
        for wrong, text in (
            (x.shape != shape, f"of shape {tuple(x.shape)} instead of {tuple(shape)}"),
            (x.device != like.device, f"on {x.device} instead of {like.device}"),
            (not x.is_floating_point(), f"of dtype {x.dtype}, not a float"),
            (x.dtype != like.dtype, f"of dtype {x.dtype} instead of {like.dtype}"),
        ):
            if wrong:
                raise self.fault(f"returned {what} {text}")
        return self.finite(zero_off_mask(x, self.mask), what)

    def finite(self, x: Tensor, what: str) -> Tensor:
        if not _is_finite(x) and all(map(_is_finite, self.inputs.values())):
            raise self.fault(f"returned {what} with NaN or infinity for finite inputs")
        return x


def _is_finite(x: object) -> bool:
    """A finite sum means finite entries, at a fraction of the cost of looking at each."""
    return not isinstance(x, Tensor) or bool(x.sum().isfinite()) or bool(x.isfinite().all())


def _pair(call: _Call, output: object, default: object, wanted: str) -> tuple[object, object]:
    """The output as a pair; with `default` if it is not a tuple."""
    if not isinstance(output, tuple):
        return output, default
    if len(output) != 2:
        raise call.fault(f"returned a tuple of {len(output)}, not {wanted}")
    return output


def _estimator(call: _Call, output: object) -> dict[str, Tensor]:
    advantages, returns = _pair(call, output, None, "advantages or (advantages, returns)")
    result = {"advantages": call.per_token(advantages, "advantages").detach()}
    if returns is not None:
        result["returns"] = call.per_token(returns, "returns").detach()
    elif "values" in call.component.needs:
        # Without a critic there is no target; with one, the target is tied by the values: the
        # batch's, since the component may change its own.
        values = _own_input("values", call.columns["values"], call.mask)
        result["returns"] = result["advantages"] + values
    return result


def _loss(call: _Call, output: object) -> tuple[Tensor, dict[str, Tensor]]:
    loss, metrics = _pair(call, output, {}, "a loss or (loss, metrics)")
    if not isinstance(metrics, dict):
        raise call.fault(f"returned metrics of type {type(metrics).__name__}, not a dict")
    loss = call.per_token(loss, "a loss")
    with_gradient = any(getattr(x, "requires_grad", False) for x in call.inputs.values())
    if torch.is_grad_enabled() and with_gradient and not loss.requires_grad:
        raise call.fault("returned a loss without a gradient; is it detached?")
    checked = {}
    for name, x in metrics.items():  # entries without weight may be anything
        if not isinstance(x, Tensor) or x.shape != loss.shape:
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            wanted = tuple(loss.shape)
            raise call.fault(f"metric {name!r} is {got}, not a tensor of shape {wanted}")
        checked[name] = zero_off_mask(x.detach().to(loss.dtype), call.mask)
    return loss, checked


def _column(call: _Call, output: object) -> object:
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


def scores(output: object, mask: Tensor, fault: Callable[[str], RlzooError]) -> Tensor:
    """What a scorer returned: (B,) for an outcome, (B, T) for a score per token, as the mask
    (B, T) and as wide as the model; lists of numbers are taken too."""
    dtype = mask.dtype if mask.is_floating_point() else torch.float32
    try:
        score = torch.as_tensor(output, dtype=dtype).detach().to(mask.device)
    except (TypeError, ValueError) as error:
        raise fault(f"returned {type(output).__name__}, not scores ({error})") from None
    if score.shape not in (mask.shape, mask.shape[:1]):
        shapes = f"{tuple(mask.shape[:1])} for outcomes or {tuple(mask.shape)} for scores per token"
        raise fault(f"returned scores of shape {tuple(score.shape)}; expected {shapes}")
    return score


# Columns of a sampler. One that gives any of `EPISODE` gives all, as one that wraps another does.
TOKENS = (
    "response_ids", "sampler_log_probs", "old_log_probs", "old_entropy", "kept_tokens",
    "sampler_log_pi",
)  # fmt: skip
LOG_PROBS = TOKENS[1:3]
ROLLOUT = [n for n, c in COLUMNS.items() if c.stage == "rollout"]
EPISODE = ("response_mask", "response_attention", "responses", "terminated", "truncated")


def _sampler(call: _Call, output: object) -> dict[str, Any]:
    """Columns for the rows of `uniforms` (B, limit): ids in int64, log-probs of the width of the
    policy's."""
    if not isinstance(output, Mapping):
        raise call.fault(f"returned {type(output).__name__}, not a mapping of columns")
    policy, (rows, limit) = call.columns["policy"], call.columns["uniforms"].shape
    known = (*TOKENS, *ROLLOUT, "task_scores") if "sample" in call.component.needs else TOKENS
    if other := [n for n in output if n not in known]:
        close = nearest(str(other[0]), known)
        line = f"returned a column {other[0]!r}; it may return {', '.join(TOKENS)}{close}"
        raise call.fault(line)
    needed = TOKENS[:2] + ("kept_tokens",) * policy.replay
    if missing := [n for n in needed + EPISODE * ("response_mask" in output) if n not in output]:
        raise call.fault(f"returned no {missing[0]!r}")
    ids = output["response_ids"]
    whole = isinstance(ids, Tensor) and ids.dtype in (torch.int64, torch.int32)
    if not whole or not has_shape(ids, "BT", rows, ids.shape[-1]) or not 0 < ids.shape[1] <= limit:
        wanted = f"int64 of {rows} rows of 1 to {limit} tokens were requested"
        raise call.fault(f"returned response_ids is {_what(ids)}, but {wanted}")
    low, high = (int(x) for x in ids.aminmax())
    if low < 0 or high >= policy.vocabulary:
        wrong, last = low if low < 0 else high, policy.vocabulary - 1
        raise call.fault(f"returned token {wrong}, but the model has tokens 0 to {last}")
    dtype = torch.promote_types(next(policy.model.parameters()).dtype, torch.float32)
    columns = {**output, "response_ids": ids.long()}
    for name, x in output.items():
        shape = COLUMNS[name].shape
        if shape == "list":
            if not isinstance(x, list) or len(x) != rows:
                raise call.fault(f"returned {name} is not a list of {rows} entries")
        elif not isinstance(x, Tensor) or not has_shape(x, shape, *ids.shape):
            line = f"returned {name} is {_what(x)}, but response_ids has shape {tuple(ids.shape)}"
            raise call.fault(line)
        elif x.device != ids.device:
            raise call.fault(f"returned {name} on {x.device} but response_ids on {ids.device}")
        elif name in {*TOKENS} - {"response_ids", "kept_tokens"}:
            if not x.is_floating_point():
                raise call.fault(f"returned {name} of dtype {x.dtype}, not a float")
            columns[name] = x.detach().to(dtype)
    return columns


def _what(x: object) -> str:
    return f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__


_FINISH: dict[str, Callable[[_Call, Any], object]] = {
    "estimators": _estimator,
    "kl_penalties": lambda call, out: call.per_token(out, "a penalty"),
    "policy_losses": _loss,
    "value_losses": _loss,
    "aggregations": lambda call, out: call.per_token(out, "weights"),
    "columns": _column,
    "rewards": lambda call, out: scores(out, call.columns["response_mask"], call.fault),
    "samplers": _sampler,
}
