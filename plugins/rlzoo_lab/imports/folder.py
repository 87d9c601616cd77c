"""The run folder that an import writes: recipe.yaml, metrics.jsonl, samples.jsonl, summary.json and
provenance.json."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from rlzoo import __version__
from rlzoo.errors import UsageError
from rlzoo.format.text import one_line
from rlzoo.runs.folder import RunFolder
from rlzoo.runs.metrics import METRICS, SCORE
from rlzoo.runs.provenance import FILE
from rlzoo_lab.imports.found import Found, Sample, Values, grouped
from rlzoo_lab.imports.names import NOTES, TOKENS, own, recipe_keys, trainer_by_names, translate
from rlzoo_lab.imports.rollouts import sample_metrics
from rlzoo_lab.imports.tokens import Responses, responses, token_metrics

SAMPLES = 16  # of a step, in samples.jsonl
# Keys of a recipe that `rlzoo doctor` and `rlzoo compare` read.
KEYS = ("seed", "task.name", "model.path", "estimator.name", "actor.lr", "kl.coef", "kl.place",
        "rollout.prompts", "rollout.samples", "rollout.max_new_tokens", "rollout.temperature",
        "train.steps")  # fmt: skip


@dataclass
class Imported:
    """The contents of a run folder, with rlzoo's names. derived: metrics that follow from
    rollouts."""

    trainer: str
    recipe: dict[str, Any]
    steps: dict[int, Values]
    evaluations: dict[int, Values]
    samples: list[Sample]
    tokens: dict[int, Responses]
    derived: list[str]
    notes: list[str]
    files: Mapping[Path, str]

    @property
    def missing(self) -> list[str]:
        """The parts of an rlzoo run that this one does not have."""
        out = [] if self.evaluations else ["evaluations"]
        out += [] if any("eval/score" in e for e in self.evaluations.values()) or out else [
            "eval/score (--eval NAME chooses one)"]  # fmt: skip
        out += [] if self.samples else ["samples"]
        out += [] if self.tokens else ["tokens"]
        out += [f"recipe key {key}" for key in KEYS if key not in self.recipe]
        have = {name for line in self.steps.values() for name in line}
        for metric in METRICS:
            head = metric.name.partition("*")[0]
            there = metric.name in have or ("*" in metric.name and f"{head}mean" in have)
            if metric.maker != "evaluation" and not metric.when and not there:
                out.append(metric.name)
        return [name for name in out if name != "step"]


def convert(
    found: Found,
    formats: set[str],
    trainer: str | None,
    *,
    evaluation: str | None = None,
    seed: int | None = None,
    row: str | None = None,
) -> Imported:
    """The files' contents with rlzoo's names. trainer: what --from names, None to recognize it.

    Raises UsageError where the files are of another format than --from names.
    """
    names = [n for row in found.rows for n in row.values]
    known = sorted(formats - {"wandb", "csv"})  # in any process the same
    whose = known[0] if known else trainer_by_names(names)
    if trainer and trainer not in {whose, *formats} and not (trainer == "csv" and not whose):
        got = whose or " and ".join(sorted(formats)) or "an unknown trainer"
        raise UsageError(
            f"--from: {trainer}, but these files come from {got}; remove or change --from"
        )
    whose = whose or "csv"
    steps, evaluations, notes = _merged(found, whose)
    notes = [*found.notes, *notes]
    for (of, theirs), note in NOTES.items():
        if of == whose and any(n in (theirs, f"train/{theirs}") for n in names):
            notes.append(note)
    _choose(evaluations, evaluation)
    keys = recipe_keys(whose, found.settings)
    tokens = responses(found)
    derived = _derive(found, tokens, steps, keys.get("rollout.samples"))
    if seed is not None:
        keys["seed"] = seed
    keys |= {"imported.from": whose} | ({"imported.name": row} if row else {})
    if found.planned and "train.steps" not in keys:
        keys["train.steps"] = found.planned
    return Imported(whose, keys, steps, evaluations, found.samples, tokens, derived, notes,
                    found.files)  # fmt: skip


def _merged(found: Found, trainer: str) -> tuple[dict[int, Values], dict[int, Values], list[str]]:
    """(steps, evaluations, notes): rows of one step together. A metric that is there twice has its
    later value, since a resumed run trained on with it. An evaluation before the first step may
    log other numbers too, such as its seconds: they make no step 0."""
    steps: dict[int, Values] = {}
    evaluations: dict[int, Values] = {}
    twice = set()
    for row in found.rows:
        number = row.step
        for values, place in zip(translate(trainer, row.values), (steps, evaluations), strict=True):
            if values:
                line = place.setdefault(number, {})
                if any(k in line and line[k] != v and v == v for k, v in values.items()):
                    twice.add(number)
                line |= values
    notes = []
    if twice:
        notes.append(
            f"{len(twice)} steps occur twice with different values (the first is step "
            f"{min(twice)}); the later values are used")  # fmt: skip
    if 0 in evaluations and not any(map(own, steps.get(0, ()))):
        evaluations[0] |= steps.pop(0, {})
    if 0 in steps:
        notes.append(
            f"the first step of {trainer} is 0 and that of rlzoo is 1, so all step numbers are "
            "increased by 1"
        )
        steps = {n + 1: line for n, line in steps.items()}
        evaluations = {n + 1: line for n, line in evaluations.items()}
        if 0 in {s.step for s in found.samples} | {step for step, _ in found.tokens}:
            found.samples = [replace(s, step=s.step + 1) for s in found.samples]
            found.tokens = [(step + 1, t) for step, t in found.tokens]
    return dict(sorted(steps.items())), dict(sorted(evaluations.items())), notes


def _choose(evaluations: dict[int, Values], wanted: str | None) -> None:
    """Set eval/score: what --eval names, or the evaluations' only reward."""
    there = dict.fromkeys(k for line in evaluations.values() for k in line)
    if wanted is not None:
        hits = [k for k in there if wanted in (k, k.removeprefix("eval/"))]
        hits = hits or [k for k in there if wanted in k]
        if len(hits) != 1:
            raise UsageError(
                f"--eval: {wanted!r} matches {len(hits)} evaluation metrics, not one (available: "
                f"{', '.join(there) or 'none'})"
            )
    else:
        if SCORE in there:
            return
        hits = [k for k in there if k.startswith("eval/reward/")]
        hits = hits or [k for k in there if "/val-core/" in k and "/mean@" in k]
    if len(hits) == 1:
        for line in evaluations.values():
            if hits[0] in line:
                line[SCORE] = line[hits[0]]


