"""Makes a component of another project's function: its arguments from columns, and its result as
the kit takes it. The function itself is called as it is.

A loss that is one number becomes a loss per action with that sum; its gradient is a metric, so that
checks compare both. If the library averages with a function of its own, that function is replaced
for the call, and the loss per token is what it was given.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from rlzoo.errors import RlzooError, UsageError, nearest
from rlzoo.ops import at_last_action, masked_sum
from rlzoo.plugin.columns import COLUMNS, WITH_GRADIENT
from rlzoo.plugin.component import NO_RESULT, Component, place_of
from rlzoo.plugin.options import Discount, Option, Range
from rlzoo_lab.kit.checks.subject import Subject
from rlzoo_lab.kit.foreign.bench import on_bench, runs
from rlzoo_lab.kit.foreign.names import (
    GROUP_SIZE,
    LOSS,
    REWARDS,
    SETTINGS,
    columns_of,
    is_size,
    kind_of,
)

LOSSES = ("policy_losses", "value_losses")
_SHARE = Range(0, 1)
VARIED = {
    **dict.fromkeys(("gamma", "discount"), Option.read("gamma", Discount, 1.0)),
    **dict.fromkeys(("lam", "lambd", "lambda_", "gae_lambda"),
                    Option("lam", float, 0.95, _SHARE)),
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A function, and what is known of a call of it.

    kind, couples: "" to infer them from the arguments.
    arguments: argument -> column, or a function whose arguments are columns.
    average: the module and the name of the function with which its library averages a loss.
    """

    function: Callable[..., Any]
    name: str
    kind: str = ""
    couples: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    average: tuple[Any, str] | None = None


