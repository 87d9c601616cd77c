"""Which of the doctor's rules are needed? Greedy selection over the runs of the blind sets.

    python tests/benchmarks/doctor_ablation.py RUNS --train    # the runs that are not there yet
    python tests/benchmarks/doctor_ablation.py RUNS --judge    # every rule's finding in each run
    python tests/benchmarks/doctor_ablation.py RUNS            # select rules; print the tables

RUNS has a folder for each set of `doctor_blind.py`, by its number. Every rule judges each
run by itself; the findings of any set of rules are ranked as the doctor ranks them.

Each run is seen twice: as rlzoo records it, and as an import of TRL's files would (the metrics and
settings that TRL writes, and no others).

- **A fault counts** if it is harmful by its set's own criterion. Faults that rlzoo refuses to train
  are left out: no rule takes part.
- **Named**: the first finding above a note has what `KEYS`, or the set's own key, asks for;
  these are from the planted causes. Of a list of suspects, the first alone counts.
- **Greedy**: the rule that adds most (causes named less false alarms), then the most noticed, until
  none adds anything. Half of the runs, by the CRC of their names, select; the others are held out.
"""

import argparse
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

from doctor_blind import HERE, SETS, curve, load, plug_in

# What the rules read of a run that was imported from TRL with its logged completions.
LOGGED = {
    "reward/mean", "score/mean", "score/std", "score/min", "score/max", "score/noise",
    "group/no_signal", "group/distinct", "response/distinct", "prompts/distinct",
    "raw_advantages/score_corr", "response_length/mean", "response_length/min",
    "response_length/max", "response/truncated", "actor/kl_loss", "actor/ref_kl",
    "actor/pg_clipfrac", "actor/entropy", "actor/grad_norm", "actor/lr",
}  # fmt: skip
SET = {
    "actor.lr", "actor.weight_decay", "actor.eps", "actor.max_grad_norm", "actor.lr_warmup",
    "actor.entropy_coef", "actor.betas", "kl.coef", "kl.place", "rollout.samples",
    "rollout.prompts", "rollout.max_new_tokens", "rollout.temperature", "rollout.top_p",
    "rollout.top_k", "train.epochs", "train.minibatches", "train.steps", "policy_loss.clip_low",
    "policy_loss.clip_high", "policy_loss.name", "estimator.name", "seed",
}  # fmt: skip
KEYS: dict[int, dict[str, str]] = {
    3: {
        "stale answers": r"rewards?=?|reward_|by_group|scores?",
        "late judge": r"reward|judged|score",
        "majority": r"reward|agreement",
        "lenient": r"tolerance|reward|[Ww]rong numbers",
        "effort": r"rewards?\.effort|effort|games the reward|Reward \w+ displaces",
        "reward so far": r"estimator|advantage|to_go|[Cc]redit",
        "ranks": r"estimator|advantage|ranked",
        "shifted": r"estimator|advantage|next_token|[Cc]redit",
        "best as baseline": r"estimator|baseline|advantage",
        "summed baseline": r"estimator|baseline|advantage",
        "clamped loss": r"policy_loss|clamped|loss (does|ignores)|weighted",
        "ratio to reference": r"policy_loss|from_reference|loss",
        "pi, not log pi": r"policy_loss|expected|loss",
        "start masked": r"correction|skip_start|tokens are left|"
        r"[Cc]redit|first or last token|first \d? ?tokens?",
        "sure only": r"correction|confident",
        "KL turned": r"\bkl\b|KL|kl_|turned",
        "KL adapts up": r"kl\.|KL|kl_",
        "shared, heavy": r"critic\.coef|critic\.trunk|shared|drowns",
        "warm-up": r"critic_warmup|warm",
        "one seed a prompt": r"sampler|copies|random numbers|seeded",
        "engine not synced": r"sampler|engine|old weights|off-policy",
        "nucleus": r"top_p",
        "cold": r"temperature",
        "labels without carry": r"answer|label|data|task\.path",
        "easy prompts": r"easier|easy|harder|differ|memoriz",
        "few prompts": r"memoriz|few|distinct|also held",
        "cut prompts": r"max_prompt|too_long|\bcut\b|truncated: task",
        "other format": r"format|differ|template",
        "repeated prompts": r"task=|repeated|same prompt|memoriz|few|distinct",
        "tested on train": r"held.out|both splits|test_path|also held",
        "hot evaluation": r"eval\.temperature|evaluation samples",
        "short evaluation": r"eval\.max_new_tokens",
        "short rollouts": r"rollout\.max_new_tokens|length limit",
        "weight decay": r"weight_decay|weight decay",
        "epsilon": r"actor\.eps\b",
        "long warm-up": r"lr_warmup",
        "many epochs": r"train\.epochs|train\.minibatches|actor\.lr\b|updates are too large",
        "entropy bonus": r"entropy_coef|entropy bonus",
        "bfloat16 weights": r"bfloat16|dtype",
        "max_kl": r"max_kl|ended after",
        "discount": r"gamma|discount",
        "teacher is student": r"teacher",
        "foreign teacher": r"teacher",
    },
    4: {
        "table": r"estimator|advantage|table_centred",
        "earned": r"estimator|advantage|earned|[Cc]redit",
        "loo sum": r"estimator|advantage|loo_sum|baseline",
        "td traces": r"estimator|advantage|td_traces",
        "ranks": r"estimator|advantage|ranks",
        "steady": r"estimator|advantage|steady|reward(s)?[.=]|score",
        "anchored": r"policy_loss|anchored|loss",
        "next token": r"policy_loss|next_token|loss|first or last token",
        "cost": r"value_loss|cost_mse|value loss|critic predicts",
        "running gap": r"\bkl\b|KL|running_gap",
        "by answer": r"reward|by_answer",
        "last found": r"reward|last_found",
        "word pay": r"reward|word_pay",
        "terse": r"reward|terse",
        "same sums": r"task=|same_sums|same prompt|memoriz|few|distinct",
        "cut sums": r"task=|cut_sums|[Ww]rong numbers|check",
        "one each": r"aggregation|one_each|first or last token|leaves? tokens out|tokens out",
        "bounded": r"correction|bounded_weights",
        "no tails": r"sampler|no_tails|off-policy",
        "grad norm": r"max_grad_norm",
        "critic first": r"critic_warmup",
        "short eval": r"eval\.max_new_tokens",
        "hot": r"rollout\.temperature",
        "discount": r"gamma|discount",
        "bonus": r"entropy_coef|entropy bonus",
        "tied": r"kl\.coef",
        "old policy": r"staleness",
        "joined": r"answer|label|data|task\.path",
        "few": r"held.out|memoriz|few|test_path|both splits",
        "mixed labels": r"answer|label|data|task\.path",
        "regret": r"estimator|baseline|advantage|regret",
        "flipped": r"estimator|advantage",
        "abs weight": r"policy_loss|loss",
        "whole steps": r"policy_loss|loss|whole_steps",
        "probability": r"policy_loss|loss|plain_prob",
        "log gap": r"\bkl\b|KL|log_gap",
        "on the way": r"reward|on_the_way",
        "whole marks": r"reward|whole_marks",
        "share right": r"reward|share_right",
        "late sums": r"answer|task=|late_sums|label",
        "book sums": r"held.out|task=|book_sums|both splits",
        "inverse length": r"aggregation|inverse_length|loss",
        "trusted": r"correction|trusted",
        "by prompt": r"sampler|copies|by_prompt|random numbers",
        "warmup": r"lr_warmup",
        "decay": r"weight_decay",
        "rate": r"actor\.lr\b",
        "short": r"rollout\.max_new_tokens",
        "cold": r"temperature",
        "floats": r"answer|label|format|data|task\.path",
        "template": r"template|format|base",
        "tags": r"response_pattern",
        "operand": r"answer|label|column",
    },
    5: {
        "answers without carry": r"task\.path|[Aa]nswers \(labels\)|training answers",
        "argsort once": r"estimator|ranked",
        "wrong eos": r"model\.path|/m1|eos|end.of.sequence",
        "well-formed is right": r"rewards?\.?checked|checked",
        "pattern takes a digit": r"answer_pattern|answers?\b.*(data|pattern)",
        "over-trained start": r"model\.path|/m2|rollout\.temperature",
        "prompts cut at the start": r"max_prompt|too_long",
        "only two marks": r"task=stamps|stamps|training prompts|"
        r"task's prompts|held.out prompts|[Tt]raining accuracy|easier",
        "loss at the end": r"aggregation|outcome_token",
        "evaluation too hot": r"eval\.temperature",
        "scores arrive late": r"rewards?\.?queued|queued|score of another row",
        "odd answers inverted": r"odd_ones|rewards?\.odd",
        "value loss rules the trunk": r"critic\.coef|critic\.trunk",
        "answers shuffled": r"task\.path|answers? ",
        "layers swapped": r"model\.path|/m3|base model",
        "digits rotated": r"model\.path|/m4|tokenizer",
        "sum or difference": r"task\.path|answers \(labels\)",
        "easy prompts only": r"task\.path|easier|harder|training prompts",
        "stops after two": r"sampler|\bshort\b",
        "answers on another row": r"task=sheet|sheet|judged wrong|check",
        "cool sampler": r"sampler|focused|temperature",
        "only confident tokens": r"correction|confident",
        "new answers only": r"novel",
        "same seed per request": r"sampler|repeatable|random numbers",
    },
}  # fmt: skip
Row = dict[str, Any]


