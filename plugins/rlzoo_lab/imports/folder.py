"""The run folder that an import writes: recipe.yaml, metrics.jsonl, samples.jsonl, summary.json and
provenance.json."""

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from rlzoo import __version__
from rlzoo.errors import UsageError
from rlzoo.format.text import one_line
from rlzoo.recipe.compose import nest
from rlzoo.runs.disk import json_text, write_json
from rlzoo.runs.folder import RunFolder
from rlzoo.runs.metrics import REWARD, SCORE
from rlzoo.runs.provenance import FILE
from rlzoo_lab.data.columns import bounded
from rlzoo_lab.data.metrics import metrics
from rlzoo_lab.data.strict import refuse_losses
from rlzoo_lab.imports.found import Found, Sample, Values, grouped, the_one
from rlzoo_lab.imports.names import own, recipe_keys, tables, trainer_by_names, translate
from rlzoo_lab.imports.rollouts import sample_metrics

UNKNOWN = "an unknown trainer"
SAMPLES = 16  # of a step, in samples.jsonl
# Keys of a recipe that `rlzoo doctor` and `rlzoo compare` read.
KEYS = ("seed", "task.name", "model.path", "estimator.name", "actor.lr", "kl.coef", "kl.place",
        "rollout.prompts", "rollout.samples", "rollout.max_new_tokens", "rollout.temperature",
        "train.steps")  # fmt: skip


@dataclass
class Imported:
    """A run with rlzoo's names. derived: metrics that follow from rollouts."""

    trainer: str
    recipe: dict[str, Any]
    steps: dict[int, Values]
    evaluations: dict[int, Values]
    samples: list[Sample]
    derived: list[str]
    notes: list[str]
    files: Mapping[Path, str]

    @property
    def missing(self) -> list[str]:
        """The parts of an rlzoo run that this one does not have."""
        have = {"step"}.union(*self.steps.values())
        scored = SCORE in set().union(*self.evaluations.values())
        expected = (m.name for m in metrics() if m.maker != "evaluation" and not m.requires)
        hint = {REWARD: f"{REWARD} (--reward NAME chooses one)"}
        return [
            *(() if self.evaluations else ["evaluations"]),
            *(() if scored or not self.evaluations else ["eval/score (--eval NAME chooses one)"]),
            *(() if self.samples else ["samples"]),
            "tokens",
            *(f"recipe key {key}" for key in KEYS if key not in self.recipe),
            *(hint.get(n, n) for n in expected if have.isdisjoint([n, n.replace("*", "mean")])),
        ]


def convert(
    found: Found,
    trainer: str | None,
    given: Mapping[str, Any],
    *,
    evaluation: str | None = None,
    reward: str | None = None,
) -> Imported:
    """The files' contents with rlzoo's names. trainer: what --from names, None to recognize it.
    evaluation, reward: the metrics that become eval/score and reward/mean. given: recipe keys.

    Raises UsageError where the files are of another format than --from names.
    """
    names = dict.fromkeys(n for row in found.rows for n in row.values)
    known = sorted(found.formats - {"wandb", "csv"})  # in any process the same
    whose = known[0] if known else trainer_by_names(names, found.stepped)
    if trainer and whose and trainer not in {whose, *found.formats}:
        raise UsageError(
            f"--from: {trainer}, but these files come from {whose}; remove or change --from"
        )
    whose = whose or (trainer if trainer in tables() else None) or "csv"
    steps, evaluations, notes = _merged(found, whose)
    notes = [*found.notes, *notes]
    keys = recipe_keys(whose, found.settings)
    in_reward = keys.get("kl.place") == "reward"
    for line in steps.values() if in_reward else ():
        line.pop("actor/kl_loss", None)  # of TRL's RLOO, whose kl is k1 at rollout
    for theirs, note in tables().get(whose, {}).get("notes", {}).items():
        if not {theirs, f"train/{theirs}"}.isdisjoint(names) and not (in_reward and theirs == "kl"):
            notes.append(note)
    if whose == "trl":
        notes += _std_of_scores(steps)
    _choose("--eval", evaluations, evaluation, SCORE)
    _choose("--reward", steps, reward, REWARD)
    derived = _derive(found, steps, keys.get("rollout.samples"))
    notes += [f"{key}: {value}, in place of the files' {keys[key]}"
              for key, value in given.items() if keys.get(key, value) != value]  # fmt: skip
    keys |= {**given, "imported.from": whose}
    if found.planned and "train.steps" not in keys:
        keys["train.steps"] = found.planned
    return Imported(whose, keys, steps, evaluations, found.samples, derived, notes,
                    found.files)  # fmt: skip


