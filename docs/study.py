"""Run the worked study again and write its tables into docs/study.md.

    python docs/study.py            about half an hour on two idle cores; goes on where it stopped

Runs land in runs/study/; the text around the tables stays as it is.
"""

import json
import subprocess
import sys
from pathlib import Path

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


def rlzoo(*words: str) -> str:
    command = [sys.executable, "-m", "rlzoo", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def diagnosis(world: str) -> str:
    words = ["recipe=ppo_gae", f"estimator={ESTIMATORS}", f"estimator.lam={LAMBDAS}"]
    found = json.loads(rlzoo("diagnose", *words, "--world", world, "--json"))
    (HERE.parent / "runs" / "study" / f"diagnose-{world}.json").write_text(json.dumps(found))
    rows = []
    for row in found["rows"]:
        if row["critic"] == "noisy":
            continue
        at64 = next(b["cosine"] for b in row["batches"] if b["rows"] == 64)
        rows.append([
            row["name"], row["critic"] or "-", f"{row['b_perp2']:.2g}", f"{row['variance']:.2g}",
            f"{row['cosine']:.3f}", f"{at64:.2f}",
        ])  # fmt: skip
    header = ["estimator", "critic", "b_perp^2", "variance", "cosine of the mean", "cos@64"]
    return table(header, rows)


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
    detectable = max(p["detectable"] for p in found["pairs"])
    return "\n\n".join([
        table(header, rows), *found["verdict"],
        f"The smallest difference that these seeds could have shown, over all pairs at worst: "
        f"{detectable:.3f}.",
    ])  # fmt: skip


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
        made = blocks[name]()
        text = PAGE.read_text(encoding="utf-8")
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        head, rest = text.split(start)
        tail = rest.split(end, 1)[1]
        PAGE.write_text(f"{head}{start}\n\n{made}\n\n{end}{tail}", encoding="utf-8")
        print(f"{name}: written", flush=True)


if __name__ == "__main__":
    main()