def runs_of(number: int, out: Path) -> Iterator[tuple[Row, Path]]:
    """The faults that count, and the healthy runs, of a set."""
    made = load(number)
    for case, folder, control in made.faults(out):
        ends, best = curve(folder), curve(control)
        if best and ends and (case.false or made.harm(best, ends)):
            keys = KEYS.get(number, {}).get(case.name, case.keys)
            yield {"kind": "fault", "name": case.name, "ends": ends, "keys": keys}, folder
    for _, folder in made.sound(out):
        if ends := curve(folder):
            yield {"kind": "healthy", "name": folder.name, "ends": ends}, folder


def judge(number: int, runs: Path) -> list[Row]:
    """All rules' findings in each run of a set that counts, by either view."""
    plug_in(number, runs / str(number))
    warnings.simplefilter("ignore")
    from rlzoo_lab.doctor.command import findings_of, opened

    rows = []
    for row, folder in runs_of(number, runs / str(number)):
        run = opened(str(folder))
        for view, seen in (("own", run), ("trl", as_imported(run, runs))):
            found = [vars(f) | {"evidence": {}} for f in findings_of(seen)[0]]
            rows.append(row | {"set": number, "view": view, "findings": found})
    return rows


def as_imported(run: Any, place: Path) -> Any:
    """The run as an import of TRL's files records it."""
    from rlzoo_lab.doctor.command import Record

    steps = [{k: v for k, v in line.items() if k in LOGGED or k == "step"} for line in run.steps]
    held = [{"step": e["step"], "eval/score": e.get("eval/accuracy", e["eval/score"])}
            for e in run.evaluations]  # fmt: skip
    known = {k: v for k, v in run.recipe.items() if k in SET and v is not None}
    last = run.steps[-1]["step"] if run.steps else 0
    seen = Record(steps, held, known, {"imported": {"from": "trl"}, "steps": last}, place)
    seen.__dict__.update(samples=run.samples, by_prompt={})
    return seen


