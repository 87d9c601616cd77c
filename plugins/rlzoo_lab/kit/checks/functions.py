"""Checks of every component that maps columns to a tensor."""

import dis
import inspect
import math
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import RlzooError
from rlzoo.plugin.call import has_shape
from rlzoo_lab.kit.checks import made_up
from rlzoo_lab.kit.checks.subject import (  # fmt: skip
    LOSSES,
    NotApplicable,
    Subject,
    dice,
    equal,
    extremes,
    same,
    thrown,
)


def documented(s: Subject) -> None:
    """It has a docstring that names its source."""
    assert s.component.doc, "has no docstring; state the idea, the formula and its assumptions"
    assert s.component.source, "has no source; end the docstring with a line 'Source: ...'"


def defaults_work(s: Subject) -> None:
    """It can be called with its default options, and returns what a run takes."""
    plain = s.batch()
    s.call(plain)
    groups, mask = torch.zeros_like(plain["group_ids"]), torch.ones_like(plain["response_mask"])
    columns = s.batch(groups=groups, mask=mask)  # not an edge case
    s.component({**columns, "memory": {}}, **s.options)


def options_are_read(s: Subject) -> None:
    """Its code uses every option."""
    function = inspect.unwrap(s.component.function)
    if not inspect.isfunction(function) or not s.component.options:
        raise NotApplicable("has no options, or no code in Python")
    code = function.__code__
    loads = (i.argval for i in dis.get_instructions(code) if "LOAD" in i.opname)
    read = {name for x in loads for name in (x if isinstance(x, tuple) else (x,))}
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    unread = {*own} & {*s.component.options} - read - {*code.co_cellvars}
    assert not unread, f"does not use its option {', '.join(sorted(unread))}"


def finite_at_the_bounds(s: Subject) -> None:
    """No legal value of an option causes NaN or infinity: it is tried at the ends of its range."""
    flat = s.batch(1)
    flat = made_up.paid(flat, torch.ones_like(flat["sequence_scores"]))
    for name, option in s.component.options.items():
        for value in extremes(option):
            s.options = {name: value}
            for columns in (s.batch(), flat):
                try:
                    _finite(s, columns, "")
                except RlzooError:  # it may refuse a value that this batch does not support
                    continue
    if not s.component.options:
        raise NotApplicable("has no options")


def finite_everywhere(s: Subject) -> None:
    """Results and gradients are finite for the edge cases: groups of one, empty rows, B = 1, ..."""
    cases = _edge_cases(s)
    for _ in s.variants():
        for case, columns in cases:
            _finite(s, columns, f" on {case}")


def deterministic(s: Subject) -> None:
    """The same columns give the same result, and it draws no random numbers."""
    for _ in s.variants():
        before = thrown()
        first, _, again = (s.tensors(s.batch(seed)) for seed in (0, 1, 0))
        unmoved = before == dice()
        assert unmoved, "draws random numbers or seeds them; use the column 'noise' instead"
        for name, x in first.items():
            assert equal(x, again[name]), f"returns different {name} for the same input"


def inputs_unchanged(s: Subject) -> None:
    """No input is changed in place, except a `memory`."""
    for _ in s.variants():
        columns, before = s.batch(), s.batch()
        s.call(columns)
        for name in set(s.needs) - {"memory"}:
            assert equal(columns[name], before[name]), f"changes its input {name!r} in place"


def no_gradient_of_its_own(s: Subject) -> None:
    """Outputs have no gradient if no input has one."""
    with torch.enable_grad():
        output = s.tensors(s.batch())
        for name, x in output.items():
            assert not x.requires_grad, f"its {name} carry a gradient, though no input does"


def shape_dtype_device(s: Subject) -> None:
    """Outputs are (B, T) where required, with the dtype and device of the inputs."""
    for device in ["cpu", *["cuda"] * torch.cuda.is_available()]:
        for dtype in (torch.float32, torch.float64):
            columns = {n: x.to(device) if isinstance(x, Tensor) else x
                       for n, x in s.batch(dtype=dtype).items()}  # fmt: skip
            rows, steps = columns["response_mask"].shape
            for name, x in s.tensors(columns).items():
                if s.kind == "columns":
                    right = has_shape(x, s.component.shape, rows, steps)
                    assert right, f"is {tuple(x.shape)}, declared {s.component.shape}"
                elif s.kind == "rewards":
                    right = tuple(x.shape) in ((rows,), (rows, steps))
                    assert right, f"scores have shape {tuple(x.shape)}, not (B,) or (B, T)"
                else:
                    right = tuple(x.shape) == (rows, steps)
                    assert right, f"its {name} have shape {tuple(x.shape)}, not {(rows, steps)}"
                    exact = name.startswith("metric") or x.dtype == dtype
                    assert exact, f"its {name} are {x.dtype}, but the inputs are {dtype}"
                    # The core puts lists on the device; it does not move tensors.
                    assert x.device.type == device, f"its {name} are on {x.device}, not {device}"


