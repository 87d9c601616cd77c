"""The arithmetic behind a row of a batch, spelled out and checked against its columns.

An estimator is a function of which the core knows nothing. So how it makes its advantages is found
by trying: is A_t = delta_t + f_t A_next for whatever rewards and values? Is it linear in them, or
in the rewards of the group? A form counts only if made-up numbers and the batch's own both fit it.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import RlzooError
from rlzoo.mdp.batch import Batch
from rlzoo.ops import group_mean, group_std, masked_mean, masked_sum, masked_var, td_lambda
from rlzoo.recipe.plan import Bound, Plan
from rlzoo.tools.trace.trace import Derivation

MOST_INPUTS = 128  # numbers that are moved one by one to see how an advantage depends on them

MOST_TERMS = 12


def plain(x: float) -> str:
    """Six significant digits, as arithmetic is written."""
    text = f"{x:.6g}"
    return "0" if text == "-0" else text


def factor(x: float) -> str:
    """A number after an operator: negative ones in brackets."""
    text = plain(x)
    return f"({text})" if text.startswith("-") else text


def equation(name: str, symbols: str, numbers: str, value: float) -> str:
    """`name = symbols = numbers = value`, without repeating what is already a single number."""
    parts = [name, symbols, numbers, plain(value)]
    if numbers in (plain(value), factor(value)):
        parts.pop(2)
    return " = ".join(parts)


class Row:
    """One row of a batch as numbers, with `after(t)`, the next action."""

    def __init__(self, batch: Mapping[str, Any], row: int):
        self.batch, self.row = batch, row
        self.actions: list[int] = batch["response_mask"][row].nonzero()[:, 0].tolist()
        self._next = dict(zip(self.actions, self.actions[1:], strict=False))

    def after(self, t: int) -> int | None:
        return self._next.get(t)

    def __call__(self, column: str | Tensor, t: int | None = None) -> float:
        x = self.batch[column] if isinstance(column, str) else column
        return x[self.row].item() if t is None else x[self.row, t].item()

    def value_after(self, t: int) -> tuple[str, float]:
        """The symbol and the number of V after action t."""
        ahead = self.after(t)
        if ahead is None:
            return f"V_{t + 1}", self("bootstrap_values")
        return f"V_{ahead}", self("values", ahead)


# ---------------------------------------------------------------- what no estimator changes


def explain_shared(
    plan: Plan, batch: Batch, row: int, *, kl: Tensor | None, kl_coef: float | None
) -> list[Derivation]:
    """KL into the reward, and the ratio."""
    one, config = Row(batch, row), plan.recipe.config.kl
    found = []
    if plan.kl and config.place == "reward" and kl is not None and kl_coef is not None:
        name = plan.kl.name
        lines = []
        spread = config.spread == "token"
        total = masked_sum(kl, batch["response_mask"])
        for t in one.actions:
            if spread or one.after(t) is None:
                symbol = f"KL_{t}" if spread else "(sum of KL_t)"
                gap = one(kl, t) if spread else one(total)
                symbols = f"score_{t} - coef * {symbol}"
                numbers = f"{plain(one('scores', t))} - {plain(kl_coef)} * {factor(gap)}"
                lines.append(equation(f"r_{t}", symbols, numbers, one("rewards", t)))
            else:
                lines.append(f"r_{t} = score_{t} = {plain(one('rewards', t))}")
        found.append(
            Derivation("reward", f"the score, less {name} times coef = {plain(kl_coef)}", lines)
        )
    if "log_probs" in batch and "old_log_probs" in batch:
        lines = []
        for t in one.actions:
            now, old = one("log_probs", t), one("old_log_probs", t)
            ratio = math.exp(now - old)
            symbols = f"exp(log-prob now - log-prob) = exp({plain(now)} - {factor(old)})"
            lines.append(f"ratio_{t} = {symbols} = {plain(ratio)}")
        found.append(Derivation("ratio", "the policy now over the policy at rollout", lines))
    return found


# ---------------------------------------------------------------- what an estimator does


def explain_credit(
    plan: Plan, batch: Batch, row: int, columns: Mapping[str, Tensor]
) -> list[Derivation]:
    """TD errors, advantages, returns and whitening of one estimator. `columns`: what it made."""
    one = Row(batch, row)
    found = []
    gamma = plan.gamma
    if "delta" in columns:
        found.append(_delta(one, columns["delta"], gamma))
    found.append(_advantages(plan.estimator, batch, one, columns, gamma))
    if "returns" in columns:
        found.append(_returns(one, columns))
    if plan.recipe.config.whiten != "none":
        found.append(_whitening(plan, batch, one, columns))
    return found


def _delta(one: Row, delta: Tensor, gamma: float) -> Derivation:
    lines = []
    for t in one.actions:
        ahead, value = one.value_after(t)
        symbols = f"r_{t} + gamma * {ahead} - V_{t}"
        numbers = (
            f"{plain(one('rewards', t))} + {plain(gamma)} * {factor(value)} "
            f"- {factor(one('values', t))}"
        )
        lines.append(equation(f"delta_{t}", symbols, numbers, one(delta, t)))
    last = one.actions[-1] + 1 if one.actions else 0
    after = plain(one("bootstrap_values"))
    formula = "r_t + gamma * V_next - V_t, what the step was worth more than the critic expected"
    return Derivation("delta", f"{formula}; V_{last} = {after} is the bootstrap value", lines)


def _advantages(
    estimator: Bound, batch: Batch, one: Row, columns: Mapping[str, Tensor], gamma: float
) -> Derivation:
    raw = columns["raw_advantages"]
    summary = f"{estimator.component.summary}"
    for attempt in (_recursion, _linear, _standardised):
        lines = attempt(estimator, batch, one, raw, gamma)
        if lines is not None:
            return Derivation("advantage", summary, lines)
    lines = [f"A_{t} = {plain(one(raw, t))}" for t in one.actions]
    return Derivation("advantage", summary, lines)


def _returns(one: Row, columns: Mapping[str, Tensor]) -> Derivation:
    raw, returns = columns["raw_advantages"], columns["returns"]
    tied = all(
        _close(one(returns, t), one(raw, t) + one("values", t), one, returns)
        for t in one.actions
    )  # fmt: skip
    if not tied:
        lines = [f"return_{t} = {plain(one(returns, t))}" for t in one.actions]
        return Derivation("return", "the critic's target, from the estimator itself", lines)
    lines = [
        equation(f"return_{t}", f"A_{t} + V_{t}",
                 f"{plain(one(raw, t))} + {factor(one('values', t))}", one(returns, t))
        for t in one.actions
    ]  # fmt: skip
    return Derivation("return", "A_t + V_t, the critic's target", lines)


def _whitening(plan: Plan, batch: Batch, one: Row, columns: Mapping[str, Tensor]) -> Derivation:
    config = plan.recipe.config
    raw, mask = columns["raw_advantages"], batch["response_mask"]
    if config.whiten == "group":
        mask = mask * (batch["group_ids"] == batch["group_ids"][one.row])[:, None]
    mean = masked_mean(raw, mask).item()
    std = (masked_var(raw, mask, ddof=config.whiten_ddof) + 1e-8).sqrt().item()
    lines = []
    for t in one.actions:
        numbers = f"({plain(one(raw, t))} - {factor(mean)}) / {plain(std)}"
        lines.append(equation(f"whitened_{t}", f"(A_{t} - mean) / std", numbers,
                              one(columns["advantages"], t)))  # fmt: skip
    n = int(mask.bool().sum())
    formula = (
        f"(A_t - mean) / std over {n:,} action tokens: mean {plain(mean)}, std {plain(std)} "
        "(of the variance + 1e-8)"
    )
    return Derivation("whitened advantage", formula, lines)


# ---------------------------------------------------------------- finding the form


def _close(a: float, b: float, one: Row, like: Tensor) -> bool:
    """Equal up to the rounding of the batch's own precision."""
    size = max(1.0, like[one.row].abs().max().item())
    return abs(a - b) <= (1e-9 if like.dtype == torch.float64 else 1e-4) * size


