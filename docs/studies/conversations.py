"""Run the conversations of docs/environments.md again and write their table into the page.

    python docs/studies/conversations.py [FOLDER]      about six minutes; resumes where it stopped

Runs land in FOLDER, runs/conversations by default; the text around the table stays as it is.
"""

import json
import sys
from pathlib import Path
from statistics import fmean, stdev

from common import put, rlzoo, table
from rlzoo_lab.stats import critical

DOCS = Path(__file__).resolve().parents[1]
PAGE = DOCS / "environments.md"
COMMON = [
    "recipe=ppo_gae", "model=turns", "seed=0,1,2,3,4", "train.steps=24", "eval.every=8",
    "eval.samples=512", "checkpoint.every=0", "run.threads=1",
]  # fmt: skip
SWEEPS = {
    "hi_lo": ["task=hi_lo", "estimator=gae,turn_gae,gigpo"],
    "local_search": ["task=local_search", "estimator=gae"],
}


def read(run: Path) -> dict:
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    turns = [m["turns/mean"] for m in map(json.loads, lines) if "turns/mean" in m]
    return summary | {"turns_before": turns[0], "turns_after": turns[-1]}


def mean(rows: list[dict], name: str) -> float:
    return fmean(row[name] for row in rows)


def line(task: str, estimator: str, rows: list[dict]) -> list[str]:
    """Accuracy on held-out samples before and after, and the paired difference with its 95 %
    interval (Student's t over seeds); turns of the policy in the first and the last step."""
    gains = [row["eval_after"] - row["eval_before"] for row in rows]
    half = critical(0.95, len(gains) - 1) * stdev(gains) / len(gains) ** 0.5
    return [
        task,
        estimator,
        str(len(rows)),
        f"{mean(rows, 'eval_before'):.3f}",
        f"{mean(rows, 'eval_after'):.3f}",
        f"{fmean(gains):+.3f} ± {half:.3f}",
        f"{mean(rows, 'turns_before'):.2f}",
        f"{mean(rows, 'turns_after'):.2f}",
    ]


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS.parent / "runs" / "conversations"
    header = ["task", "estimator", "seeds", "before", "after", "after - before",
              "turns, first step", "turns, last step"]  # fmt: skip
    lines = []
    for task, words in SWEEPS.items():
        place = folder / task
        place.parent.mkdir(parents=True, exist_ok=True)
        rlzoo("sweep", *COMMON, *words, "--dir", str(place))
        runs = [read(path.parent) for path in sorted(place.rglob("summary.json"))]
        for estimator in words[1].partition("=")[2].split(","):
            lines.append(line(task, estimator, [r for r in runs if r["estimator"] == estimator]))
    made = table(header, lines)
    print(made)
    put(PAGE, "results", made)


if __name__ == "__main__":
    main()