def zero_off_the_mask(s: Subject) -> None:
    """Its raw output is 0 at positions without an action."""
    if s.kind != "rewards" and "response_mask" not in s.needs:
        raise NotApplicable("does not take response_mask, so the core zeroes its output")
    for columns in s.trials():
        for name, x in s.tensors(columns).items():
            if x.shape[:2] == columns["response_mask"].shape and not name.startswith("metric"):
                off = x[~columns["response_mask"].bool()]
                assert not off.any(), f"its {name} are not 0 outside the mask"


def padding_changes_nothing(s: Subject, columns: made_up.Columns) -> None:
    steps = columns["response_mask"].shape[1]
    for count in (1, 70):  # 70: beyond a block of the scan
        _same_around(s, columns, steps, count, "counts padding")


def padding_is_not_read(s: Subject) -> None:
    """Appended padding changes nothing, regardless of its content."""
    for columns in s.trials():
        padding_changes_nothing(s, columns)
        steps = columns["response_mask"].shape[1]
        padded = (made_up.widened(s.zoo, columns, steps, 70, fill) for fill in (0.0, math.nan, 1e9))
        clean, *dirty = (_flat(s.component({**x, "memory": {}}, **s.options)) for x in padded)
        for got in dirty:
            assert all(map(torch.equal, got, clean)), "reads padding that contains NaN or 1e9"


def holes_are_stepped_over(s: Subject) -> None:
    """Tokens with mask 0 inside a response (observations) change nothing at its actions."""
    for columns in s.trials():
        for at in (0, 1, 4):
            _same_around(s, columns, at, 3, "counts observations inside a response")


def _same_around(s: Subject, columns: made_up.Columns, at: int, count: int, fault: str) -> None:
    """`count` more positions without an action, before position `at`, change no other position."""
    wide = made_up.widened(s.zoo, columns, at, count)
    mask = wide["response_mask"]
    kept = [t for t in range(mask.shape[1]) if not at <= t < at + count]
    got = {n: x[:, kept] if x.shape[:2] == mask.shape else x for n, x in s.tensors(wide).items()}
    same(got, s.tensors(columns), fault)


def token_texts_belong_to_actions(s: Subject) -> None:
    """`response_tokens` lists only actions: observations before an action do not shift its text."""
    s.require("response_tokens")
    columns = s.batch()
    mask = columns["response_mask"].bool()
    unset = [o.name for o in s.component.options.values() if o.default == ""]
    # Texts that it may look for.
    for options, text in (({}, "abc"), ({}, "012"), *(({name: "a"}, "abc") for name in unset)):
        s.options = options
        columns["response_tokens"] = [[text[(i + k) % 3] for k in range(int(n))]
                                      for i, n in enumerate(mask.sum(1))]  # fmt: skip
        fault = "uses the index in response_tokens as a column index"
        try:
            _same_around(s, columns, mask.shape[1] // 2, 3, fault)
        except (ValueError, RlzooError):  # not an option of that sort
            continue


def float64_is_kept(s: Subject) -> None:
    """In float64, the loss reacts proportionally to changes of 1e-8: nothing is cast to float32."""
    for columns in s.trials():
        draw = torch.Generator().manual_seed(0)
        plain = _output(s, columns)
        for name in s.needs:
            x = columns[name]
            if name == "response_mask" or not isinstance(x, Tensor) or not x.is_floating_point():
                continue
            step = 1e-8 * torch.randn(x.shape, generator=draw, dtype=x.dtype)
            once, twice = (_output(s, {**columns, name: x + n * step}) - plain for n in (1, 2))
            size = plain.abs().max().clamp(min=1)
            worst = float(((twice - 2 * once).abs() / size).max())
            assert worst < 1e-11, f"rounds {name!r} to less than float64"


def _output(s: Subject, columns: made_up.Columns) -> Tensor:
    return next(iter(s.tensors(columns).values()))


def rows_in_any_order(s: Subject) -> None:
    """Shuffled rows give shuffled results: groups need not be contiguous."""
    if s.kind == "columns" and s.component.shape == "K":
        raise NotApplicable("has no rows")
    for columns in s.trials():
        groups, whole = columns["group_ids"], s.tensors(columns)
        order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(0))
        for index in (order, torch.argsort(groups, stable=True)):
            got = s.tensors(made_up.rows_of(s.zoo, columns, index))
            want = {name: x[index] for name, x in whole.items()}
            same(got, want, "depends on the order of the rows")


