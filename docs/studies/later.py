"""Run the recipes of 2026 by the league's rules and write the tables of docs/results.md.

    python docs/studies/later.py [FOLDER] [--jobs N] [--seeds N]    about 6 CPU minutes; resumes
    python docs/studies/later.py --table talk                       one of the tables

Runs are those of docs/studies/league.py with its sizes, rates and budgets, in runs/later/TASK/
ROW--seedN by default. Differences are paired by seed with GRPO's.
"""

import argparse
from pathlib import Path

import league
import league_page
from common import DOCS, put, table
from rlzoo import load_zoo
from rlzoo_lab.stats import t_interval

PAGE = DOCS / "results.md"
FIRST = "grpo"
# A table of the page: its task, and its rows, the last ones measured again for comparison.
TABLES = {
    "later": ("marks", [*league.LATER, FIRST, "ppo_gae", "maxrl"]),
    "talk": ("key_door", ["echo", "spo", FIRST, "ppo_gae"]),  # four prompts, which return
}


def interval(values: list[float]) -> str:
    found = t_interval(values)
    assert found is not None
    mean = sum(values) / len(values)
    return f"{mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def rows_of(found: dict[str, list[float]]) -> list[list[str]]:
    """A line for each row: the mean score and the difference from GRPO's, by seed."""
    lines = []
    for row, own in found.items():
        gaps = [a - b for a, b in zip(own, found[FIRST], strict=True)]
        gap = "" if row == FIRST else interval(gaps)
        lines.append([f"`{row}`", f"{sum(own) / len(own):.3f}", gap])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=DOCS.parent / "runs" / "later")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--table", choices=TABLES, nargs="*", default=list(TABLES))
    arguments = parser.parse_args()
    for name in arguments.table:
        write(name, arguments)


def write(name: str, arguments: argparse.Namespace) -> None:
    task, rows = TABLES[name]
    every = list(league.cells(arguments.folder, [task], rows, arguments.seeds))
    refused = {
        (c.task, c.row): why for c in every if c.seed == 0 and (why := c.why_not(load_zoo()))
    }
    assert not refused, refused
    league.play_all([cell for cell in every if not cell.done], arguments.jobs)
    found: dict[str, list[float]] = {row: [] for row in rows}
    for cell in every:
        played = league_page.read(cell.path, league.TASKS[task].tokens)
        found[cell.row].append(played.after)
    put(PAGE, name, table(["recipe", task, "minus grpo"], rows_of(found)))


if __name__ == "__main__":
    main()