class Settings(dict):
    """A config object that has what the command line sets."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"its config has no {name!r}: set it by {name}=VALUE")
        return self[name]


def adapt(call: Call, options: Mapping[str, Any]) -> Component:
    """The component; raises UsageError where an argument has neither column nor value.

    options: values of arguments, or of keys of its config.
    """
    if any(test(call.function) for test in NO_RESULT):
        raise UsageError(f"{call.name}: is async or has a yield, so a call returns no result")
    columns, fixed, varied = _arguments(call, dict(options))
    kind = call.kind or kind_of(inputs_of(columns))
    if not kind:
        known = _listed(columns) or "none"
        raise UsageError(
            f"{call.name}: its arguments do not determine its kind (known: {known}); name the "
            "columns with --map THEIRS=OURS"
        )
    failed, mixed = "", None
    for way, forms, given in _tries(call, kind, columns, varied):
        adapted = Adapted(call, kind, given, fixed, forms, way)
        couples = call.couples or ("group" if "group_ids" in adapted.needs else "row")
        couples = "batch" if kind in ("aggregations", "columns") else couples
        component = Component(
            kind, call.name, adapted, adapted.needs, varied, adapted.story(varied), "foreign",
            place_of(call.function), couples, "BT" if kind == "columns" else "",
        )  # fmt: skip
        subject, fault = on_bench(component)
        if fault and runs(subject):
            failed = failed or fault
            continue
        if kind in LOSSES and "metric gradient" in subject.call(subject.batch()):
            # A single number does not show what rows share.
            component = component if call.couples else replace(component, couples="batch")
        if kind != "policy_losses" or not mixes(subject):
            return component
        mixed = mixed or component
    if mixed:
        return mixed
    rewards = [n for n, x in columns.items() if x in REWARDS]
    if "old_log_probs" in columns.values() and rewards and not call.kind:  # REINFORCE on rewards
        log_probs = {n: "log_probs" for n, x in columns.items() if x == "old_log_probs"}
        own = {**dict.fromkeys(rewards, "advantages"), **log_probs, **call.arguments}
        return adapt(replace(call, kind="policy_losses", arguments=own), options)
    raise UsageError(f"{call.name}: it cannot be called with {_listed(columns)}: {failed}")


def _tries(call: Call, kind: str, columns: dict, varied: dict) -> Iterator[tuple[str, dict, dict]]:
    """(what a call gets, the forms of its arguments, the columns), in the order of tries."""
    own = {n for n, x in columns.items() if x in PAID and n not in call.arguments}
    other = {n: PAID[x] if n in own else x for n, x in columns.items()}
    names = set(inputs_of(columns))
    whole = any(map(callable, call.arguments.values())) or {"response_mask", "group_ids"} & {
        *columns.values()
    }
    plain = kind == "estimators" and not whole
    if plain and names <= {*REWARDS} and not varied:  # the outcomes of a group
        outcomes = dict.fromkeys(columns, "sequence_rewards")
        for way, array in product((GROUP, MATRIX), ARRAYS):
            yield way, {"sequence_rewards": array}, outcomes
    elif plain and GROUP_SIZE not in names:
        for array in ARRAYS:
            yield ROW, dict.fromkeys(names, array), columns
    way = SIZE if GROUP_SIZE in names else BATCH
    given = [columns, other] if own else [columns]
    if kind == "policy_losses":
        given.append({n: per_response if x == "advantages" else x for n, x in columns.items()})
    arrays = ARRAYS if way == SIZE else ARRAYS[:1]
    for array, masks, ids, each in product(arrays, MASKS, IDS, given):
        forms = {"response_mask": masks, "group_ids": ids}
        yield way, forms | {x: array for n, x in each.items() if n in own}, each


def mixes(s: Subject) -> bool:
    """Whether another advantage changes the gradient of other rows: (B, T) where (B,) is meant."""
    columns = s.batch()
    there = columns["advantages"].clone()
    there[1:] *= -2
    try:
        one, other = (
            s.gradient({**columns, "advantages": x}) for x in (columns["advantages"], there)
        )
    except (AssertionError, RlzooError):
        return False
    return not torch.allclose(one["log_probs"][0], other["log_probs"][0])


def _arguments(call: Call, options: dict[str, Any]) -> tuple[dict, dict, dict]:
    """(argument -> column, argument -> value, the options that are varied)"""
    parameters = inspect.signature(call.function).parameters
    free = {n: p for n, p in parameters.items()
            if n not in options and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}  # fmt: skip
    own = {n: MADE[n] for n in free if n in MADE}
    own |= {n: column for n, column in call.arguments.items() if n in free}
    for name in set(call.arguments) - set(parameters):
        raise UsageError(f"{call.name}: has no argument {name!r}{nearest(name, parameters)}")
    required = [n for n, p in free.items() if p.default is p.empty or
                (is_size(n) and isinstance(p.default, int))]  # fmt: skip
    optional = [n for n, p in free.items() if p.default is None]
    columns = columns_of(required, optional, own)
    fixed = {n: options.pop(n) for n in list(options) if n in parameters}
    settings = next((n for n in required if n in SETTINGS), "")
    if settings:
        fixed[settings] = Settings(options)
    elif options:
        name = next(iter(options))
        raise UsageError(f"{call.name}: has no argument {name!r}{nearest(name, parameters)}")
    varied = {}
    for name, p in free.items():
        if name in VARIED:
            default = VARIED[name].default if p.default in (p.empty, None) else float(p.default)
            varied[name] = replace(VARIED[name], name=name, default=default)
        elif isinstance(p.default, bool):
            varied[name] = Option(name, bool, p.default)
    for name in required:
        if name not in columns and name not in fixed and name not in varied:
            raise UsageError(
                f"{call.name}: no column is known for its argument {name!r}"
                f"{nearest(name, COLUMNS)}; give --map {name}=COLUMN or {name}=VALUE"
            )
    return columns, fixed, varied


def ended(terminated: Tensor, response_mask: Tensor) -> Tensor:
    """1 at the last action of a response that is over, (B, T)."""
    return at_last_action(terminated.to(response_mask), response_mask)


MADE = dict.fromkeys(("done", "dones", "terminals"), ended)


def per_response(advantages: Tensor, response_mask: Tensor) -> Tensor:
    """An advantage per response, (B,), as many take them."""
    return masked_sum(advantages, response_mask) / response_mask.sum(1).clamp(min=1)


def _same(x: Any) -> Any:
    return x


def _names(ids: Tensor) -> list[str]:
    return [f"uid-{i}" for i in ids.tolist()]


# The mask, the ids of groups and `rewards` as they may be elsewhere, in the order of tries.
MASKS = (Tensor.clone, Tensor.bool, Tensor.long)
IDS = (lambda ids: np.array(_names(ids), dtype=object), Tensor.clone, _names)
PAID = {"rewards": "sequence_rewards", "sequence_rewards": "rewards", "scores": "sequence_rewards"}
ARRAYS = (_same, lambda x: x.numpy(), Tensor.tolist)
# What a call gets: a batch; the rows of groups of one size; these as (groups, size); those of one
# group; the actions of one response.
BATCH, SIZE, MATRIX, GROUP, ROW = "batch", "size", "matrix", "group", "row"


def inputs_of(columns: Mapping[str, Any]) -> list[str]:
    """The columns of arguments, those of functions included."""
    return [n for x in columns.values() for n in (inspect.signature(x).parameters if callable(x)
                                                  else [x])]  # fmt: skip


def _listed(columns: Mapping[str, Any]) -> str:
    """`theirs = ours` of each argument; `theirs of a and b`, if it is made of columns."""
    return ", ".join(f"{n} of {' and '.join(inputs_of({n: x}))}" if callable(x) else f"{n} = {x}"
                     for n, x in columns.items())  # fmt: skip


class Adapted:
    """A foreign function, called as that of a component."""

    def __init__(self, call: Call, kind: str, columns: Mapping[str, Any],
                 fixed: Mapping[str, Any], forms: Mapping[str, Any], way: str = BATCH):  # fmt: skip
        self.call, self.kind, self.columns = call, kind, columns
        self.fixed, self.forms, self.way = fixed, forms, way
        names = [n for n in inputs_of(columns) if n not in (LOSS, GROUP_SIZE)]
        names += ["group_ids"] * (way in (SIZE, MATRIX, GROUP))
        names += ["response_mask"] * (kind != "kl_penalties")
        self.needs = tuple(dict.fromkeys(names))

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        given = dict(zip(self.needs, inputs, strict=True))
        if self.kind == "estimators":
            return (self._estimate if self.way == BATCH else self._in_parts)(given, options)
        if self.kind in LOSSES:
            return self._lose(given, options)
        if self.kind == "aggregations":
            return self._weigh(given, options)
        return _first(self._theirs(given, options))

    def story(self, varied: Mapping[str, Any]) -> str:
        """The source of each argument, for the reader of the checks."""
        rest = inspect.signature(self.call.function).parameters
        said = [_listed(self.columns), *(f"{n} = {_short(x)}" for n, x in self.fixed.items())]
        left = [n for n, p in rest.items() if n not in {**self.columns, **self.fixed, **varied}
                and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]  # fmt: skip
        tried = f"; tried at several values: {', '.join(varied)}" if varied else ""
        return ", ".join(said) + tried + (f"; at its default: {', '.join(left)}" if left else "")

    def _theirs(self, given: Mapping[str, Any], options: Mapping[str, Any],
                cut: Any = _same, **more: Any) -> Any:  # fmt: skip
        values = {}
        for name, x in self.columns.items():
            whole = x(**{n: given[n] for n in inputs_of({name: x})}) if callable(x) else None
            form = self.forms.get(x if whole is None else inputs_of({name: x})[0], _same)
            values[name] = more[x] if x in more else form(cut(given[x] if whole is None else whole))
        call = inspect.signature(self.call.function).bind_partial()
        call.arguments.update({**values, **self.fixed, **options})
        output = self.call.function(*call.args, **call.kwargs)
        return getattr(output, "loss", output)  # of a record

    def _estimate(self, given: Mapping[str, Any], options: Mapping[str, Any], **more: Any) -> Any:
        output, mask = self._theirs(given, options, **more), given["response_mask"]
        if isinstance(output, Mapping):
            output = tuple(output[n] for n in ("advantages", "returns") if n in output)
        pair = output if isinstance(output, tuple) else (output,)
        wide = [_per_token(x, mask) for x in pair[:2]]
        if wide[0] is None:
            raise UsageError(f"returned {_short(pair[0])}, not advantages of {tuple(mask.shape)}")
        return wide[0] if len(wide) < 2 or wide[1] is None else tuple(wide)

    def _in_parts(self, given: Mapping[str, Any], options: Mapping[str, Any]) -> Tensor:
        """Several calls for a batch. A response without an action, and one without others in its
        group, get 0."""
        out, acts = torch.zeros_like(given["response_mask"]), given["response_mask"].bool()
        for rows, cut, more in self._parts(given):
            found = _first(self._theirs(given, options, cut, **more))
            each = None if found is None else torch.as_tensor(np.asarray(found)).to(out)
            if each is not None and self.way == ROW and each.numel() == acts[rows].sum():
                out[rows, acts[rows]] = each
            elif each is not None and each.shape == acts[rows].shape:
                out[rows] = each
            elif each is not None and each.numel() == rows.numel():
                out[rows] = each.reshape(-1, 1) * acts[rows]
            else:
                raise UsageError(f"returned {_short(found)}, not an advantage for each")
        return out

    def _parts(self, given: Mapping[str, Any]) -> Iterator[tuple[Tensor, Any, dict[str, int]]]:
        """(rows, what takes a column's part, the size of a group) of each call."""
        acts = given["response_mask"].bool()
        if self.way == ROW:
            for row in acts.any(1).nonzero()[:, 0]:
                yield row, lambda x, row=row: x[row][acts[row]] if x.ndim == 2 else x[row], {}
            return
        _, group, count = given["group_ids"].unique(return_inverse=True, return_counts=True)
        for size in [n for n in count.unique().tolist() if n > 1]:
            rows = (count[group] == size).nonzero()[:, 0]
            rows = rows[group[rows].argsort(stable=True)]
            if self.way == GROUP:
                for one in rows.view(-1, size):
                    yield one, lambda x, one=one: x[one], {}
            else:
                index = rows.view(-1, size) if self.way == MATRIX else rows
                yield rows, lambda x, index=index: x[index], {GROUP_SIZE: size}

    def _lose(self, given: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        mask = given["response_mask"].bool()
        seen: list[Tensor] = []

        def added(*values: Any, **named: Any) -> Tensor:  # in place of the library's average
            each, acts, *_ = [*values, *named.values()]
            seen.append(each)
            return torch.where(acts.bool(), each, 0).sum()

        with patch.object(*self.call.average, added) if self.call.average else nullcontext():
            loss = _number(self._theirs(given, options))
        if seen:
            each = seen[0].expand(mask.shape) if seen[0].ndim == 2 else seen[0]
            total = torch.where(mask, each, 0).sum() if each.shape == mask.shape else None
            if total is not None and torch.allclose(total, loss.to(total.dtype), equal_nan=True):
                return torch.where(mask, each, 0)
            loss = _number(self._theirs(given, options))
        if loss.shape == mask.shape:
            return loss
        if loss.ndim > 1:
            raise UsageError(f"returned {_short(loss)}, not a loss")
        leaves = {n: given[n].detach().requires_grad_() for n in WITH_GRADIENT if n in given}
        with torch.enable_grad():
            again = _number(self._theirs({**given, **leaves}, options)).sum()
        push = torch.zeros_like(next(iter(leaves.values())))
        if again.requires_grad:
            found = torch.autograd.grad(again, list(leaves.values()), allow_unused=True)
            push = next((x for x in found if x is not None), push)
        loss = loss.sum()
        metrics = {"gradient": push, "value": loss.detach().expand(mask.shape)}
        return torch.where(mask, loss / mask.sum().clamp(min=1), 0), metrics

    def _weigh(self, given: Mapping[str, Any], options: Mapping[str, Any]) -> Tensor:
        with torch.enable_grad():
            ones = torch.ones_like(given["response_mask"]).requires_grad_()
            total = _first(self._theirs(given, options, **{LOSS: ones}))
            (weights,) = torch.autograd.grad(total.sum(), ones)
        return weights


def _first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) else output


def _number(output: Any) -> Tensor:
    """The loss of what a loss function returned."""
    if isinstance(output, Mapping):
        output = next((output[n] for n in ("loss", "policy_loss") if n in output), None)
    loss = _first(output)
    if not isinstance(loss, Tensor):
        raise UsageError(f"returned {_short(loss)}, not a loss")
    return loss


def _per_token(x: Any, mask: Tensor) -> Tensor | None:
    """x (B, T), where x is a value per token or per response; otherwise None."""
    if isinstance(x, (list, np.ndarray)):
        x = torch.as_tensor(np.asarray(x)).to(mask.dtype)
    if not isinstance(x, Tensor):
        return None
    if x.shape == mask.shape:
        return x
    one = x.shape in (mask.shape[:1], (len(mask), 1))
    return x.reshape(-1, 1) * mask.to(x.dtype) if one else None


def _short(x: Any) -> str:
    if isinstance(x, Tensor):
        return f"a tensor of shape {tuple(x.shape)}"
    plain = isinstance(x, str | int | float | bool | type(None)) or not x
    return repr(x) if plain else f"{type(x).__name__}(...)"