def _try(estimator: Bound, columns: Mapping[str, Any]) -> Tensor | None:
    """Raw advantages of made-up columns; None if the estimator refuses them."""
    try:
        return estimator(columns)["advantages"]
    except RlzooError:
        return None


def _doubles(estimator: Bound, batch: Batch, rows: Tensor) -> dict[str, Any]:
    """The columns of some rows that the estimator needs, in float64."""
    some = batch.select(rows)
    names = {*estimator.needs, "response_mask"}
    return {
        n: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x
        for n, x in some.items()
        if n in names or n in ("rewards", "values", "bootstrap_values")
    }


def _rows_that_matter(estimator: Bound, batch: Batch, row: int) -> tuple[Tensor, int]:
    """The rows on which the estimator's output for `row` may depend, and the row's place there."""
    couples = estimator.component.couples
    if couples == "row":
        rows = torch.tensor([row])
    elif couples == "group":
        ids = batch["group_ids"]
        rows = (ids == ids[row]).nonzero()[:, 0].cpu()
    else:
        rows = torch.arange(batch.rows)
    return rows, int((rows == row).nonzero()[0])


def _recursion(
    estimator: Bound, batch: Batch, one: Row, raw: Tensor, gamma: float
) -> list[str] | None:
    """Lines of A_t = delta_t + f_t A_next, or r_t + f_t A_next, if that is what it computes."""
    if "rewards" not in estimator.needs or not one.actions:
        return None
    rows, place = _rows_that_matter(estimator, batch, one.row)
    columns = _doubles(estimator, batch, rows)
    mask = columns["response_mask"]
    generator = torch.Generator().manual_seed(0)
    critic = "values" in estimator.needs
    probes: list[tuple[list[float], list[float]]] = []
    for _ in range(2):
        drawn = dict(columns)
        for name in ("rewards", "values", "bootstrap_values"):
            if name in drawn:
                x = torch.randn(drawn[name].shape, generator=generator, dtype=torch.float64)
                drawn[name] = torch.where(mask.bool(), x.to(mask), 0) if x.ndim == 2 else x.to(mask)
        made = _try(estimator, drawn)
        if made is None:
            return None
        base = _base(estimator, drawn, gamma)
        probes.append((made[place].tolist(), base[place].tolist()))
    (first, base_1), (second, base_2) = probes
    factors: dict[int, float] = {}
    for t in one.actions:
        ahead = one.after(t)
        if ahead is None:
            fits = abs(first[t] - base_1[t]) + abs(second[t] - base_2[t]) < 1e-9
        else:
            factors[t] = f = (first[t] - base_1[t]) / first[ahead]
            fits = abs(second[t] - base_2[t] - f * second[ahead]) < 1e-9 * max(1.0, abs(f))
        if not fits:
            return None
    label = _name_of_factor(estimator, factors.values(), gamma)
    lines = []
    actual = _base(estimator, batch, gamma)
    for t in reversed(one.actions):
        here, ahead = one(actual, t), one.after(t)
        symbols, numbers = f"{'delta' if critic else 'r'}_{t}", plain(here)
        sum_ = here
        f = round(factors.get(t, 0.0), 12)
        if ahead is not None and f != 0:
            sum_ = here + f * one(raw, ahead)
            name, number = label or (plain(f), plain(f))
            symbols += f" + {name} * A_{ahead}"
            numbers += f" + {number} * {factor(one(raw, ahead))}"
        if not _close(sum_, one(raw, t), one, raw):
            return None
        lines.append(equation(f"A_{t}", symbols, numbers, one(raw, t)))
    return lines