def _derive(
    found: Found, tokens: dict[int, Responses], steps: dict[int, Values], per_prompt: Any
) -> list[str]:
    """Add what follows from rollouts where the trainer logged no such metric; returns the names."""
    samples = grouped(found.samples, lambda sample: sample.step)
    logged = {name for line in steps.values() for name in line}
    derived: dict[str, None] = {}
    for made, number in [
        *((sample_metrics(s, per_prompt if isinstance(per_prompt, int) else None), n)
          for n, s in samples.items()),
        *((token_metrics(t), n) for n, t in tokens.items()),
    ]:  # fmt: skip
        new = {k: v for k, v in made.items() if k not in logged}
        if new and (number in steps or not logged):
            steps.setdefault(number, {}).update(new)
            derived |= dict.fromkeys(new)
    return list(derived)


def write(
    imported: Imported, place: Path, source: Path, tokenizer: Path | None = None
) -> dict[str, Any]:
    """Write the files into an empty folder; returns its summary. tokenizer: its folder."""
    folder = RunFolder(place)
    label = imported.recipe.get("imported.name") or source.resolve().stem or imported.trainer
    label = one_line(str(label))
    recipe = yaml.safe_dump(_tree(imported.recipe), allow_unicode=True, sort_keys=True)
    (place / "recipe.yaml").write_text(f"# {label}\n{recipe}", encoding="utf-8")
    with open(place / "metrics.jsonl", "w", encoding="utf-8") as file:
        for line in _lines(imported):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    seen: dict[int, int] = {}
    for s in imported.samples:
        seen[s.step] = seen.get(s.step, 0) + 1
        if seen[s.step] <= SAMPLES:
            line = {"step": s.step, "prompt": s.prompt, "response": s.response,
                    "answer": s.answer, "score": s.score, "advantage": s.advantage}  # fmt: skip
            folder.append("samples.jsonl", {k: v for k, v in line.items() if v is not None})
    keys = imported.recipe
    paid_kl = bool(keys.get("kl.coef")) and keys.get("kl.place", "reward") == "reward"
    if tokenizer is None and source.is_dir():
        configs = source.rglob("tokenizer_config.json")
        tokenizer = next((path.parent for path in sorted(configs)), None)
    saved = list[int]()
    if imported.tokens:
        from rlzoo_lab.imports.batch import write_batches  # torch

        saved = write_batches(place, imported.tokens, tokenizer, paid_kl, imported.notes)
    summary = _summary(imported, label)
    summary["imported"]["batches"] = saved
    (place / "summary.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
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
    text = json.dumps([part], indent=1, ensure_ascii=False, default=str)
    (place / FILE).write_text(text, encoding="utf-8")
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
    last = max([*imported.steps, *imported.evaluations, *imported.tokens])
    out = {
        "recipe": label, "task": recipe.get("task.name", "unknown task"),
        "model": recipe.get("model.path"), "estimator": recipe.get("estimator.name"),
        "seed": recipe.get("seed"), "steps": last,
        "imported": {"from": imported.trainer, "missing": imported.missing,
                     "tokens": TOKENS.get(imported.trainer, "its files have none")},
    }  # fmt: skip
    if scores:
        out |= {"eval_metric": "score", "eval_before": scores[0], "eval_after": scores[-1]}
    planned = recipe.get("train.steps")
    if isinstance(planned, int) and last < planned:
        out["stopped"] = f"step {last} of {planned}"
    return out


def _tree(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested mappings; a key that is also a section is left out."""
    tree: dict[str, Any] = {}
    for key, value in keys.items():
        *above, last = key.split(".")
        at = tree
        for part in above:
            at = at.setdefault(part, {})
        at[last] = value
    return tree


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
