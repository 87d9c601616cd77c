"""Run the worked study again and write its tables into docs/study.md.

    python docs/study.py            about half an hour on two idle cores; goes on where it stopped

Runs land in runs/study/; the text around the tables stays as it is.
"""

import json
import sys
from pathlib import Path

from common import put, rlzoo, table

HERE = Path(__file__).resolve().parent
PAGE = HERE / "study.md"
LAMBDAS = "0,0.5,0.8,0.9,0.95,0.99,1"
ESTIMATORS = "gae,mc,td0,grpo,rloo"
SWEEPS = {
    "key_door": ["task=key_door", f"seed={','.join(map(str, range(20)))}"],
    "addition": ["task=addition_mixed", f"seed={','.join(map(str, range(10)))}"],
}
COMMON = [
    "recipe=ppo_gae", "model=nano", f"estimator={ESTIMATORS}", f"estimator.lam={LAMBDAS}",
    "train.steps=24", "rollout.prompts=16", "eval.every=6", "eval.samples=512",
    "checkpoint.every=0",
]  # fmt: skip


def small(x: float) -> str:
    """Rounding noise is 0."""
    return f"{x:.2g}" if x > 1e-12 else "0"


def diagnosis(world: str) -> str:
    """b_perp^2, variance and cosines before training (zero critic) and with a perfect critic."""
    words = ["recipe=ppo_gae", f"estimator={ESTIMATORS}", f"estimator.lam={LAMBDAS}"]
    found = json.loads(
        rlzoo("diagnose", *words, "--world", world, "--critic", "exact,zero", "--json")
    )
    rows: dict[str, dict[str, dict]] = {}
    for row in found["estimators"]:
        name = " ".join([row["estimator"], *(f"{k}={v:g}" for k, v in row["shown"].items())])
        rows.setdefault(name, {})[row["critic"] or "none"] = row
    lines = []
    for name, by in rows.items():
        first = by.get("zero") or by["none"]
        last = by.get("exact") or by["none"]
        lines.append([
            name,
            *(small(r["b_perp2"]) for r in (first, last)),
            *(small(r["variance"]) for r in (first, last)),
            *(f"{r['batches']['64']['cosine']:.2f}" for r in (first, last)),
        ])  # fmt: skip
    header = ["estimator"]
    for what in ("b_perp^2", "variance", "cos@64"):
        header += [f"{what}, V = 0", f"{what}, exact V"]
    return table(header, lines)


def outcome(name: str) -> str:
    folder = HERE.parent / "runs" / "study" / name
    rlzoo("sweep", *COMMON, *SWEEPS[name], "--dir", str(folder))
    found = json.loads(rlzoo("compare", str(folder), "--json"))
    rows = []
    for row in found["rows"]:
        low, high = row["interval"]
        against = row["against_reference"]
        paired = "reference"
        if against:
            a, b = against["interval"]
            paired = f"{against['difference']:+.3f} [{a:+.3f}, {b:+.3f}]"
        rows.append([
            row["row"], str(len(row["seeds"])), f"{row['iqm']:.3f} [{low:.3f}, {high:.3f}]", paired,
            f"{row['area']:.3f}", f"{row['tokens']:,.0f}",
        ])  # fmt: skip
    header = ["row", "seeds", "final (IQM)", f"minus {found['reference']}", "area", "tokens"]
    limits = [p["detectable"] for p in found["pairs"] if p["detectable"] is not None]
    worst = f"{max(limits):.3f}" if limits else "none, too few seeds for so many pairs"
    last = (
        f"The smallest difference that these seeds could have shown, for the worst pair: {worst}."
    )
    default = json.loads(rlzoo("compare", str(folder), "--reference", "gae lam=0.95", "--json"))
    against = "Against the recipe's own lambda, .95, alone (one test for each other row):"
    return "\n\n".join([table(header, rows), *found["verdict"], last, against, *default["verdict"]])


def main() -> None:
    (HERE.parent / "runs" / "study").mkdir(parents=True, exist_ok=True)
    blocks = {
        "diagnosis key_noise": lambda: diagnosis("key_noise"),
        "diagnosis outcome": lambda: diagnosis("outcome"),
        "key_door": lambda: outcome("key_door"),
        "addition": lambda: outcome("addition"),
    }
    chosen = sys.argv[1:] or list(blocks)
    for name in chosen:
        put(PAGE, name, blocks[name]())
        print(f"{name}: written", flush=True)


if __name__ == "__main__":
    main()