def groups_matter(s: Subject) -> None:
    """It uses the group_ids that it needs: other groups give another result."""
    s.require("group_ids")
    columns, merged = s.batch(), s.batch()
    merged["group_ids"] = torch.zeros_like(columns["group_ids"])
    one, other = s.tensors(columns), s.tensors(merged)
    differs = any(not torch.allclose(one[name], other[name]) for name in one)
    assert differs, "needs group_ids but does not depend on them: a global statistic?"


def rows_without_an_action_count_nothing(s: Subject) -> None:
    """Without a row that has no action (one that the trainer drops), other rows have the same
    result and gradient: neither its group nor the batch counts it as a member."""
    mask = s.batch()["response_mask"].clone()
    mask[[1, 3]] = 0  # of two groups
    others = mask.any(1).nonzero()[:, 0]
    for _ in s.variants():
        columns = s.batch(mask=mask)
        fewer = made_up.rows_of(s.zoo, columns, others)
        whole, got = s.tensors(columns), s.tensors(fewer)
        if s.kind in LOSSES:
            whole, got = whole | s.gradient(columns), got | s.gradient(fewer)
        want = {name: x[others] for name, x in whole.items()}
        same(got, want, "counts rows without an action")


def couples_as_declared(s: Subject) -> None:
    """A row depends only on the declared rows: itself, its group, or the batch."""
    couples = s.component.couples
    if couples == "batch":
        raise NotApplicable("declares couples='batch'")
    if s.kind == "columns" and s.component.shape == "K":
        raise NotApplicable("has no rows")
    for _ in s.variants():
        columns, other = s.batch(), s.batch(1)
        rows = torch.arange(len(columns["group_ids"]))
        units = rows if couples == "row" else columns["group_ids"]
        whole = s.tensors(columns)
        for unit in units.unique():
            stays = units == unit
            mixed = made_up.rows_replaced(s.zoo, columns, other, ~stays)
            got = {name: x[stays] for name, x in s.tensors(mixed).items()}
            want = {name: x[stays] for name, x in whole.items()}
            same(got, want, f"depends on more than its {couples}; declare a wider couples=...")


def _flat(result: Any) -> list[Tensor]:
    """The tensors that a public call returned, without the padding after the first dimension."""
    if isinstance(result, tuple):
        return [result[0], *result[1].values()]
    return list(result.values()) if isinstance(result, dict) else [result]


def _finite(s: Subject, columns: made_up.Columns, where: str) -> None:
    for name, x in s.tensors(columns).items():
        assert bool(torch.isfinite(x).all()), f"its {name} are not finite{where}"
    if s.kind in LOSSES and any(n in s.needs for n in ("log_probs", "value_preds", "value_logits")):
        for name, x in s.gradient(columns).items():
            assert bool(torch.isfinite(x).all()), f"its gradient in {name} is not finite{where}"


def _edge_cases(s: Subject) -> list[tuple[str, made_up.Columns]]:
    plain = s.batch(2)
    mask = plain["response_mask"]
    rows, steps = mask.shape
    one = torch.zeros_like(mask)
    one[4, 2] = 1
    right = torch.ones(rows, dtype=mask.dtype)
    nearly = torch.where(torch.arange(rows) % 2 == 0, 0.1 + 0.2, 0.3).to(mask.dtype)
    alone = torch.tensor([3])
    return [
        ("groups of one", s.batch(groups=torch.arange(rows).flip(0))),
        ("one group", s.batch(groups=torch.zeros(rows, dtype=torch.long))),
        ("responses that are all correct", made_up.paid(plain, right)),
        ("responses that are all wrong", made_up.paid(plain, 0 * right)),
        ("rewards that are equal up to rounding", made_up.paid(plain, nearly)),
        ("rows without an action", s.batch(mask=mask * (torch.arange(rows) < 2)[:, None])),
        ("a batch without an action", s.batch(mask=torch.zeros_like(mask))),
        ("one action in the batch", s.batch(mask=one)),
        ("full rows", s.batch(mask=torch.ones_like(mask))),
        ("responses of length 1", s.batch(mask=torch.ones(rows, 1, dtype=mask.dtype))),
        ("a single row", s.batch(mask=torch.ones(1, steps, dtype=mask.dtype), groups=alone)),
        ("a single token", s.batch(mask=torch.ones(1, 1, dtype=mask.dtype), groups=alone)),
    ]


ALL = (
    documented, defaults_work, options_are_read, finite_at_the_bounds, finite_everywhere,
    deterministic,
    inputs_unchanged, no_gradient_of_its_own, shape_dtype_device, zero_off_the_mask,
    padding_is_not_read, holes_are_stepped_over, token_texts_belong_to_actions,
    rows_in_any_order, groups_matter, couples_as_declared,
)  # fmt: skip
