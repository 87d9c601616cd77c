"""Run the showcase again; write its tables.

    python docs/studies/showcase.py    about half an hour on two cores; resumes where it stopped

Runs land in runs/showcase/; the text around the tables stays as it is. Names of blocks as
arguments make only those; `--as-is` takes the runs that are there.
"""

import json
import sys
from functools import cache
from pathlib import Path

from common import put, rlzoo, table
from rlzoo_lab.stats import critical

DOCS = Path(__file__).resolve().parents[1]
PAGES = [DOCS / "results.md", DOCS / "tutorial.md"]
RUNS = DOCS.parent / "runs" / "showcase"
SETTING = [
    "task=spelling", "model=speller", "train.steps=24", "eval.every=0", "eval.samples=256",
    "checkpoint.every=0", f"seed={','.join(map(str, range(10)))}",
]  # fmt: skip
SWEEPS = {
    "words": ["recipe=ppo_gae,grpo,rloo", "estimator.lam=0,0.5,0.8,0.95,1"],
    "end": ["recipe=ppo_gae,rloo", "estimator.lam=0.8,0.95,1", "task.pay=end"],
}  # fmt: skip
BEST = "ppo_gae lam=0.8"


def mean(xs: list[float]) -> float:
    return sum(xs) / len(xs)


def with_interval(xs: list[float], form: str = ".3f") -> str:
    """The mean and its 95 % t interval."""
    m, n = mean(xs), len(xs)
    if n < 2:
        return f"{m:{form}}"
    spread = (sum((x - m) ** 2 for x in xs) / (n - 1) / n) ** 0.5
    half = critical(0.95, n - 1) * spread
    return f"{m:{form}} [{m - half:{form}}, {m + half:{form}}]"


@cache
def runs_of(name: str) -> dict[str, dict[int, Path]]:
    """The runs of a sweep, by row and seed; those that are missing are made."""
    more = [w for w in SETTING if w.split("=")[0] not in {v.split("=")[0] for v in SWEEPS[name]}]
    if "--as-is" not in sys.argv:
        rlzoo("sweep", *SWEEPS[name], *more, "--dir", str(RUNS / name))
    found = json.loads(rlzoo("compare", str(RUNS / name), "--json"))
    return {
        row["row"]: dict(zip(row["seeds"], map(Path, row["runs"]), strict=True))
        for row in found["rows"]
    }


@cache
def summary(run: Path) -> dict:
    return json.loads((run / "summary.json").read_text(encoding="utf-8"))


def scores(runs: dict[int, Path]) -> list[float]:
    return [summary(run)["eval_after"] for run in runs.values()]


def paired(a: dict[int, Path], b: dict[int, Path]) -> list[float]:
    return [summary(a[s])["eval_after"] - summary(b[s])["eval_after"] for s in a if s in b]


def results(name: str) -> str:
    rows = runs_of(name)
    best = rows[BEST]
    lines = [
        [
            row,
            with_interval(scores(runs)),
            "reference" if row == BEST else with_interval(paired(best, runs), "+.3f"),
        ]
        for row, runs in rows.items()
    ]
    header = ["row", "score after", f"{BEST} minus it"]
    return table(header, lines)


def main() -> None:
    RUNS.mkdir(parents=True, exist_ok=True)
    blocks = {
        "words": lambda: results("words"),
        "end": lambda: results("end"),
    }
    for name in [word for word in sys.argv[1:] if word != "--as-is"] or blocks:
        pages = [p for p in PAGES if f"<!-- {name} -->" in p.read_text(encoding="utf-8")]
        if not pages:
            print(f"{name}: no page has such a place")
            continue
        put(pages[0], name, blocks[name]())
        print(f"{name}: written", flush=True)


if __name__ == "__main__":
    main()