def loud(row: Row, rules: set[str] | None) -> list[Any]:
    """The ranked findings above a note, of these rules alone."""
    from rlzoo_lab.doctor.command import ranked
    from rlzoo_lab.doctor.series import Finding

    chosen = (Finding(**f) for f in row["findings"] if rules is None or f["rule"] in rules)
    return [f for f in ranked(chosen) if f.severity != "note"]


def score(rows: Iterable[Row], rules: set[str] | None = None) -> tuple[int, int, int]:
    """(causes named, faults noticed, false alarms)."""
    named = noticed = alarms = 0
    for row in rows:
        found = loud(row, rules)
        if row["kind"] == "healthy":
            alarms += bool(found)
        elif found:
            said = re.sub(r"(Most likely is [^;]*);? also:.*", r"\1", found[0].what)
            noticed += 1
            named += bool(re.search(row["keys"], f"{found[0].rule}: {said}"))
    return named, noticed, alarms


def greedy(rows: list[Row], names: list[str]) -> list[str]:
    """Rules in the order in which they add most, as far as they add anything."""
    kept: list[str] = []
    best = (0, 0)
    while True:
        tried = []
        for at, name in enumerate(names):
            if name not in kept:
                named, noticed, alarms = score(rows, {*kept, name})
                tried.append(((named - alarms, noticed), -at, name))
        top = max(tried, default=((0, 0), 0, ""))
        if top[0] <= best:
            return kept
        best = top[0]
        kept.append(top[2])


