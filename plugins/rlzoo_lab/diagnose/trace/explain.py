"""The arithmetic of a row of a batch, written out and checked against its columns.

The core has no description of an estimator's arithmetic. This module finds it by experiment: is A_t
= delta_t + f_t A_next for any rewards and values? Is A_t linear in them, or in the rewards of the
group? A form is accepted only if it fits both random numbers and the batch's own.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import RlzooError
from rlzoo.mdp.batch import Batch, take
from rlzoo.ops import group_mean, group_std, masked_mean, masked_sum, masked_var, td_lambda
from rlzoo.plugin.border import Bound
from rlzoo.recipe.plan import Plan
from rlzoo_lab.diagnose.trace.trace import Derivation


def plain(x: float) -> str:
    """A number with six significant digits."""
    digits = f"{x:.6g}"
    return "0" if digits == "-0" else digits


def factor(x: float) -> str:
    """A number after an operator, in brackets if negative."""
    digits = plain(x)
    return f"({digits})" if digits.startswith("-") else digits


def equation(name: str, form: str, value: float, **terms: tuple[str, float | str]) -> str:
    """`name = symbols = numbers = value`: the formula with symbols, then with numbers."""

    def written(key: str, x: float | str) -> str:
        if isinstance(x, str):
            return x
        leads = f"({{{key}}}" in f"({form}"
        return plain(x) if leads else factor(x)

    symbols = form.format(**{key: symbol for key, (symbol, _) in terms.items()})
    numbers = form.format(**{key: written(key, x) for key, (_, x) in terms.items()})
    return _line(name, symbols, numbers, value)


def _line(name: str, symbols: str, numbers: str, value: float) -> str:
    """Without repeating what is already a single number."""
    single = numbers in (plain(value), factor(value))
    middle = [symbols, *([] if single else [numbers])]
    return " = ".join([name, *(x for x in middle if x != plain(value)), plain(value)])


class BatchRow:
    """One row of a batch as numbers; `after(t)` is the next action."""

    def __init__(self, batch: Mapping[str, Any], row: int):
        self.batch, self.row = batch, row
        self.actions: list[int] = batch["response_mask"][row].nonzero()[:, 0].tolist()
        self._next = dict(zip(self.actions, self.actions[1:], strict=False))

    def after(self, t: int) -> int | None:
        return self._next.get(t)

    def __call__(self, column: str | Tensor, t: int | None = None) -> float:
        x = self.batch[column] if isinstance(column, str) else column
        return x[self.row].item() if t is None else x[self.row, t].item()

    @property
    def end(self) -> int:
        """The position after the last action."""
        return self.actions[-1] + 1 if self.actions else 0

    def close(self, a: float, b: float, like: Tensor) -> bool:
        """Whether two numbers are equal up to rounding in the batch's precision."""
        size = max(1.0, like[self.row].abs().max().item())
        return abs(a - b) <= (1e-9 if like.dtype == torch.float64 else 1e-4) * size


def explain_shared(
    plan: Plan,
    batch: Batch,
    row: int,
    *,
    kl: Tensor | None,
    kl_coef: float | None,
    penalty: str,
) -> list[Derivation]:
    """The parts that do not depend on the estimator: KL in the reward, and the ratio."""
    one, derivations = BatchRow(batch, row), []
    config = plan.recipe.config.kl
    if plan.kl and config.place == "reward" and kl is not None and kl_coef is not None:
        formula = f"the score minus {penalty} times coef = {plain(kl_coef)}"
        lines = _less_kl(one, kl, kl_coef, config.spread)
        derivations.append(Derivation("reward", formula, lines))
    if "log_probs" in batch and "old_log_probs" in batch:
        lines = []
        for t in one.actions:
            now, old = one("log_probs", t), one("old_log_probs", t)
            lines.append(equation(f"ratio_{t}", "exp({now} - {old})", math.exp(now - old),
                                  now=("log-prob now", now), old=("log-prob", old)))  # fmt: skip
        formula = "probability under the current policy divided by that at rollout"
        derivations.append(Derivation("ratio", formula, lines))
    return derivations