def _base(estimator: Bound, columns: Mapping[str, Any], gamma: float) -> Tensor:
    """delta (B, T), or the rewards where the estimator has no values."""
    if "values" not in estimator.needs:
        return columns["rewards"]
    names = ("rewards", "values", "bootstrap_values", "response_mask")
    return td_lambda(*(columns[n] for n in names), gamma=gamma, lam=0.0)


def _name_of_factor(
    estimator: Bound, factors: Iterable[float], gamma: float
) -> tuple[str, str] | None:
    """What the factor of the recursion is called and made of, if options make it."""
    found = {round(f, 9) for f in factors}
    if len(found) != 1:
        return None
    f = found.pop()
    for name, value in estimator.options.items():
        number = isinstance(value, float) and name != "gamma"
        if number and "gamma" in estimator.options and abs(gamma * value - f) < 1e-9:
            return f"gamma * {name}", f"{plain(gamma)} * {plain(value)}"
    if "gamma" in estimator.options and abs(gamma - f) < 1e-9:
        return "gamma", plain(gamma)
    return None


def _linear(
    estimator: Bound, batch: Batch, one: Row, raw: Tensor, gamma: float
) -> list[str] | None:
    """Lines of A_t as a weighted sum of rewards, values or the rewards of the group."""
    rows, place = _rows_that_matter(estimator, batch, one.row)
    columns = _doubles(estimator, batch, rows)
    moved_names = ("rewards", "values", "bootstrap_values", "sequence_rewards")
    names: list[str] = [n for n in moved_names if n in estimator.needs]
    mask = columns["response_mask"].bool()
    inputs: list[tuple[str, tuple[int, ...], str]] = []
    end = one.actions[-1] + 1 if one.actions else 0
    for name in names:
        letter = {"rewards": "r", "values": "V", "bootstrap_values": f"V_{end}"}.get(name, "R")
        for index in (mask if columns[name].ndim == 2 else mask.any(1)).nonzero().tolist():
            at = f"{index[-1]}" if len(index) == 2 else f"{int(rows[index[0]])}"
            whose = f"[{int(rows[index[0]])}]" if len(index) == 2 and index[0] != place else ""
            text = letter if name == "bootstrap_values" else f"{letter}{whose}_{at}"
            inputs.append((name, tuple(index), text))
    if not inputs or len(inputs) > MOST_INPUTS:
        return None

    def given(x: Mapping[str, Tensor]) -> Tensor | None:
        found = _try(estimator, {**columns, **x})
        return None if found is None else found[place]

    zero = {n: torch.zeros_like(columns[n]) for n in names}
    constant = given(zero)
    if constant is None:
        return None
    weights = []
    for name, index, _ in inputs:
        moved = {**zero, name: zero[name].clone()}
        moved[name][index] = 1.0
        found = given(moved)
        if found is None:
            return None
        weights.append(found - constant)
    w = torch.stack(weights)  # (inputs, T)
    generator = torch.Generator().manual_seed(0)
    drawn = {
        n: torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x) for n, x in zero.items()
    }
    drawn = {n: torch.where(mask, x, 0) if x.ndim == 2 else x for n, x in drawn.items()}
    probe = given(drawn)
    mixed = constant.clone()
    for i, (name, index, _) in enumerate(inputs):
        mixed += w[i] * drawn[name][index]
    if probe is None or not torch.allclose(probe, mixed, rtol=0, atol=1e-7):
        return None
    lines: list[str] = []
    mine = {"R_" + str(one.row)}
    for t in one.actions:
        terms = [(w[i, t].item(), text, columns[name][index].item())
                 for i, (name, index, text) in enumerate(inputs)]  # fmt: skip
        terms = [term for term in terms if abs(term[0]) > 1e-12]
        terms.sort(key=lambda term: term[1] not in mine)
        if len(terms) > MOST_TERMS:
            return None
        total = constant[t].item() + sum(c * x for c, _, x in terms)
        if not _close(total, one(raw, t), one, raw):
            return None
        symbols, numbers = _sum_of(terms, constant[t].item())
        lines.append(equation(f"A_{t}", symbols, numbers, one(raw, t)))
    told = ["R_i: the sum of the rewards of response i"] if "sequence_rewards" in names else []
    return [*told, *_same_everywhere(lines)]