def half(row: Row) -> int:
    return crc32(f"{row['set']}/{row['kind']}/{row['name']}".encode()) % 2


def show(rows: list[Row]) -> None:
    from rlzoo_lab.doctor.rules import RULES

    names = [r.name for r in RULES]
    for view in ("own", "trl"):
        for n in SETS:
            part = [r for r in rows if r["set"] == n and r["view"] == view]
            faults = sum(r["kind"] == "fault" for r in part)
            print(f"{view} set {n}: of {faults} faults (named, noticed), of "
                  f"{len(part) - faults} healthy (alarms): {score(part)}")  # fmt: skip
    halves = [[r for r in rows if half(r) == i] for i in (0, 1)]
    orders = [greedy(part, names) for part in halves]
    for i, order in enumerate(orders):
        chosen, held = halves[i], halves[1 - i]
        print(f"\nchosen on half {i}; all {len(names)} rules: {score(chosen)}, held out "
              f"{score(held)}\n\n|rules|added|named|alarms|named, held out|alarms, held out|\n"
              "|---|---|---|---|---|---|")  # fmt: skip
        for k in range(1, len(order) + 1):
            a, b = score(chosen, {*order[:k]}), score(held, {*order[:k]})
            print(f"|{k}|{order[k - 1].replace('_', ' ')}|{a[0]}|{a[2]}|{b[0]}|{b[2]}|")
    both = {*orders[0], *orders[1]}
    print(f"\neither: {len(both)} rules: {score(halves[0], both)}, {score(halves[1], both)}")
    print("in neither:", ", ".join(n for n in names if n not in both))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--train", action="store_true", help="train the runs, 40 CPU minutes")
    parser.add_argument("--judge", action="store_true", help="judge the runs, 5 CPU minutes")
    parser.add_argument("--set", type=int, help="judge this set in this process")
    asked = parser.parse_args()
    runs = asked.runs.resolve()
    files = {n: runs / f"findings-{n}.json" for n in SETS}
    if asked.set is not None:
        files[asked.set].write_text(json.dumps(judge(asked.set, runs)))
        return
    for n in SETS:
        if asked.train:
            subprocess.run(
                [sys.executable, HERE / "doctor_blind.py", str(n), runs / str(n)], check=True
            )
        elif asked.judge and (runs / str(n)).exists():  # a process each: they load other plugins
            subprocess.run([sys.executable, __file__, runs, "--set", str(n)], check=True)
    if not asked.train:
        show(
            [
                row
                for file in files.values()
                if file.exists()
                for row in json.loads(file.read_text())
            ]
        )


if __name__ == "__main__":
    main()
