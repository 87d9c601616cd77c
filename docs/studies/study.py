"""Run the worked study again and write its table into docs/results.md.

    python docs/studies/study.py    about half an hour on two cores; resumes where it stopped

Runs land in runs/study/; the text around the tables stays as it is.
"""

import json
import sys
from pathlib import Path

from common import put, rlzoo, table

DOCS = Path(__file__).resolve().parents[1]
PAGE = DOCS / "results.md"
LAMBDAS = "0,0.5,0.8,0.9,0.95,0.99,1"
ESTIMATORS = "gae,mc,td0,grpo,rloo"
EQUAL = ("mc", "td0")  # to lambda = 1 and 0, so that the table leaves them out
SWEEPS = {
    "key_door": ["task=key_door", f"seed={','.join(map(str, range(20)))}"],
    "addition": ["task=addition_mixed", f"seed={','.join(map(str, range(10)))}"],
}
COMMON = [
    "recipe=ppo_gae", "model=nano", f"estimator={ESTIMATORS}", f"estimator.lam={LAMBDAS}",
    "train.steps=24", "rollout.prompts=16", "eval.every=6", "eval.samples=512",
    "checkpoint.every=0",
]  # fmt: skip


def results() -> str:
    """The final scores of each row on both tasks."""
    rows: dict[str, list[str]] = {}
    header = ["row"]
    for name, words in SWEEPS.items():
        folder = DOCS.parent / "runs" / "study" / name
        rlzoo("sweep", *COMMON, *words, "--dir", str(folder))
        found = json.loads(rlzoo("compare", str(folder), "--json"))
        header.append(f"{name}, {len(found['rows'][0]['seeds'])} seeds (IQM)")
        for row in (row for row in found["rows"] if row["row"] not in EQUAL):
            low, high = row["interval"]
            cell = f"{row['iqm']:.3f} [{low:.3f}, {high:.3f}]"
            rows.setdefault(row["row"], []).append(cell)
    return table(header, [[label, *cells] for label, cells in rows.items()])


def main() -> None:
    (DOCS.parent / "runs" / "study").mkdir(parents=True, exist_ok=True)
    blocks = {"results": results}
    for name in sys.argv[1:] or blocks:
        put(PAGE, name, blocks[name]())
        print(f"{name}: written", flush=True)


if __name__ == "__main__":
    main()
