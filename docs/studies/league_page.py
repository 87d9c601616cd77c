"""The league's runs as tables and curves: what docs/studies/league.py writes into docs/league.md.

`python docs/studies/league.py` writes it again when no run is missing.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import numpy as np

from common import put, table
from rlzoo_lab.stats import block, t_interval
from rlzoo_lab.view.figure import add_axes, ink, line, new_figure, write_figure

DOCS = Path(__file__).resolve().parents[1]
PAGE, CURVES = DOCS / "league.md", DOCS / "league.svg"
DRAWS = 2_000
Array = np.ndarray


@dataclass
class Played:
    """One run: its score on held-out prompts before and after, sampled and greedy; `after` is at
    the token budget. curve: (tokens, mean score of a step's batch)."""

    before: float
    after: float
    greedy_before: float
    greedy_after: float
    tokens: int
    steps: int
    skipped: int
    curve: list[tuple[int, float]] = field(repr=False)
    noise: float = 0.0  # standard error of a point of the smoothed curve


def read(path: Path, budget: int) -> Played:
    summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    lines = [json.loads(text) for text in (path / "metrics.jsonl").read_text().splitlines()]
    metric = f"eval/{summary['eval_metric']}"
    steps = [m for m in lines if "perf/tokens" in m]
    spent = {0: 0, **{m["step"]: m["perf/tokens"] for m in steps}}
    points = [(spent[m["step"]], m[metric]) for m in lines if metric in m]
    after = points[-1][1]
    if points[-1][0] > 1.1 * budget:  # a step of this recipe is a large part of the budget
        after = float(np.interp(budget, *zip(*points, strict=True)))
    score = "score/verifier" if "score/verifier" in steps[0] else "reward/mean"
    return Played(
        points[0][1], after, summary["eval_greedy_before"], summary["eval_greedy_after"],
        spent[steps[-1]["step"]], summary["steps"], summary["skipped_updates"],
        [(m["perf/tokens"], m[score]) for m in steps],
        fmean(m["score/std"] / math.sqrt(3 * responses(m)) for m in steps),
    )  # fmt: skip


def responses(step: Mapping[str, float]) -> float:
    """Responses of a step."""
    return step["tokens/gen"] / step["response_length/mean"]


League = Mapping[str, Mapping[str, list[Played]]]  # task -> row -> a run for each seed


def finals(runs: Mapping[str, list[Played]]) -> Array:
    """(seeds, rows) of the rows of a task."""
    return np.array([[run.after for run in seeds] for seeds in runs.values()]).T


# ---------------------------------------------------------------- ranks


def ranks(scores: Array) -> Array:
    """(rows,) of mean scores (seeds, rows): 1 is best, ties share."""
    means = scores.mean(0)
    above = (means[:, None] < means[None]).sum(1)
    same = (means[:, None] == means[None]).sum(1)
    return 1 + above + (same - 1) / 2


def mean_ranks(league: League, rows: list[str]) -> tuple[Array, Array, Array]:
    """The mean rank over tasks of rows that play on all of them, (rows,), and its 95 % bootstrap
    intervals, (2, rows): over seeds (the same for all rows, which are paired), and over seeds and
    tasks."""
    tables = [finals({row: runs[row] for row in rows}) for runs in league.values()]
    rng = np.random.default_rng(0)

    def drawn(tasks: Array) -> Array:
        found = []
        for task in tasks:
            table = tables[task]
            found.append(ranks(table[rng.integers(len(table), size=len(table))]))
        return np.mean(found, 0)

    every = np.arange(len(tables))
    seeds = np.array([drawn(every) for _ in range(DRAWS)])
    both = np.array([drawn(rng.integers(len(tables), size=len(tables))) for _ in range(DRAWS)])
    whole = np.mean([ranks(table) for table in tables], 0)
    return whole, np.percentile(seeds, [2.5, 97.5], 0), np.percentile(both, [2.5, 97.5], 0)


def not_told_apart(runs: Mapping[str, list[Played]]) -> set[str]:
    """The rows whose difference to the best mean is not shown: a block model of seed and row,
    Tukey's correction for all pairs (`rlzoo_lab.stats.block`)."""
    names, table = list(runs), finals(runs)
    best = int(table.mean(0).argmax())
    model = block(table)
    like = {names[best]}
    for i, name in enumerate(names):
        if i != best:
            found = model.contrasts[min(i, best), max(i, best)]
            if found.interval is None or found.interval.low <= 0 <= found.interval.high:
                like.add(name)
    return like


# ---------------------------------------------------------------- failures


def failure(run: Played, gap: float) -> str:
    """What became of a run; gap: what the task's best row gained on average."""
    if run.skipped or run.after < run.before - 0.1 * gap:
        return "diverged"
    _, scores = smooth(run)
    if max(scores) - scores[-1] > max(0.3 * gap, 4 * run.noise):
        return "collapsed"
    return "never learned" if run.after - run.before < 0.1 * gap else ""


def gained(runs: Mapping[str, list[Played]]) -> float:
    return max(fmean(r.after - r.before for r in seeds) for seeds in runs.values())


def standings(league: League, dashes: Mapping[tuple[str, str], str]) -> str:
    names = list(dict.fromkeys(row for runs in league.values() for row in runs))
    complete = [name for name in names if all(name in runs for runs in league.values())]
    whole, _, both = mean_ranks(league, complete)
    place = {name: i for i, name in enumerate(complete)}
    like = {task: not_told_apart(runs) for task, runs in league.items()}
    order = sorted(names, key=lambda n: whole[place[n]] if n in place else len(names))
    rows = []
    for name in order:
        cells = ["–", "–"]
        if name in place:
            i = place[name]
            low, high = both[:, i]
            cells = [f"{whole[i]:.1f}", f"{low:.1f}–{high:.1f}"]
        for task, runs in league.items():
            cell = f"{fmean(r.after for r in runs[name]):.3f}" if name in runs else "–"
            cells.append(f"**{cell}**" if name in like[task] else cell)
        rows.append([name, *cells, failures(league, name)])
    header = ["row", "mean rank", "95 %", *league, "failed"]
    where: dict[str, dict[str, list[str]]] = {}
    for (task, name), why in dashes.items():
        where.setdefault(why.split(", and task")[0], {}).setdefault(name, []).append(task)
    reasons = [
        f"- {listed(by)} cannot run on {listed(t for ts in by.values() for t in ts)}: {why}."
        for why, by in where.items()
    ]
    return "\n".join([table(header, rows), "", *reasons]).strip()


def listed(names: Iterable[str]) -> str:
    """`a, b and c`, each once."""
    *most, last = dict.fromkeys(names)
    return f"{', '.join(most)} and {last}" if most else last


def failures(league: League, name: str) -> str:
    """The numbers of runs of a row that never learned, collapsed and diverged."""
    kinds = ("never learned", "collapsed", "diverged")
    found = Counter(
        failure(run, gained(runs)) for runs in league.values() for run in runs.get(name, [])
    )
    return "/".join(str(found[kind]) for kind in kinds) if any(found[k] for k in kinds) else ""


def tasks_table(league: League, budgets: Mapping[str, int]) -> str:
    rows = []
    for task, runs in league.items():
        every = [run for seeds in runs.values() for run in seeds]
        best = max(runs, key=lambda row: fmean(r.after for r in runs[row]))
        rows.append([
            task, f"{budgets[task]:,}",
            f"{fmean(r.before for r in every):.3f}", f"{fmean(r.greedy_before for r in every):.3f}",
            best, f"{fmean(r.after for r in runs[best]):.3f}",
            f"{fmean(r.greedy_after for r in runs[best]):.3f}",
        ])  # fmt: skip
    header = ["task", "tokens", "before", "greedy", "best row", "after", "greedy"]
    return table(header, rows)


def draw_curves(league: League) -> None:
    """The rows' mean training scores over tokens by task: the best in colour, others grey."""

    def figure() -> object:
        columns = min(3, len(league))
        lines = -(-len(league) // columns)
        drawn = new_figure(3.7 * columns + 1, 3.2 * lines)
        for place, (task, runs) in enumerate(league.items(), 1):
            name = "score" if place % columns == 1 or columns == 1 else ""
            axes = add_axes(drawn, "tokens", name, (lines, columns, place))
            axes.set_title(task, fontsize=10)
            order = sorted(runs, key=lambda row: -fmean(r.after for r in runs[row]))
            end = min(run.curve[-1][0] for row in order[:4] for run in runs[row])
            grid = np.linspace(0, end, 40)
            for i, row in enumerate(order):
                xs = [np.interp(grid, *smooth(run)) for run in runs[row]]
                style = line(i) if i < 4 else {"color": ink("faint"), "linestyle": "-"}
                style |= {"linewidth": 1.6, "zorder": 3} if i < 4 else {"linewidth": 0.8}
                axes.plot(grid, np.mean(xs, 0), label=row if i < 4 else None, **style)
            axes.legend(fontsize=7, frameon=False, loc="best")
        return drawn

    write_figure(figure, CURVES)


def smooth(run: Played) -> tuple[list[float], list[float]]:
    """The curve, each point the mean of three steps: at the ends the first and the last three."""
    tokens, scores = zip(*run.curve, strict=True)
    last = max(0, len(scores) - 3)
    starts = [min(max(i - 1, 0), last) for i in range(len(scores))]
    return list(tokens), [fmean(scores[i : i + 3]) for i in starts]


# ---------------------------------------------------------------- the page


def facts(league: League, folder: Path, waiting: list[str]) -> str:
    every = [run for runs in league.values() for seeds in runs.values() for run in seeds]
    lines = (folder / "cpu.jsonl").read_text(encoding="utf-8").splitlines()
    cpu = [json.loads(text) for text in lines]
    day = time.strftime("%Y-%m-%d", time.gmtime((folder / "cpu.jsonl").stat().st_mtime))
    missing = f" Not finished: {', '.join(waiting)}." if waiting else ""
    minutes = sum(seconds for _, seconds in cpu) / 60
    return (
        f"The standings come from {len(every):,} runs on {len(league)} of "
        f"{len(league) + len(waiting)} tasks, which took {minutes:.0f} CPU minutes "
        f"(last run: {day}).{missing}"
    )


def beside(row: str, league: League) -> str:
    """Its mean scores, and its differences to each other row, paired by seed, with Student's 95 %
    intervals."""
    others = list(dict.fromkeys(r for runs in league.values() for r in runs if r != row))
    lines = []
    for task, runs in league.items():
        mine = [run.after for run in runs[row]]
        cells = [task, str(len(mine)), f"{fmean(mine):.3f}"]
        for other in others:
            theirs = [run.after for run in runs[other]]
            low, high = t_interval([a - b for a, b in zip(mine, theirs, strict=True)])
            cells.append(f"{fmean(mine) - fmean(theirs):+.3f} [{low:+.3f}, {high:+.3f}]")
        lines.append(cells)
    return table(["task", "seeds", row, *(f"minus {other}" for other in others)], lines)


def write_beside(row: str, league: League) -> None:
    print(beside(row, league))


def write(
    league: League, dashes: Mapping[tuple[str, str], str], budgets: Mapping[str, int],
    folder: Path, waiting: list[str],
) -> None:  # fmt: skip
    draw_curves(league)
    blocks = {
        "facts": facts(league, folder, waiting),
        "tasks": tasks_table(league, budgets),
        "standings": standings(league, dashes),
    }
    for name, made in blocks.items():
        put(PAGE, name, made)