def _sum_of(terms: list[tuple[float, str, float]], constant: float) -> tuple[str, str]:
    """Terms (weight, symbol, number) as symbols and as numbers."""
    symbols = numbers = ""
    for weight, symbol, number in terms:
        sign = "-" if weight < 0 else "+"
        scale = "" if abs(abs(weight) - 1) < 1e-12 else f"{plain(abs(weight))} * "
        lead = (f" {sign} " if symbols else ("-" if sign == "-" else ""))  # fmt: skip
        symbols += f"{lead}{scale}{symbol}"
        numbers += f"{lead}{scale}{factor(number) if lead or scale else plain(number)}"
    if abs(constant) > 1e-12 or not terms:
        lead = (" - " if constant < 0 else " + ") if terms else ""
        text = plain(abs(constant) if terms else constant)
        symbols, numbers = symbols + lead + text, numbers + lead + text
    return symbols, numbers


def _same_everywhere(lines: list[str]) -> list[str]:
    """One line for all tokens where every token has the same."""
    tails = {line.split(" = ", 1)[1] for line in lines}
    if len(lines) < 2 or len(tails) > 1:
        return lines
    return [f"A_t = {tails.pop()}, the same at every token"]


def _standardised(
    estimator: Bound, batch: Batch, one: Row, raw: Tensor, gamma: float
) -> list[str] | None:
    """Lines of A = (R - mean_g R) / s, s the same for the whole group."""
    if "group_ids" not in estimator.needs or not one.actions:
        return None
    for name in ("sequence_rewards", "sequence_scores"):
        if name not in estimator.needs:
            continue
        ids, x = batch["group_ids"], batch[name].double()
        group = ids == ids[one.row]
        mean, std = group_mean(x, ids)[one.row].item(), group_std(x, ids)[one.row].item()
        here = x[one.row].item()
        a = [one(raw, t) for t in one.actions]
        rewards = ", ".join(plain(v) for v in x[group].tolist())
        facts = f"rewards of the group: {rewards}; mean {plain(mean)}, std {plain(std)}"
        if max(a) - min(a) > 1e-9 or a[0] == 0 or here == mean:
            return [facts, *(f"A_{t} = {plain(v)}" for t, v in zip(one.actions, a, strict=True))]
        scale = (here - mean) / a[0]
        first = raw[group].double() * batch["response_mask"][group]
        top = first.abs().amax(1) * first.sum(1).sign()
        if not torch.allclose(top * scale, x[group] - mean, atol=1e-4):
            return [facts, f"A_t = {plain(a[0])} at every token"]
        named = "std_g" if abs(scale - std) <= 1e-3 * std else plain(scale)
        symbols = f"(R_{one.row} - mean_g) / {named}"
        numbers = f"({plain(here)} - {factor(mean)}) / {plain(scale)}"
        line = equation("A_t", symbols, numbers, a[0])
        return [facts, f"{line}, the same at every token"]
    return None