def explain_policy_loss(plan: Plan, batch: Batch, row: int, loss: Tensor) -> Derivation:
    """Minus the ratio times the advantage, or what the loss uses instead."""
    one, lines = BatchRow(batch, row), []
    for t in one.actions:
        ratio = math.exp(one("log_probs", t) - one("old_log_probs", t))
        advantage, value = one("advantages", t), one(loss, t)
        if one.close(value, -ratio * advantage, loss):
            terms = {"r": (f"ratio_{t}", ratio), "a": (f"A_{t}", advantage)}
            lines.append(equation(f"loss_{t}", "-{r} * {a}", value, **terms))
        else:
            product = plain(-ratio * advantage)
            lines.append(f"loss_{t} = {plain(value)}, instead of -ratio_{t} * A_{t} = {product}")
    whole = (plan.aggregation(batch) * loss).sum().item()
    lines.append(f"total, aggregated by {plan.aggregation.name}: {plain(whole)}")
    return Derivation("policy loss", "-ratio_t * A_t, unless the loss limits it", lines)


def _less_kl(one: BatchRow, kl: Tensor, coef: float, spread: str) -> list[str]:
    total = masked_sum(kl, one.batch["response_mask"])
    lines = []
    for t in one.actions:
        score = (f"score_{t}", one("scores", t))
        if spread == "token":
            gap = (f"KL_{t}", one(kl, t))
        elif one.after(t) is None:
            gap = ("(sum of KL_t)", one(total))
        else:
            lines.append(f"r_{t} = score_{t} = {plain(one('scores', t))}")
            continue
        lines.append(equation(f"r_{t}", "{score} - {coef} * {gap}", one("rewards", t),
                              score=score, coef=("coef", coef), gap=gap))  # fmt: skip
    return lines


def explain_credit(
    plan: Plan, batch: Batch, row: int, columns: Mapping[str, Tensor]
) -> list[Derivation]:
    """TD errors, advantages, returns and whitening of one estimator. `columns`: its output."""
    one, raw, gamma = BatchRow(batch, row), columns["raw_advantages"], plan.estimator.gamma
    derivations = [_delta(one, columns["delta"], gamma)] if "delta" in columns else []
    derivations.append(_advantages(plan.estimator, batch, one, raw, gamma))
    if "returns" in columns:
        derivations.append(_returns(one, raw, columns["returns"]))
    if plan.recipe.config.whiten != "none":
        derivations.append(_whitening(plan, batch, one, columns))
    return derivations


def _delta(one: BatchRow, delta: Tensor, gamma: float) -> Derivation:
    lines = []
    after = (f"V_{one.end}", one("bootstrap_values"))
    for t in one.actions:
        ahead = one.after(t)
        lines.append(equation(
            f"delta_{t}", "{r} + {gamma} * {ahead} - {v}", one(delta, t),
            r=(f"r_{t}", one("rewards", t)), gamma=("gamma", gamma),
            ahead=after if ahead is None else (f"V_{ahead}", one("values", ahead)),
            v=(f"V_{t}", one("values", t)),
        ))  # fmt: skip
    formula = "r_t + gamma * V_next - V_t, how much better the step was than the critic expected"
    end = f"V_{one.end} = {plain(after[1])} is the bootstrap value"
    return Derivation("delta", f"{formula}; {end}", lines)


def _advantages(
    estimator: Bound, batch: Batch, one: BatchRow, raw: Tensor, gamma: float
) -> Derivation:
    probe = _Probe(estimator, batch, one.row)
    lines = None
    for attempt in (_recursion, _linear):
        try:
            lines = lines or attempt(probe, one, raw, gamma)
        except RlzooError:
            continue  # the estimator refuses random numbers
    lines = lines or _standardised(estimator, one, raw)
    lines = lines or [f"A_{t} = {plain(one(raw, t))}" for t in one.actions]
    return Derivation("advantage", estimator.component.summary, lines)


