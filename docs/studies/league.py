"""Run the league and write its tables into docs/league.md.

    python docs/studies/league.py [FOLDER] [--jobs N] [--seeds N] [--tasks A,B] [--rows A,B] ...

Every recipe on every task, seed by seed, each run ending when it has drawn its task's tokens. Runs
are ordinary run folders, runs/league/TASK/ROW--seedN by default. The same command runs what
is missing: it skips finished runs and resumes interrupted ones from their last checkpoint.
Then the page is written, of the tasks that have all their runs; --page-only writes it at once.

    python docs/studies/league.py --rows vimpo,dr_grpo,grpo --against vimpo

plays a row that is not in the standings by the same rules, and others to compare it with.
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo import RlzooError, load_zoo, resume, run
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan

DOCS = Path(__file__).resolve().parents[1]
# Distillation has a teacher that can do the task already (docs/results.md compares it with
# SFT); SDPO needs a base that reads what it is shown, PRIME a trained reward model; VIMPO and
# those in LATER were added after the league was played.
LATER = (
    "bpco", "fipo", "gvpo", "hl_gauss_ppo", "ppo_penalty", "raft", "real", "sao", "softmax_grpo",
    "v0_5", "vargrad",
)  # fmt: skip
NOT_PLAYED = {  # where their numbers are
    **dict.fromkeys(LATER, "results.md#do-recipes-from-2026-learn"),
    "iw_opd": "results.md#how-well-do-teachers-teach",
    "mopd": "results.md#how-well-do-teachers-teach",
    "opd": "results.md#how-well-do-teachers-teach",
    "rlsd": "results.md#how-well-do-teachers-teach",
    "prime": "results.md#do-rewards-for-steps-beat-a-reward-for-the-outcome",
    "sdpo": "results.md#how-well-do-teachers-teach",
    **dict.fromkeys(("echo", "spo"), "results.md#do-recipes-from-2026-learn"),
    "smollm2_sums": "models.md#what-was-measured",
    "vimpo": "league.md",
    "vopd": "results.md#how-well-do-teachers-teach",
}
SHIPPED = sorted(p.stem for p in (DOCS.parent / "configs" / "recipes").glob("*.yaml"))
RECIPES = [name for name in SHIPPED if name not in NOT_PLAYED]


@dataclass(frozen=True)
class Task:
    """`tokens`: that each run may draw."""

    words: tuple[str, ...]
    tokens: int


# Each with one rate for all rows, at which PPO and GRPO learn in so few steps.
TASKS = {
    "key_door": Task(("task=key_door", "model=nano", "actor.lr=1e-3"), 13_500),
    "marks": Task(("task=marks", "model=blind", "actor.lr=1e-3"), 9_500),
    "addition": Task(("task=addition", "model=novice", "actor.lr=3e-4"), 5_600),
    "local_search": Task(("task=local_search", "model=turns", "actor.lr=1e-3"), 8_000),
    "spelling": Task(
        ("task=spelling", "model=speller", "actor.lr=5e-4", "task.min_length=4",
         "task.max_length=4", "rollout.max_new_tokens=13"),
        17_500,
    ),
}  # fmt: skip
# The same for all: sizes that fit two cores. All else is as the recipe ships.
COMMON = (
    "rollout.prompts=32", "rollout.samples=4", "train.steps=null", "eval.samples=128",
    "checkpoint.every=8", "run.samples=0", "run.threads=1",
)  # fmt: skip
# The even rows: estimators in one recipe that is otherwise the same.
EXTRA = {
    "ppo_gae lam=0.5": ["estimator.lam=0.5"],
    "ppo_gae lam=0.8": ["estimator.lam=0.8"],
    "ppo_gae grpo": ["estimator=grpo"],
    "ppo_gae rloo": ["estimator=rloo"],
}
# A step of these draws many times a batch's tokens: evaluated at each, so that the score at the
# budget is between two evaluations.
BRANCHING = ("vineppo",)


@dataclass(frozen=True)
class Cell:
    """One run of the league."""

    task: str
    row: str
    seed: int
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / self.task / f"{self.row.replace(' ', '-')}--seed{self.seed}"

    @property
    def recipe(self) -> str:
        return self.row.split()[0]

    @property
    def words(self) -> list[str]:
        task = TASKS[self.task]
        every = 1 if self.row in BRANCHING else 0
        return [
            *COMMON, *task.words, *EXTRA.get(self.row, []), f"train.tokens={task.tokens}",
            f"eval.every={every}", f"seed={self.seed}", f"run.dir={self.path}",
        ]  # fmt: skip

    def why_not(self, zoo: Any) -> str:
        """Why this recipe does not apply to this task; empty where it does."""
        try:
            make_plan(compose([f"recipe={self.recipe}", *self.words], zoo), zoo)
        except RlzooError as error:
            return str(error).split(": ", 1)[-1]
        return ""

    @property
    def done(self) -> bool:
        return (self.path / "summary.json").is_file()

    def play(self, zoo: Any, display: Any = None) -> None:
        """Do the run, or what is left of it; its weights are not kept."""
        began = time.process_time()
        if (self.path / "recipe.yaml").is_file():
            resume(self.path, zoo=zoo, display=display)
        else:
            run(self.recipe, self.words, zoo=zoo, display=display)
        for file in [*self.path.rglob("*.safetensors"), *self.path.rglob("*.pt")]:
            file.unlink()
        with open(self.folder / "cpu.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps([self.path.name, time.process_time() - began]) + "\n")


def cells(folder: Path, tasks: list[str], rows: list[str], seeds: int) -> Iterator[Cell]:
    """Task by task, seed by seed: a league cut short has whole tasks, and paired runs."""
    for task in tasks:
        for seed in range(seeds):
            for row in rows:
                yield Cell(task, row, seed, folder)


def play_all(missing: list[Cell], jobs: int) -> None:
    """Forked workers share the imports; one job stays in this process."""
    import torch

    torch.set_num_threads(1)
    zoo = load_zoo()
    began = time.time()

    def told(number: int, cell: Cell) -> None:
        left = (time.time() - began) / number * (len(missing) - number)
        print(f"{number}/{len(missing)} {cell.path} ({left / 60:.0f} min left)", flush=True)

    if jobs == 1:
        for number, cell in enumerate(missing, 1):
            cell.play(zoo)
            told(number, cell)
        return
    with multiprocessing.get_context("fork").Pool(jobs, _keep, (zoo,)) as pool:
        for number, cell in enumerate(pool.imap_unordered(_play, missing), 1):
            told(number, cell)


def _keep(zoo: Any) -> None:
    globals()["ZOO"] = zoo


def _play(cell: Cell) -> Cell:
    cell.play(globals()["ZOO"])
    return cell


def read_all(played: list[Cell], page: Any) -> dict[str, dict[str, list[Any]]]:
    """task -> row -> a `league_page.Played` for each seed."""
    league: dict[str, dict[str, list[Any]]] = {}
    for cell in played:
        runs = league.setdefault(cell.task, {}).setdefault(cell.row, [])
        runs.append(page.read(cell.path, TASKS[cell.task].tokens))
    return league


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("folder", nargs="?", type=Path, default=DOCS.parent / "runs" / "league")
    add("--jobs", type=int, default=1, help="runs at a time")
    add("--seeds", type=int, default=10)
    add("--tasks", default=",".join(TASKS))
    add("--rows", default=",".join([*RECIPES, *EXTRA]))
    add("--no-page", action="store_true", help="leave docs/league.md as it is")
    add("--page-only", action="store_true", help="play nothing")
    add("--against", metavar="ROW", help="write only how ROW compares with the other rows")
    arguments = parser.parse_args(argv)
    folder, seeds = arguments.folder, arguments.seeds
    tasks, rows = arguments.tasks.split(","), arguments.rows.split(",")
    every = list(cells(folder, tasks, rows, seeds))
    zoo = load_zoo()
    dashes = {(c.task, c.row): why for c in every if c.seed == 0 and (why := c.why_not(zoo))}
    every = [cell for cell in every if (cell.task, cell.row) not in dashes]
    if not arguments.page_only:
        play_all([cell for cell in every if not cell.done], arguments.jobs)
    if arguments.no_page:
        return
    import league_page as page

    if arguments.against:
        played = [cell for cell in every if cell.done]
        page.write_beside(arguments.against, read_all(played, page))
        return
    cut_off = {cell.task for cell in every if not cell.done}
    tasks = [task for task in tasks if task not in cut_off]
    waiting = [task for task in TASKS if task not in tasks]
    page.write(
        read_all([cell for cell in every if cell.task in tasks], page),
        dashes={key: why for key, why in dashes.items() if key[0] in tasks},
        budgets={name: task.tokens for name, task in TASKS.items()},
        folder=folder, waiting=waiting,
    )  # fmt: skip


if __name__ == "__main__":
    main()
