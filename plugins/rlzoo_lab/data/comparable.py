"""Run folders as rows to compare: a row is a configuration whose runs differ in the seed. No torch.

folders -> Record (a finished run) -> ComparedRow (the runs whose recipes agree but for the seed)
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from rlzoo.errors import RunError, UsageError, first_line
from rlzoo.format.text import one_line
from rlzoo.recipe.files import Flat
from rlzoo.recipe.keys import COLLECTIONS
from rlzoo.runs.disk import read_json, refuse_devices
from rlzoo.runs.folder import open_folder
from rlzoo.runs.metrics import REF_KL_PER_RESPONSE, REWARD, SECONDS, TOKENS
from rlzoo.runs.provenance import FILE
from rlzoo.runs.store import copy_of
from rlzoo_lab.data.record import Record, failure, read_finished

DECODING = ("temperature", "top_k", "top_p", "max_new_tokens")

# What may differ between runs of one row: where, on what and how often written, not what is run.
BOOKKEEPING = ("seed", "device", "eval.every", "loggers")

BOOKKEEPING_SECTIONS = ("run.", "checkpoint.", "loggers.")

# The metrics of training steps that a comparison shows.
COMPARED = {TOKENS, SECONDS, REWARD, REF_KL_PER_RESPONSE}

# These must agree for scores to be on one scale, and so must the task, the model, how evaluations
# decode and, where the score is compared, what it consists of: docs/compare.md gives the reasons.
TERMS = ("eval.samples", "train.steps", "train.tokens", "train.minutes", "model.system",
         "model.chat", "model.chat_args")  # fmt: skip

# Parts of the score that accuracy does not have.
PAID = ("rewards", "rewards.", "rollout.truncation", "rollout.truncation_penalty")


@dataclass
class ComparedRow:
    """A configuration: its values of the keys in which rows differ, and its runs by seed. `lost`:
    runs that came to no number, and why. `split`: seeds whose runs ended far below the others."""

    label: str
    values: Mapping[str, Any]
    runs: dict[int, Record]
    lost: dict[str, str] = field(default_factory=dict)
    split: list[int] = field(default_factory=list)

    @property
    def seeds(self) -> list[int]:
        return sorted(self.runs)

    @property
    def scores(self) -> list[float]:
        return [self.runs[seed].score for seed in self.seeds]


@dataclass
class Gathered:
    """The content of some folders: finished runs, and the names of other runs."""

    records: list[Record] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # run -> why
    failed: dict[str, dict[str, str]] = field(default_factory=dict)  # row label -> run -> reason
    swept: list[str] = field(default_factory=list)  # keys that sweeps ran over
    # For a single sweep: its rows, without runs, and which of them each folder belongs to.
    rows: dict[str, ComparedRow] = field(default_factory=dict)
    row_of: dict[Path, str] = field(default_factory=dict)

    def lost(self) -> list[ComparedRow]:
        """The sweep's rows of which no run is finished."""
        left = {self.row_of.get(record.path) for record in self.records}
        return [row for name, row in self.rows.items() if name not in left]


def gather(paths: Iterable[str | Path]) -> Gathered:
    """Runs, sweeps and folders of runs; raises RunError for any other path."""
    gathered = Gathered()
    seen: set[Path] = set()
    folders = [copy_of(path, large=False) for path in paths]
    for path in folders:
        refuse_devices(path)
        sweep = read_sweep(path)
        if sweep:
            gathered.swept += [k for k in sweep["keys"] if k not in gathered.swept]
            for row in sweep["rows"]:
                name, runs = row.get("label", ""), [path / run for run in row["runs"]]
                if name and len(folders) == 1:
                    gathered.rows[name] = ComparedRow(name, row.get("values", {}), {})
                    gathered.row_of |= dict.fromkeys(runs, name)
                _take(runs, gathered, seen, name)
            continue
        inside = sorted(p.parent for p in path.glob("*/recipe.yaml"))
        if not inside or (path / "recipe.yaml").is_file():
            inside = [open_folder(path).path]
        _take(inside, gathered, seen)
    return gathered


