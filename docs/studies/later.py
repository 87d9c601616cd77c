"""Run the recipes of 2026 by the league's rules and write the table of docs/later-recipes.md.

    python docs/studies/later.py [FOLDER] [--jobs N] [--seeds N]    about 5 CPU minutes; resumes

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

PAGE = DOCS / "later-recipes.md"
TASKS = ["marks"]
FIRST = "grpo"
BESIDE = [FIRST, "ppo_gae", "maxrl"]  # measured again for comparison
ROWS = [*league.LATER, *BESIDE]


def interval(values: list[float]) -> str:
    found = t_interval(values)
    assert found is not None
    mean = sum(values) / len(values)
    return f"{mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def rows_of(found: dict[str, dict[str, list[float]]]) -> list[list[str]]:
    """A line for each row: per task the mean score and the difference from GRPO's, by seed."""
    lines = []
    for row in ROWS:
        line = [f"`{row}`"]
        for scores in found.values():
            own, first = scores[row], scores[FIRST]
            line.append(f"{sum(own) / len(own):.3f}")
            gaps = [a - b for a, b in zip(own, first, strict=True)]
            line.append("" if row == FIRST else interval(gaps))
        lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=DOCS.parent / "runs" / "later")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    every = list(league.cells(arguments.folder, TASKS, ROWS, arguments.seeds))
    refused = {
        (c.task, c.row): why for c in every if c.seed == 0 and (why := c.why_not(load_zoo()))
    }
    assert not refused, refused
    league.play_all([cell for cell in every if not cell.done], arguments.jobs)
    found: dict[str, dict[str, list[float]]] = {}
    for cell in every:
        played = league_page.read(cell.path, league.TASKS[cell.task].tokens)
        found.setdefault(cell.task, {}).setdefault(cell.row, []).append(played.after)
    head = ["recipe"]
    for task in TASKS:
        head += [task, "minus grpo"]
    put(PAGE, "table", table(head, rows_of(found)))


if __name__ == "__main__":
    main()