def _returns(one: BatchRow, raw: Tensor, returns: Tensor) -> Derivation:
    sums = {t: one(raw, t) + one("values", t) for t in one.actions}
    if not all(one.close(one(returns, t), sums[t], returns) for t in one.actions):
        lines = [f"return_{t} = {plain(one(returns, t))}" for t in one.actions]
        return Derivation("return", "the critic's target, as computed by the estimator", lines)
    lines = [
        equation(f"return_{t}", "{a} + {v}", one(returns, t),
                 a=(f"A_{t}", one(raw, t)), v=(f"V_{t}", one("values", t)))
        for t in one.actions
    ]  # fmt: skip
    return Derivation("return", "A_t + V_t, the critic's target", lines)


def _whitening(
    plan: Plan, batch: Batch, one: BatchRow, columns: Mapping[str, Tensor]
) -> Derivation:
    config = plan.recipe.config
    raw, mask = columns["raw_advantages"], batch["response_mask"]
    if config.whiten == "group":
        mask = mask * (batch["group_ids"] == batch["group_ids"][one.row])[:, None]
    mean = masked_mean(raw, mask).item()
    std = (masked_var(raw, mask, ddof=config.whiten_ddof) + 1e-8).sqrt().item()
    lines = [
        equation(f"whitened_{t}", "({a} - {mean}) / {std}", one(columns["advantages"], t),
                 a=(f"A_{t}", one(raw, t)), mean=("mean", mean), std=("std", std))
        for t in one.actions
    ]  # fmt: skip
    formula = (
        f"(A_t - mean) / std over {int(mask.bool().sum()):,} action tokens: mean {plain(mean)}, "
        f"std {plain(std)} (the square root of the variance + 1e-8)"
    )
    return Derivation("whitened advantage", formula, lines)


class _Probe:
    """An estimator called with random float64 numbers in the rows on which its output for one row
    may depend; raises RlzooError if it refuses them."""

    def __init__(self, estimator: Bound, batch: Batch, row: int):
        self.estimator = estimator
        rows = torch.arange(batch.rows)
        if estimator.component.couples == "row":
            rows = rows[row : row + 1]
        elif estimator.component.couples == "group":
            rows = rows[(batch["group_ids"] == batch["group_ids"][row]).cpu()]
        self.rows: list[int] = rows.tolist()
        self.place = self.rows.index(row)
        names = {*estimator.needs, "response_mask", "rewards", "values", "bootstrap_values"}
        self.columns: dict[str, Any] = {
            n: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x
            for n, x in take(batch, rows).items()
            if n in names
        }
        self.mask = self.columns["response_mask"].bool()

    def __call__(self, moved: Mapping[str, Tensor]) -> Tensor:
        """Raw advantages (T,) of the row, `moved` in the place of its columns."""
        return self.estimator({**self.columns, **moved})["advantages"][self.place]

    def draw(self, names: Iterable[str], generator: torch.Generator) -> dict[str, Tensor]:
        """Standard normal numbers in the shape of some columns, 0 outside the mask."""
        drawn = {}
        for name in names:
            x = torch.randn(self.columns[name].shape, generator=generator, dtype=torch.float64)
            x = x.to(self.mask.device)
            drawn[name] = torch.where(self.mask, x, 0) if x.ndim == 2 else x
        return drawn

    def inputs(self, end: int) -> list[tuple[str, tuple[int, ...], str]]:
        """(column, index, symbol) of each number in which an advantage may be linear."""
        letters = {"rewards": "r", "values": "V", "bootstrap_values": "V", "sequence_rewards": "R"}
        inputs: list[tuple[str, tuple[int, ...], str]] = []
        for name, letter in letters.items():
            if name not in self.estimator.needs:
                continue
            there = self.mask if self.columns[name].ndim == 2 else self.mask.any(1)
            for row, *t in there.nonzero().tolist():
                whose = f"[{self.rows[row]}]" if t and row != self.place else ""
                at = end if name == "bootstrap_values" else t[0] if t else self.rows[row]
                inputs.append((name, (row, *t), f"{letter}{whose}_{at}"))
        return inputs