def read_sweep(path: Path) -> dict[str, Any]:
    """A sweep folder's sweep.json; empty for any other folder."""
    file = path / "sweep.json"
    if not file.is_file():
        return {}
    try:
        found = read_json(file)
        texts = [*found["keys"]]
        for row in found["rows"]:
            texts += [*row["runs"], row.get("label", ""), *row.get("words", [])]
            if not isinstance(row.get("values", {}), dict):
                raise TypeError("the values of a row are not a mapping")
            row["label"] = one_line(row.get("label", ""))
            if elsewhere := [r for r in row["runs"] if r in ("", ".", "..") or Path(r).name != r]:
                raise ValueError(f"{elsewhere[0]!r} is not one of its runs")
        if odd := [x for x in texts if not isinstance(x, str)]:
            raise TypeError(f"{odd[0]!r} is not a string")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise RunError(
            f"{file} cannot be read ({first_line(error)}); remove it and repeat the `rlzoo sweep` "
            "command to create it again"
        ) from None
    return found


def _take(folders: list[Path], gathered: Gathered, seen: set[Path], row: str = "") -> None:
    for path in folders:
        if path.resolve() in seen:
            continue
        seen.add(path.resolve())
        if not path.is_dir():
            gathered.skipped[path.name] = "not begun"
            continue
        reason = failure(path)
        if reason and not (path / "summary.json").is_file():  # else `rlzoo resume` finished it
            gathered.failed.setdefault(row or path.name, {})[path.name] = reason
            continue
        record = read_finished(path, COMPARED.__contains__)
        if isinstance(record, str):
            gathered.skipped[path.name] = record
        else:
            gathered.records.append(record)


def make_rows(gathered: Gathered) -> tuple[list[ComparedRow], list[str]]:
    """The rows, in the order of their runs, and notes on decisions.

    A sweep has labelled its rows already; others are labelled by the keys in which they differ.
    """
    groups: dict[str, list[Record]] = {}
    for record in gathered.records:
        identity = settings(record)
        identity.pop("recipe")
        groups.setdefault(repr(sorted(identity.items())), []).append(record)
    names = [gathered.row_of.get(group[-1].path, "") for group in groups.values()]
    if "" in names or len(set(names)) < len(names):
        rows = labelled([group[0] for group in groups.values()], gathered.swept)
    else:
        rows = [replace(gathered.rows[name], runs={}, lost={}, split=[]) for name in names]
    notes = []
    for row, group in zip(rows, groups.values(), strict=True):
        for record in sorted(group, key=lambda r: (r.path / "summary.json").stat().st_mtime):
            if not math.isfinite(record.score):
                why = f"its final {record.metric} is {record.score}"
                gathered.failed.setdefault(row.label, {})[record.path.name] = why
                continue
            if record.seed in row.runs:
                older = row.runs[record.seed].path.name
                notes.append(
                    f"{row.label}, seed {record.seed}: there are two runs; using the newer one, "
                    f"{record.path.name}, instead of {older}"
                )
            row.runs[record.seed] = record
        row.lost = gathered.failed.get(row.label, {})
    return [row for row in rows if row.runs], notes


def labelled(records: Sequence[Record], swept: Sequence[str]) -> list[ComparedRow]:
    """A row without runs for each record, by the keys in which they differ."""
    configs = [settings(r) for r in records]
    keys = telling_keys(configs, swept)
    values = [{k: config[k] for k in keys if k in config} for config in configs]
    return [
        ComparedRow(label(told) or config["recipe"], told, {})
        for config, told in zip(configs, values, strict=True)
    ]