def _merged(found: Found, trainer: str) -> tuple[dict[int, Values], dict[int, Values], list[str]]:
    """(steps, evaluations, notes): rows of one step together. A metric that is there twice has its
    later value, since a resumed run trained on with it."""
    steps: dict[int, Values] = {}
    evaluations: dict[int, Values] = {}
    again, twice, within, beside = False, set[int](), dict[str, None](), list[int]()
    top = last = -1
    for row in found.rows:
        for values, place in zip(translate(trainer, row.values), (steps, evaluations), strict=True):
            if not values:
                continue
            line = place.setdefault(row.step, {})
            changed = [k for k, v in values.items() if k in line and line[k] != v and v == v]
            if place is steps:
                again = row.step < top or (again and row.step == top)
                top, last = max(top, row.step), row.step
            if REWARD in changed and not again:
                beside.append(row.step)
            if changed and (again or any(map(own, changed))):
                twice.add(row.step)
            else:
                within |= dict.fromkeys(changed)
            line |= values
    several = len({*beside})
    if len(beside) > 1 and 2 * several > len(steps):
        raise UsageError(
            f"SOURCE: {several} of {len(steps)} steps have several rewards, of samples or of "
            "runs that no column names; it needs one for each step (--step NAME names another)"
        )
    notes = []
    if twice:
        old = f"; steps {last + 1} to {top} are from before it resumed" if last < top else ""
        notes.append(f"{len(twice)} steps occur twice with different values (the first is step "
                     f"{min(twice)}), as in a resumed run; the later are used{old}")  # fmt: skip
    if within:
        more = f" and {len(within) - 1} more" if len(within) > 1 else ""
        notes.append(f"several values in a step, of which the last is used: {next(iter(within))}"
                     f"{more}")  # fmt: skip
    early = {} if trainer == "csv" or any(map(_measured, steps.get(0, ()))) else steps.pop(0, {})
    if early:  # a setting or a timing makes no step
        first = evaluations.get(0) or steps.setdefault(min(steps, default=1), {})
        first |= {k: v for k, v in early.items() if k not in first}
    if 0 in steps and trainer != "csv":
        notes.append(
            f"the first step of {trainer} is 0 and that of rlzoo is 1, so all step numbers are "
            "increased by 1"
        )
        steps = {n + 1: line for n, line in steps.items()}
        evaluations = {n + 1: line for n, line in evaluations.items()}
        if 0 in {s.step for s in found.samples}:
            found.samples = [replace(s, step=s.step + 1) for s in found.samples]
    return dict(sorted(steps.items())), dict(sorted(evaluations.items())), notes


def _measured(name: str) -> bool:
    """Whether only a training step has this metric: rates and times are logged before one, too."""
    return own(name) and not re.search(r"/(?:lr|kl_coef)$|^(?:timing|perf)", name)


def _std_of_scores(steps: dict[int, Values]) -> list[str]:
    """Set score/std in a run of TRL; returns notes. Up to 0.26, TRL's reward_std is the mean of
    the groups' standard deviations, and since then that of all rewards. If there is one reward
    function, its rewards/NAME/std (since 0.17) is always the latter."""
    names = {k for line in steps.values() for k in line}
    theirs = {k for k in names if re.fullmatch(r"trl/rewards/[^/]+/std", k)}
    only = next(iter(theirs)) if len(theirs) == 1 else ""
    part = f"score/{only.split('/')[2]}" if only else ""
    lines = [line for line in steps.values() if "trl/reward_std" in line]
    alike = [li for li in lines if only in li and _near(li.get("score/mean"), li.get(part))]
    total = alike and all(_near(line["trl/reward_std"], line[only]) for line in alike)
    for line in steps.values():
        if total and "trl/reward_std" in line:
            line["score/std"] = line.pop("trl/reward_std")
        elif alike and only in line:
            line["score/std"] = line[only]
    if not lines or total:
        return []
    return ["trl/reward_std may be the mean of the groups' standard deviations, as TRL logs it up "
            "to 0.26, so it is not score/std"]  # fmt: skip


def _near(a: float | None, b: float | None) -> bool:
    return a is not None and b is not None and math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-6)


