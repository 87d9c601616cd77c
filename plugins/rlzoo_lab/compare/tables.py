"""A comparison as blocks: its tables, verdict and notes. Each column is declared once."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from rlzoo_lab import stats
from rlzoo_lab.compare.comparison import Comparison, Pair
from rlzoo_lab.compare.curves import curves
from rlzoo_lab.compare.factors import TwoWay, main_effects
from rlzoo_lab.compare.measures import (
    Reach,
    area,
    curve,
    greedy,
    kl_spent,
    mean_of,
    reach,
    tokens_spent,
)
from rlzoo_lab.compare.verdict import difference, method, sides, verdict
from rlzoo_lab.data.comparable import ComparedRow, as_typed, is_name
from rlzoo_lab.view.blocks import Block, Column, Note, Table, Text, column
from rlzoo_lab.view.numbers import (
    NONE,
    bracket,
    chance,
    signed,
    small,
    sparkline,
    thousands,
    three_decimals,
)

BARS = 16  # characters of a training curve


def blocks(c: Comparison, tables: Sequence[TwoWay] = (), details: bool = False) -> list[Block]:
    """Everything that `rlzoo compare` prints."""
    said: list[Block] = [Text(sentence, "strong") for sentence in verdict(c)]
    said += [Text(method(c), "faint")] if c.pairs else []
    return [Text(c.title, "title"), *numbers(c, tables, details), *said, *map(Note, c.notes)]


def page_blocks(c: Comparison, tables: Sequence[TwoWay] = ()) -> list[Block]:
    """Those of the page, which also has the curves and the settings, and the verdict first."""
    warning = c.title.partition("; NOT ON ONE SCALE: ")[2]
    said: list[Block] = [Text(f"Scales differ: {warning}", "warn")] if warning else []
    said += [Text(sentence, "strong") for sentence in verdict(c)]
    shared = settings(c)
    told = Table([Column("key", list(shared)), Column("value", list(shared.values()), left=True)],
                 "Settings", folded=True)  # fmt: skip
    return [Text(_size(c), "faint"), *said, *numbers(c, tables, details=True),
            Text(method(c), "faint"), *curves(c), *map(Note, c.notes), told]  # fmt: skip


def numbers(c: Comparison, tables: Sequence[TwoWay], details: bool) -> list[Table]:
    """The tables: results, curves and cost, those by a key, and every pair."""
    best = c.rows.index(c.best) if len(c.rows) > 1 else None
    names = Column("row", [row.label for row in c.rows])
    made = [Table([names, *outcome(c)], best=best, failed=c.all_failed(), linked=True)]
    if c.has_curves:
        course = [names, *cost(c)]
        made.append(Table(course, "learning curves and cost", best=best, linked=True))
    made += [by_key(c, t) for t in tables]
    if effects := main_effects(c):
        made.append(Table([
            Column("key", [e.key for e in effects]),
            Column("difference", [f"{e.a} minus {e.b}" for e in effects], left=True),
            column("mean over the rest", (e.contrast for e in effects), difference),
            column("p", (e.contrast.p for e in effects), small),
            column("rows", (e.rows for e in effects)),
            column("seeds", (e.contrast.n for e in effects)),
        ], "main effects"))  # fmt: skip
    if details and c.pairs:
        made.append(Table(pairs(c), "every pair", folded=True))
    return made


def outcome(c: Comparison) -> list[Column]:
    """The results, and how they differ from the reference."""

    def paired(p: Pair | None, form: Callable[[Any], Any]) -> Any:
        return form(p) if p and p.contrast.n > 1 else None  # one seed shows nothing about chance

    def lead(row: ComparedRow, p: Pair | None) -> str:
        if p is None:
            return ("reference" if row is c.reference else NONE) + "  "
        mark = ("▲" if p.contrast.mean > 0 else "▼") if p.claimed else "?" if p.shown else " "
        return f"{difference(p.contrast)} {mark}"

    columns = [
        column("seeds", (len(row.seeds) for row in c.rows), short="n"),
        column("final", c.rows, final),
    ]
    decoded = [mean_of(row, greedy) for row in c.rows]
    if None not in decoded:
        columns.append(column("greedy", decoded, "{:.3f}".format))
    if len(c.rows) > 1:
        against = [c.pair(row, c.reference) for row in c.rows]
        columns += [
            column("minus reference", map(lead, c.rows, against)),
            column("P(better)", (paired(p, lambda p: p.improvement) for p in against), chance,
                   short="P(>)"),
            column("p", (paired(p, lambda p: p.contrast.p) for p in against), small),
        ]  # fmt: skip
    return columns


def cost(c: Comparison) -> list[Column]:
    """The curves and the cost."""
    columns = [column("area", map(area, c.rows), three_decimals)]
    if (goal := c.threshold) is not None:
        reached = [reach(row, goal) for row in c.rows]
        columns += [column(f"steps to {goal:g}", reached, _steps_to),
                    column("tokens to", reached, _tokens_to)]  # fmt: skip
    spent = [kl_spent(row) for row in c.rows]
    if any(kl is not None for kl in spent):
        columns.append(column("KL", spent, "{:.2f}".format))
    lengths = (mean_of(row, lambda run: run.length) for row in c.rows)
    seconds = (mean_of(row, lambda run: run.summary.get("seconds")) for row in c.rows)
    columns += [
        column("length", lengths, "{:.1f}".format),
        column("tokens", map(tokens_spent, c.rows), thousands),
        column("s", seconds, "{:.0f}".format),
    ]
    rewards = [curve(row) for row in c.rows]
    heights = [v for values in rewards for v in values]
    if heights:
        scale = min(heights), max(heights)
        bars = [sparkline(values, BARS, scale) for values in rewards]
        columns.append(Column("reward", bars, left=True))
    return columns


def final(row: ComparedRow) -> str:
    """The mean over seeds with its interval; for a bimodal row, each mode and its size."""
    if row.split:
        low, high = sides(row)
        return " | ".join(f"{three_decimals(fmean(x))} x{len(x)}" for x in (high, low))
    interval = stats.t_interval(row.scores)
    middle = three_decimals(fmean(row.scores))
    return f"{middle} {bracket(interval)}" if interval else middle


def _steps_to(r: Reach) -> str:
    share = "" if r.reached == r.of else f" ({r.reached}/{r.of} reached)"
    return (f">{r.last_step:g}" if r.steps is None else f"{r.steps:g}") + share


def _tokens_to(r: Reach) -> str:
    return f">{thousands(r.last_tokens)}" if r.tokens is None else thousands(r.tokens)


def pairs(c: Comparison) -> list[Column]:
    """For every pair: the test over seeds, the sign-flip test, and these runs over prompts."""
    many = [p.contrast.n > 1 for p in c.pairs]

    def tested(values: Sequence[float]) -> list[float | None]:
        return [v if m else None for v, m in zip(values, many, strict=True)]

    def runs(found: tuple[float, stats.Interval | None]) -> str:
        return f"{signed(found[0])} {bracket(found[1]) if found[1] else NONE}"

    def widest(signs: stats.Paired) -> str:
        return f"{bracket(signs.widest)} {100 * signs.level:.0f} %" if signs.widest else NONE

    return [
        Column("row", [p.a.label for p in c.pairs]),
        Column("minus", [p.b.label for p in c.pairs], left=True),
        column("method (seeds)", (p.contrast for p in c.pairs), difference),
        column("p", tested([p.contrast.p for p in c.pairs]), small),
        column("these runs (prompts)", (p.runs for p in c.pairs), runs),
        column("shows", map(c.shows, c.pairs), lambda ends: " to ".join(map(three_decimals, ends))),
        column("sampling", (p.sampling for p in c.pairs), "{:.0%}".format),
        column("signs p", tested([p.p_signs for p in c.pairs]), small),
        column("all seeds within", (p.signs for p in c.pairs), widest),
    ]


def by_key(c: Comparison, t: TwoWay) -> Table:
    """The final scores by the values of one key."""
    columns = [
        column(name, (t.cells.get((row, name)) for row in t.rows), final) for name in t.columns
    ]
    return Table([Column("", t.rows), *columns], f"final {c.metric} by {t.key}")


def _size(c: Comparison) -> str:
    runs = sum(len(r.runs) for r in c.rows)
    seeds = {seed for r in c.rows for seed in r.runs}
    return (
        f"{runs} run{'s' * (runs != 1)}: {len(c.rows)} row{'s' * (len(c.rows) != 1)}, "
        f"{len(seeds)} seed{'s' * (len(seeds) != 1)}. Bold and green: the best row. "
        f"Reference: {c.reference.label}."
    )


def settings(c: Comparison) -> dict[str, str]:
    """The settings that all rows share, enough to repeat the runs."""
    configs = [r.recipe for x in c.rows for r in x.runs.values()]
    return {
        k: as_typed(v)
        for k, v in sorted(configs[0].items())
        if v not in (None, "") and all(x.get(k) == v for x in configs)
        and not k.startswith(("run.", "checkpoint.")) and not (is_name(k) and "." not in k)
    }  # fmt: skip