def settings(record: Record) -> dict[str, Any]:
    """The recipe without bookkeeping; how its evaluations decode by the same keys whenever it
    ran."""
    kept = {k: v for k, v in record.recipe.items()
            if k not in BOOKKEEPING and not k.startswith(BOOKKEEPING_SECTIONS)}  # fmt: skip
    return kept | {k: v for k, v in decoding_of(record.recipe).items() if v is not None}


def telling_keys(configs: Sequence[Flat], swept: Sequence[str]) -> list[str]:
    """The fewest keys that distinguish the configurations: swept ones first, then the one that
    parts most, names of components before their options."""

    def groups(keys: Sequence[str]) -> int:
        return len({tuple(repr(c.get(k)) for k in keys) for c in configs})

    differing = {k for c in configs for k in c if groups([k]) > 1}
    keys = [k for k in swept if k in differing]
    rest = sorted(
        differing.difference(keys), key=lambda k: (k != "recipe", k.startswith("eval."), k)
    )
    for candidates in ([k for k in rest if is_name(k)], [k for k in rest if not is_name(k)]):
        while candidates and groups(keys) < len(configs):
            best = max(candidates, key=lambda k: groups([*keys, k]))
            if groups([*keys, best]) == groups(keys) and is_name(best):
                break
            keys.append(best)
            candidates.remove(best)
    return keys


def is_name(key: str) -> bool:
    """Whether a key chooses a component, so that its value suffices as a label."""
    return key == "recipe" or key in COLLECTIONS or key.endswith(".name")


def label(values: Mapping[str, Any]) -> str:
    """`gae lam=0.5`: names as they are, options by the shortest word that distinguishes them."""
    shorts = [k.rpartition(".")[2] for k in values]
    words = []
    for (key, value), short in zip(values.items(), shorts, strict=True):
        lead = "" if is_name(key) else f"{key if shorts.count(short) > 1 else short}="
        words.append(lead + as_typed(value))
    return one_line(" ".join(words))


def as_typed(value: Any) -> str:
    """The value as a user would type it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value).replace(" ", "")


def numeric(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def terms(record: Record) -> dict[str, Any]:
    """The settings other than the method on which a run's score depends: key -> value."""
    recipe = record.recipe
    found = {k: recipe[k] for k in sorted(recipe, key=lambda k: (k != "task.name", k))
             if k.startswith("task.")}  # fmt: skip
    found |= {key: recipe.get(key) for key in TERMS}
    found["model"] = recipe.get("model.name") or recipe.get("model.path")
    found["model.path"] = recipe.get("model.path")
    found |= sources(record)
    found |= decoding_of(recipe)
    found["sampler"] = recipe.get("sampler.inner") or recipe.get("sampler.name")
    found["eval metric"] = record.metric
    if record.metric == "score":
        found |= {k: recipe[k] for k in sorted(recipe) if k.startswith(PAID)}
    return found


def sources(record: Record) -> dict[str, str]:
    """Checksums of a run's parts other than its recipe, as far as it recorded them: the
    model's weights, the source of the task and, where the score is compared, of the rewards."""
    made = made_of(record.path)
    paid = record.metric == "score" or record.metric.startswith("reward/")
    sections = ("task ", "rewards.") if paid else ("task ",)
    found = {"model.weights": made["weights"]} if "weights" in made else {}
    return found | code_of(made, sections)


def made_of(path: Path, part: int = 0) -> dict[str, Any]:
    """A part of a run's provenance.json, the first; empty if there is none that can be read."""
    try:
        made = dict(read_json(path / FILE)[part])
        for name in {"components", "versions"} & made.keys():
            made[name] = {k: str(v) for k, v in dict(made[name]).items()}
        return made
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def code_of(made: Mapping[str, Any], sections: tuple[str, ...] = ("",)) -> dict[str, str]:
    """Checksums of the source of a run's components, those of some sections."""
    told = made.get("components", {}).items()
    return {f"source of {k}": v.rpartition(" ")[2] for k, v in told if k.startswith(sections)}