def _choose(option: str, lines: dict[int, Values], wanted: str | None, name: str) -> None:
    """Set eval/score or reward/mean: what an option names, or the evaluations' only reward."""
    there = [*dict.fromkeys(k for line in lines.values() for k in line)]
    if wanted is not None:
        exact = [k for k in there if wanted in (k, k.removeprefix("eval/"), k.partition("/")[2])]
        hits = [the_one(option, wanted, there, exact, "metrics")]
        refuse_losses(option, hits[0])
    else:
        if name in there or name != SCORE:
            return
        hits = [k for k in there if k.startswith("eval/reward/")]
        hits = hits or [k for k in there if "/val-core/" in k and "/mean@" in k]
        hits = hits or [k for k in there if "/val/test_score/" in k]
    if len(hits) == 1:
        for line in lines.values():
            if hits[0] in line:
                line[name] = line[hits[0]]


def _derive(found: Found, steps: dict[int, Values], per_prompt: Any) -> list[str]:
    """Add what follows from rollouts where the trainer logged no such metric; returns the names."""
    samples = grouped(found.samples, lambda sample: sample.step)
    logged = {name for line in steps.values() for name in line}
    derived: dict[str, None] = {}
    for number, rows in samples.items():
        made = sample_metrics(rows, per_prompt if isinstance(per_prompt, int) else None)
        new = {k: v for k, v in made.items() if k not in logged}
        if new and (number in steps or not logged):
            steps.setdefault(number, {}).update(new)
            derived |= dict.fromkeys(new)
    return list(derived)


def write(imported: Imported, place: Path, source: Path) -> dict[str, Any]:
    """Write the files into an empty folder; returns its summary."""
    folder = RunFolder(place)
    label = imported.recipe.get("imported.name") or source.resolve().stem or imported.trainer
    label = one_line(str(label))
    recipe = yaml.safe_dump(nest(imported.recipe), allow_unicode=True, sort_keys=True)
    (place / "recipe.yaml").write_text(f"# {label}\n{recipe}", encoding="utf-8")
    with open(place / "metrics.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json_text(line) + "\n" for line in _lines(imported))
    seen: dict[int, int] = {}
    for s in imported.samples:
        seen[s.step] = seen.get(s.step, 0) + 1
        if seen[s.step] <= SAMPLES:
            line = {"step": s.step, "prompt": s.prompt, "response": s.response,
                    "answer": s.answer, "score": s.score, "advantage": s.advantage,
                    "truncated": s.truncated}  # fmt: skip
            folder.append("samples.jsonl", {k: v for k, v in line.items() if v is not None})
    summary = _summary(imported, label)
    write_json(place / "summary.json", summary)
    part = {
        "from_step": 0,
        "recipe": imported.recipe,
        "versions": {"rlzoo": __version__},
        "imported": {
            "from": imported.trainer,
            "files": [{"path": str(path), "is": kind, "sha256": _digest(path)}
                      for path, kind in imported.files.items()],
            "derived": imported.derived,
            "missing": imported.missing,
            "notes": imported.notes,
        },
    }  # fmt: skip
    write_json(place / FILE, [part])
    return summary


def _lines(imported: Imported) -> Iterable[dict[str, Any]]:
    """An evaluation comes before the next step, as in a run."""
    for number in sorted({*imported.steps, *imported.evaluations}):
        for lines in (imported.steps, imported.evaluations):
            if number in lines:
                yield {"step": number} | lines[number]


def _summary(imported: Imported, label: str) -> dict[str, Any]:
    recipe = imported.recipe
    scores = [line[SCORE] for line in imported.evaluations.values() if SCORE in line]
    last = max([*imported.steps, *imported.evaluations])
    out = {
        "recipe": label, "task": recipe.get("task.name", "unknown task"),
        "model": recipe.get("model.path"), "estimator": recipe.get("estimator.name"),
        "seed": recipe.get("seed"), "steps": last,
        "imported": {"from": UNKNOWN if imported.trainer == "csv" else imported.trainer,
                     "missing": imported.missing},
    }  # fmt: skip
    if scores:
        before, after = bounded(scores[0]), bounded(scores[-1])
        out |= {"eval_metric": "score", "eval_before": before, "eval_after": after}
    planned = recipe.get("train.steps")
    if isinstance(planned, int) and last < planned:
        out["stopped"] = f"step {last} of {planned}"
    return out


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