def _recursion(probe: _Probe, one: BatchRow, raw: Tensor, gamma: float) -> list[str] | None:
    """Lines of A_t = delta_t + f_t A_next, or r_t + f_t A_next, if that is what it computes."""
    estimator, actions = probe.estimator, one.actions
    if "rewards" not in estimator.needs or not actions:
        return None
    names = [n for n in ("rewards", "values", "bootstrap_values") if n in probe.columns]
    generator = torch.Generator().manual_seed(0)
    made, over = [], []  # of two draws: A, and A less what the step itself is worth
    for _ in range(2):
        drawn = probe.draw(names, generator)
        base = _base(estimator, {**probe.columns, **drawn}, gamma)[probe.place]
        made.append(probe(drawn)[actions])
        over.append(made[-1] - base[actions])
    factors = over[0][:-1] / made[0][1:]
    errors = (over[1][:-1] - factors * made[1][1:]).abs() / factors.abs().clamp(min=1)
    last = over[0][-1:].abs() + over[1][-1:].abs()
    if not bool((torch.cat([errors, last]) < 1e-9).all()):
        return None
    label = _name_of_factor(estimator, factors.tolist(), gamma)
    letter = "delta" if "values" in estimator.needs else "r"
    actual, lines = _base(estimator, one.batch, gamma), []
    for t, f in zip(reversed(actions), [0.0, *reversed(factors.tolist())], strict=True):
        form, total = "{here}", one(actual, t)
        terms: dict[str, tuple[str, float | str]] = {"here": (f"{letter}_{t}", total)}
        ahead, f = one.after(t), round(f, 12)
        if ahead is not None and f != 0:
            form, total = "{here} + {f} * {ahead}", total + f * one(raw, ahead)
            terms["f"] = label or (plain(f), plain(f))
            terms["ahead"] = (f"A_{ahead}", one(raw, ahead))
        if not one.close(total, one(raw, t), raw):
            return None
        lines.append(equation(f"A_{t}", form, one(raw, t), **terms))
    return lines


def _base(estimator: Bound, columns: Mapping[str, Any], gamma: float) -> Tensor:
    """delta (B, T), or the rewards where the estimator has no values."""
    return td_errors(columns, gamma) if "values" in estimator.needs else columns["rewards"]


def td_errors(columns: Mapping[str, Any], gamma: float) -> Tensor:
    """delta_t = r_t + gamma V_next - V_t (B, T)."""
    names = ("rewards", "values", "bootstrap_values", "response_mask")
    return td_lambda(*(columns[n] for n in names), gamma=gamma, lam=0.0)


def _name_of_factor(estimator: Bound, factors: list[float], gamma: float) -> tuple[str, str] | None:
    """Name and factors of the recursion's factor, if options determine it."""
    if "gamma" not in estimator.options or len({round(f, 9) for f in factors}) != 1:
        return None
    for name, value in estimator.options.items():
        number = isinstance(value, float) and name != "gamma"
        if number and abs(gamma * value - factors[0]) < 1e-9:
            return f"gamma * {name}", f"{plain(gamma)} * {plain(value)}"
    return ("gamma", plain(gamma)) if abs(gamma - factors[0]) < 1e-9 else None


MOST_INPUTS = 128  # numbers that are moved one by one to see how an advantage depends on them

MOST_TERMS = 12