def made_otherwise(records: Sequence[Record]) -> list[str]:
    """Differences between runs that do not affect the scale: the code of estimators, losses and
    samplers, and the libraries; a line each."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        made = made_of(record.path)
        for key, value in (code_of(made) | made.get("versions", {})).items():
            found.setdefault(key, {})[value] = None
    return [f"{key} differs: {', '.join(seen)}" for key, seen in found.items() if len(seen) > 1]


def unrecorded(records: Sequence[Record]) -> list[str]:
    """The facts that an older run, without such records, cannot prove."""
    kept = {
        "the weights of the starting model": lambda r: "weights" in made_of(r.path),
        "the source of task and rewards": lambda r: "components" in made_of(r.path),
        "held-out prompts": lambda r: "prompt" in r.by_prompt,
    }
    return [what for what, has in kept.items() if not all(map(has, records))]


def other_prompts(records: Sequence[Record]) -> dict[str, list[str]]:
    """Checksum of prompts -> names of runs, if runs with the same seed had different prompts."""
    by_seed: dict[int, dict[str, list[str]]] = {}
    for r in records:
        if "prompt" in r.by_prompt:
            digest = f"{crc32(r.by_prompt['prompt'].tobytes()):08x}"
            name = f"{r.path.parent.name}/{r.path.name}"
            by_seed.setdefault(r.seed, {}).setdefault(digest, []).append(name)
    return next((found for found in by_seed.values() if len(found) > 1), {})


def differences(records: Sequence[Record]) -> dict[str, dict[str, list[str]]]:
    """The keys in which runs are not on one scale: key -> value -> names of runs."""
    told = [terms(r) for r in records]
    differing: dict[str, dict[str, list[str]]] = {}
    if len({one.get("model.weights", i) for i, one in enumerate(told)}) == 1:
        for one in told:  # the same weights, whatever they are called and wherever they lay
            del one["model"], one["model.path"]
    for key in dict.fromkeys(k for one in told for k in one):
        if key.startswith(("model.weights", "source of ")) and any(key not in t for t in told):
            continue  # of runs that did not record it, or of another component
        if key == "model.path" and "model" in differing:
            continue
        by_value: dict[str, list[str]] = {}
        for r, one in zip(records, told, strict=True):
            path = r.path.absolute()
            name = f"{path.parent.name}/{path.name}".lstrip("/")
            by_value.setdefault(as_typed(one.get(key)), []).append(name)
        if len(by_value) > 1 and not (key.startswith("task.") and "task.name" in differing):
            differing[key] = by_value
    if not {"task.name", "eval.samples"} & differing.keys() and (found := other_prompts(records)):
        differing["held-out prompts"] = found
    return differing


def check_comparable(gathered: Gathered, force: bool) -> list[str]:
    """Remaining differences to state in the title: swept keys, or those allowed by --force. Raises
    UsageError naming the runs otherwise."""
    named = []
    meant = {k.split(".")[0] for k in gathered.swept if k.startswith("task.")}
    for key, by_value in differences(gathered.records).items():
        swept = {key, f"{key}.name", key.replace("eval.", "rollout.")} & set(gathered.swept)
        if not (force or swept or key.split(".")[0] in meant):
            sides = [f"{value} in {_some(runs)}" for value, runs in by_value.items()]
            raise UsageError(
                f"runs with different {key} cannot be compared: {', '.join(sides)}; use --force "
                "to compare them anyway; the title then shows the difference"
                + "; use --metric reward/NAME to compare a single reward"
                * key.startswith("rewards")
            )
        named.append(f"{key}: {', '.join(by_value)}")
    return named


def _some(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def decoding_of(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """How a run's evaluations decode, by `eval.` keys; what is null is as in its rollouts."""
    settings = {}
    for name in DECODING:
        value = recipe.get(f"eval.{name}")
        settings[f"eval.{name}"] = recipe.get(f"rollout.{name}") if value is None else value
    return settings
