"""Run recipes, each at its best learning rate: those of 2025 and 2026, for docs/results.md, and
the ones that are used most, on all tasks of the league, for docs/league.md.

    python docs/studies/later.py [FOLDER] [--minutes N] [--rows A,B]    resumes
    python docs/studies/later.py --page-only

Tasks, sizes and budgets are those of docs/studies/league.py. Every row gets the same search: five
rates of the actor, two seeds each; then ten fresh seeds at the rate with the best mean. Differences
are paired by seed with GRPO's. Scores are kept in later.json, so that runs on several machines add
up; run folders are in runs/later.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch

import league
import league_page
from common import DOCS, plus_minus, put, table
from rlzoo import load_zoo

PAGE, KEPT = DOCS / "results.md", Path(__file__).with_suffix(".json")
FIRST = "grpo"
# A table of the page: its task, and its rows.
TABLES = {
    "later": ("marks", [
        FIRST, "ppo_gae", "ppo_penalty", "sao", "softmax_grpo", "maxrl", "rloo", "dapo", "gspo",
        "cispo", "sapo",
        "dr_grpo", "fipo", "gvpo", "raft", "v0_5", "vargrad", "bpco", "hl_gauss_ppo", "real",
    ]),
    "talk": ("key_door", [FIRST, "ppo_gae", "spo", "echo"]),  # four prompts, which return
}  # fmt: skip
BEST = ("grpo", "dr_grpo", "rloo", "reinforce_pp", "otb", "gmpo", "gspo", "dapo", "ppo_gae",
        "ppo_mc")  # fmt: skip
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the league's learning rate
SEARCH, FRESH = (100, 101), tuple(range(10, 20))


@dataclass(frozen=True)
class Tuned(league.Cell):
    factor: float = 1.0

    @property
    def path(self) -> Path:
        return self.folder / self.task / f"{self.row}--x{self.factor:g}--seed{self.seed}"

    @property
    def words(self) -> list[str]:
        return [*super().words, f"actor.lr={self.rate:g}"]

    @property
    def rate(self) -> float:
        usual = next(w for w in league.TASKS[self.task].words if w.startswith("actor.lr="))
        return self.factor * float(usual.partition("=")[2])

    @property
    def name(self) -> str:
        return f"{self.task} {self.row} x{self.factor:g} {self.seed}"


Kept = dict[str, list[float]]  # a cell's name -> its score and its CPU seconds


def search(kept: Kept, task: str, row: str, folder: Path) -> tuple[list[Tuned], list[Tuned]]:
    """The row's cells: its search, then, once that is finished, those at the best rate."""
    tries = [Tuned(task, row, seed, folder, f) for f in FACTORS for seed in SEARCH]
    if any(cell.name not in kept for cell in tries):
        return tries, []
    means = {f: fmean(kept[c.name][0] for c in tries if c.factor == f) for f in FACTORS}
    best = max(FACTORS, key=lambda f: means[f])
    return tries, [Tuned(task, row, seed, folder, best) for seed in FRESH]


def wanted(kept: Kept, task: str, row: str, folder: Path) -> list[Tuned]:
    tries, fresh = search(kept, task, row, folder)
    return tries + fresh


def missing(kept: Kept, rows: str, folder: Path) -> Iterator[Tuned]:
    """The runs to do, row by row, each determined by those before it."""
    for task, every in [*TABLES.values(), *((task, BEST) for task in league.TASKS)]:
        for row in every:
            if rows and row not in rows.split(","):
                continue
            while left := [c for c in wanted(kept, task, row, folder) if c.name not in kept]:
                yield left[0]


def lines(kept: Kept, task: str, rows: list[str], folder: Path) -> list[list[str]]:
    """A line for each row that is complete, once the first is."""
    scores: dict[str, list[float]] = {}
    found = []
    for row in rows:
        tries, fresh = search(kept, task, row, folder)
        whole = fresh and all(cell.name in kept for cell in fresh)
        if whole and (row == FIRST or FIRST in scores):
            scores[row] = [kept[cell.name][0] for cell in fresh]
            gaps = [a - b for a, b in zip(scores[row], scores[FIRST], strict=True)]
            cost = sum(kept[cell.name][1] for cell in tries)
            gap = "" if row == FIRST else plus_minus(gaps, "+.3f")
            found.append([f"`{row}`", f"{fresh[0].rate:g}", plus_minus(scores[row]), gap,
                          f"{cost:.0f}"])  # fmt: skip
    return found


def standings(kept: Kept, folder: Path) -> str:
    """The rows of BEST by their mean rank, once all have their runs; else empty."""
    cells = {(t, row): search(kept, t, row, folder) for t in league.TASKS for row in BEST}
    if not all(fresh and all(c.name in kept for c in fresh) for _, fresh in cells.values()):
        return ""
    played = {
        task: {row: [Final(kept[c.name][0]) for c in cells[task, row][1]] for row in BEST}
        for task in league.TASKS
    }
    whole, _, (low, high) = league_page.mean_ranks(played, list(BEST))
    like = {task: league_page.not_told_apart(runs) for task, runs in played.items()}
    rows = []
    for i in whole.argsort(kind="stable"):
        means = {task: fmean(run.after for run in runs[BEST[i]]) for task, runs in played.items()}
        cost = sum(kept[c.name][1] for task in played for c in cells[task, BEST[i]][0])
        rows.append([
            BEST[i], f"{whole[i]:.1f} [{low[i]:.1f}, {high[i]:.1f}]",
            *(f"**{x:.3f}**" if BEST[i] in like[task] else f"{x:.3f}" for task, x in means.items()),
            f"{cost:.0f}",
        ])  # fmt: skip
    return table(["row", "mean rank", *played, "search, CPU s"], rows)


@dataclass(frozen=True)
class Final:
    """What `league_page` reads from a run to rank it."""

    after: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("folder", nargs="?", type=Path, default=DOCS.parent / "runs" / "later")
    add("--rows", default="", help="these rows only")
    add("--minutes", type=float, default=math.inf, help="begin no run after these")
    add("--page-only", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    kept: Kept = json.loads(KEPT.read_text("utf-8")) if KEPT.is_file() else {}
    if not arguments.page_only:
        torch.set_num_threads(1)
        zoo, began = load_zoo(), time.time()
        for cell in missing(kept, arguments.rows, folder):
            if time.time() - began > 60 * arguments.minutes:
                break
            before = time.process_time()
            cell.play(zoo)
            score = league_page.read(cell.path, league.TASKS[cell.task].tokens).after
            kept[cell.name] = [round(score, 6), round(time.process_time() - before, 1)]
            print(cell.name, *kept[cell.name], flush=True)
            text = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(kept.items()))
            KEPT.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
    head = ["recipe", "rate", "score", "minus grpo", "search, CPU s"]
    for name, (task, rows) in TABLES.items():
        if found := lines(kept, task, rows, folder):
            put(PAGE, name, table([*head[:2], task, *head[3:]], found))
    if text := standings(kept, folder):
        put(league_page.PAGE, "tuned", text)


if __name__ == "__main__":
    main()
