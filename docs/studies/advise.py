"""Ask the advisor in settings whose outcome is published; write docs/advise.md's table.

    python docs/studies/advise.py [FOLDER]      some three minutes; continues where it stopped

For each of ten seeds the first tenth of the run is the pilot. What is best at the end is what
docs/results.md and docs/results.md found with 10 to 20 seeds; nothing is trained to the end here.
"""

import json
import sys
from collections import Counter
from pathlib import Path

from common import put, table
from rlzoo_lab.advise.pilot import advise

DOCS = Path(__file__).resolve().parents[1]
PAGE = DOCS / "advise.md"
ASKED = ["recipe=ppo_gae", "train.steps=24"]
STUDY = ["model=nano", "rollout.prompts=16", "estimator=gae,grpo,rloo",
         "estimator.lam=0,0.5,0.8,0.9,0.95,0.99,1"]  # fmt: skip
SHOWN = ["model=speller", "task=spelling"]
HALF = ("gae lam=0.5", "gae lam=0.8", "gae lam=0.9", "gae lam=0.95", "gae lam=0.99", "gae lam=1")
# words, the rows without a significant difference from the best at the end, and the source
SETTINGS: dict[str, tuple[list[str], tuple[str, ...], str]] = {
    "key_door": ([*STUDY, "task=key_door"], ("gae lam=1",), "results.md"),
    "addition_mixed": ([*STUDY, "task=addition_mixed"], (*HALF, "grpo", "rloo"), "results.md"),
    "spelling": (
        [*SHOWN, "estimator=gae,grpo,rloo", "estimator.lam=0,0.5,0.8,0.95,1"],
        ("gae lam=0.8", "gae lam=0.5"), "results.md",
    ),
    "spelling pay=end": (
        [*SHOWN, "task.pay=end", "estimator=gae,rloo", "estimator.lam=0.8,0.95,1"],
        ("gae lam=1", "rloo"), "results.md",
    ),
}  # fmt: skip
RULES = {"always GRPO": "grpo", "always GAE 0.95": "gae lam=0.95"}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS.parent / "runs" / "advice"
    folder.mkdir(parents=True, exist_ok=True)
    lines, hits, asked = [], Counter[str](), Counter[str]()
    for name, (words, best, source) in SETTINGS.items():
        said = []
        for seed in range(10):
            file = folder / f"{name.replace(' ', '-')}--seed{seed}.json"
            if not file.is_file():
                document = advise([*ASKED, *words, f"seed={seed}"], 0.1)
                file.write_text(json.dumps(document, indent=1), encoding="utf-8")
            said.append(json.loads(file.read_text(encoding="utf-8")))
        chosen = Counter(document["choice"] for document in said)
        rules = {"advisor": sum(chosen[row] for row in best)}
        there = {row["name"] for row in said[0]["estimators"]}
        rules |= {rule: 10 * (row in best) for rule, row in RULES.items() if row in there}
        hits.update(rules)
        asked.update(dict.fromkeys(rules, 10))
        worlds = Counter(document["world"] for document in said)
        lines.append([
            f"[{name}]({source})", ", ".join(worlds), ", ".join(best),
            ", ".join(f"{row} {n}" for row, n in chosen.most_common()),
            *(f"{rules[rule]}/10" if rule in rules else "not run" for rule in ("advisor", *RULES)),
            f"{sum(document['direction'] >= 2 for document in said)}/10",
        ])  # fmt: skip
    lines.append(["all", "", "", "", *(f"{n}/{asked[rule]}" for rule, n in hits.items()), ""])
    header = ["setting", "world", "best at the end", "the advisor chose", *hits, "direction seen"]
    made = table(header, lines)
    print(made)
    put(PAGE, "studies", made)


if __name__ == "__main__":
    main()