def _linear(probe: _Probe, one: BatchRow, raw: Tensor, gamma: float) -> list[str] | None:
    """Lines of A_t as a weighted sum of rewards, values or the rewards of the group."""
    inputs = probe.inputs(one.end)
    if not inputs or len(inputs) > MOST_INPUTS:
        return None
    names = dict.fromkeys(name for name, _, _ in inputs)

    def numbers_of(columns: Mapping[str, Tensor]) -> Tensor:
        return torch.stack([columns[name][index] for name, index, _ in inputs])  # (inputs,)

    zeros = {n: torch.zeros_like(probe.columns[n]) for n in names}
    constant = probe(zeros)  # (T,)
    weights = []
    for name, index, _ in inputs:
        unit = zeros[name].clone()
        unit[index] = 1.0
        weights.append(probe({**zeros, name: unit}) - constant)
    w = torch.stack(weights)  # (inputs, T)
    drawn = probe.draw(names, torch.Generator().manual_seed(0))
    if not torch.allclose(probe(drawn), constant + numbers_of(drawn) @ w, rtol=0, atol=1e-7):
        return None
    lines, x = [], numbers_of(probe.columns).tolist()
    for t in one.actions:
        terms = [
            (weight, symbol, number)
            for weight, (_, _, symbol), number in zip(w[:, t].tolist(), inputs, x, strict=True)
            if abs(weight) > 1e-12
        ]
        terms.sort(key=lambda term: term[1] != f"R_{one.row}")  # the row's own comes first
        total = constant[t].item() + sum(weight * number for weight, _, number in terms)
        if len(terms) > MOST_TERMS or not one.close(total, one(raw, t), raw):
            return None
        lines.append(_line(f"A_{t}", *_sum_of(terms, constant[t].item()), one(raw, t)))
    told = ["R_i: the sum of the rewards of response i"] if "sequence_rewards" in names else []
    grouped = "group_ids" in probe.estimator.needs and len(probe.rows) == 1
    if grouped and one.actions and not raw[one.row].any():
        told.append("a group of one has nothing to compare the response with, so it gets 0")
    tails = {line.split(" = ", 1)[1] for line in lines}
    if len(lines) > 1 and len(tails) == 1:  # every token has the same
        lines = [f"A_t = {tails.pop()}, the same at every token"]
    return [*told, *lines]


def _sum_of(terms: list[tuple[float, str, float]], constant: float) -> tuple[str, str]:
    """Terms (weight, symbol, number) as symbols and as numbers."""
    symbols = numbers = ""
    for weight, symbol, number in terms:
        sign = "-" if weight < 0 else "+"
        lead = f" {sign} " if symbols else sign.removeprefix("+")
        scale = "" if abs(abs(weight) - 1) < 1e-12 else f"{plain(abs(weight))} * "
        symbols += f"{lead}{scale}{symbol}"
        numbers += f"{lead}{scale}{factor(number) if lead or scale else plain(number)}"
    if not terms:
        return plain(constant), plain(constant)
    tail = f" {'-' if constant < 0 else '+'} {plain(abs(constant))}" * (abs(constant) > 1e-12)
    return symbols + tail, numbers + tail


def _standardised(estimator: Bound, one: BatchRow, raw: Tensor) -> list[str] | None:
    """Lines of A = (R - mean_g R) / s, s the same for the whole group."""
    read = [n for n in ("sequence_rewards", "sequence_scores") if n in estimator.needs]
    if "group_ids" not in estimator.needs or not read or not one.actions:
        return None
    ids, x = one.batch["group_ids"], one.batch[read[0]].double()
    group, here = ids == ids[one.row], one(x)
    mean, std = one(group_mean(x, ids)), one(group_std(x, ids))
    rewards = ", ".join(plain(v) for v in x[group].tolist())
    facts = f"rewards of the group: {rewards}; mean {plain(mean)}, std {plain(std)}"
    a = [one(raw, t) for t in one.actions]
    if max(a) - min(a) > 1e-9 or a[0] == 0 or here == mean:
        return [facts, *(f"A_{t} = {plain(v)}" for t, v in zip(one.actions, a, strict=True))]
    scale = (here - mean) / a[0]
    rows = raw[group].double() * one.batch["response_mask"][group]
    each = rows.abs().amax(1) * rows.sum(1).sign()  # the one advantage of each row
    if not torch.allclose(each * scale, x[group] - mean, atol=1e-4):
        return [facts, f"A_t = {plain(a[0])} at every token"]
    named = "std_g" if abs(scale - std) <= 1e-3 * std else plain(scale)
    line = equation("A_t", "({here} - {mean}) / {scale}", a[0], here=(f"R_{one.row}", here),
                    mean=("mean_g", mean), scale=(named, scale))  # fmt: skip
    return [facts, f"{line}, the same at every token"]
