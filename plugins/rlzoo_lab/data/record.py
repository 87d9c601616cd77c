"""A run as read from its folder: its recipe, the lines that it wrote, and its summary."""

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_origin

from rlzoo.errors import RecipeError, RunError, first_line, in_short
from rlzoo.format.text import one_line
from rlzoo.recipe.files import Flat, flatten, parse_yaml
from rlzoo.recipe.keys import COLLECTIONS, KEYS
from rlzoo.runs.disk import is_number, read_json
from rlzoo.runs.evaluations import read_evaluation
from rlzoo.runs.folder import RunFolder
from rlzoo.runs.metrics import ACCURACY, EVAL_LENGTH, REWARD, SCORE, TOKENS, is_evaluation
from rlzoo_lab.data.columns import Columns, bounded

# The measure of runs of other trainers without an evaluation: over the last tenth of the steps.
TRAINING = "training reward"


class Unknown(Exception):
    """A setting, `key`, that an imported run does not record: never a default of rlzoo's."""

    def __init__(self, key: str):
        super().__init__(f"{key} is unknown")
        self.key = key


@dataclass
class Record:
    """The data of a run: a mapping per training step and per evaluation, its recipe (dotted key ->
    value), and its summary, which is empty until the run finishes."""

    steps: Columns = field(repr=False)
    evaluations: Columns = field(default_factory=Columns, repr=False)
    recipe: Mapping[str, Any] = field(default_factory=dict, repr=False)
    summary: dict[str, Any] = field(default_factory=dict)
    path: Path = Path()
    troubles: list[str] = field(default_factory=list)
    # The metric of evaluations to go by, or TRAINING; empty: what the summary goes by.
    measure: str = ""

    def __post_init__(self) -> None:
        for name in ("steps", "evaluations"):
            if not isinstance(getattr(self, name), Columns):
                setattr(self, name, Columns(getattr(self, name)))

    @property
    def seed(self) -> int:
        return self.recipe["seed"]

    @property
    def metric(self) -> str:
        """The metric of evaluations, without `eval/`, by which this run is compared."""
        return self.measure or self.summary["eval_metric"]

    @property
    def what(self) -> str:
        """The measure of the comparison, in words."""
        given = self.measure == TRAINING or "given" in self.summary
        return self.metric if given else f"held-out {self.metric}"

    @property
    def score(self) -> float:
        """Held-out, at the end; NaN if the run came to no number."""
        if self.measure == TRAINING:
            late = self.late(REWARD)
            return math.nan if late is None else late
        if self.measure:
            return float(bounded(self.evaluations[-1].get(f"eval/{self.measure}", math.nan)))
        return float(bounded(self.summary["eval_after"]))

    @property
    def before(self) -> float:
        """Held-out, before the first step; or the mean training reward of the first tenth."""
        if self.measure == TRAINING:
            first = self.series(REWARD)[: max(1, len(self.steps) // 10)]
            return sum(first) / len(first) if first else math.nan
        if self.measure:
            return float(bounded(self.evaluations[0].get(f"eval/{self.measure}", math.nan)))
        return float(bounded(self.summary["eval_before"]))

    @cached_property
    def learning_curve(self) -> list[tuple[float, float, float]]:
        """(step, tokens generated so far, held-out score) of each evaluation; steps in place of
        tokens where these were not recorded."""
        key = f"eval/{self.metric}"
        evaluated = {m["step"]: bounded(m[key]) for m in self.evaluations if key in m}
        if self.measure == TRAINING:
            evaluated = dict(self.points(REWARD))
        spent = {n: x for n, x in zip(*self.steps.column(TOKENS), strict=True) if n in evaluated}
        return [(n, spent.get(n, 0.0 if spent else n), value) for n, value in evaluated.items()]

    @cached_property
    def by_prompt(self) -> Mapping[str, Any]:
        """The last evaluation's arrays, a number for each prompt; empty if none were kept."""
        if not self.evaluations:
            return {}
        return read_evaluation(self.path, self.evaluations[-1]["step"]) or {}

    @cached_property
    def samples(self) -> list[dict[str, Any]]:
        """The first 512 lines of samples.jsonl: prompt, response, answer and score."""
        return list(islice(RunFolder(self.path).lines("samples.jsonl"), 512))

    @property
    def length(self) -> float | None:
        """The mean length of the last evaluation's responses, in tokens."""
        return self._last(EVAL_LENGTH)

    @property
    def accuracy(self) -> float | None:
        """The last evaluation's accuracy; None if the task cannot check answers."""
        return self._last(ACCURACY)

    @property
    def solved(self) -> bool:
        return self.accuracy is not None and self.accuracy >= 0.95

    @property
    def improved(self) -> bool:
        """Whether held-out prompts got better, by more than their intervals."""
        if len(self.evaluations) < 2:
            return False
        before, after = self.evaluations[0], self.evaluations[-1]
        name = ACCURACY if ACCURACY in after else SCORE
        return after.get(f"{name}_low", -math.inf) > before.get(f"{name}_high", math.inf)

    def _last(self, name: str) -> float | None:
        values = [m[name] for m in self.evaluations if name in m]
        return values[-1] if values else None

    def late(self, name: str) -> float | None:
        """Mean of a metric over the last tenth of the steps; None if it was not recorded."""
        if not self.steps:
            return None
        since = self.steps[-max(1, len(self.steps) // 10)]["step"]
        values = [x for n, x in zip(*self.steps.column(name), strict=True) if n >= since]
        return sum(values) / len(values) if values else None

    def points(self, name: str) -> Iterator[tuple[int, float]]:
        """(step, value) of a metric where it is finite."""
        return ((n, float(x)) for n, x in zip(*self.steps.column(name), strict=True))

    def steps_of(self, name: str) -> Sequence[int]:
        """The steps of `points`."""
        return self.steps.column(name)[0]

    def series(self, name: str) -> Sequence[float]:
        """The values of `points`: an array, since a list would take eight times its memory."""
        values = self.steps.column(name)[1]
        return array("d", values) if values.typecode == "q" else values

    def has(self, name: str) -> bool:
        return name in self.steps.numbers

    @property
    def trainer(self) -> str:
        """The trainer of an imported run; empty for a run of rlzoo."""
        imported = self.summary.get("imported")
        return str(imported.get("from", "another trainer")) if isinstance(imported, dict) else ""

    def key(self, dotted: str, default: Any = None) -> Any:
        """A value of the recipe. Raises Unknown if an imported run does not record it."""
        if self.trainer and dotted not in self.recipe:
            raise Unknown(dotted)
        return self.known(dotted, default)

    def known(self, dotted: str, default: Any = None) -> Any:
        """A value of the recipe; `default` if it is null or unknown: for words, and for judgements
        that do not depend on it."""
        value = self.recipe.get(dotted)
        return default if value is None else value


def read_record(
    path: Path, wanted: Callable[[str], bool] | None = None, single: bool = False
) -> Record:
    """A run's folder, finished or not, as far as it can be read; `troubles` lists what is missing
    or damaged. Raises OSError.

    wanted: whether a metric of a step is kept, by its name; default: all.
    single: steps' numbers are held in single precision.
    """
    folder = RunFolder(path)
    troubles: list[str] = []
    config: Flat = {}
    steps, evaluations = Columns(wanted=wanted, single=single), Columns()
    summary: dict[str, Any] = {}
    recipe = (path / "recipe.yaml").read_text(encoding="utf-8", errors="replace")
    try:
        config = flat_config(parse_yaml(recipe), one_line(recipe.split("\n", 1)[0].lstrip("# ")))
        for key in [key for key, value in config.items() if not _sound(key, value)]:
            troubles.append(f"recipe.yaml: ignoring {key}={in_short(config.pop(key))}")
    except (ValueError, AttributeError, TypeError, RecipeError) as error:
        troubles.append(f"recipe.yaml: not valid YAML: {first_line(error)}")
    if (path / "metrics.jsonl").exists():
        for line in folder.lines("metrics.jsonl", troubles):
            if not is_evaluation(line):
                steps.append(line)
            elif odd := [k for k, v in line.items() if type(v) not in (int, float)]:
                where = f"metrics.jsonl: ignoring the evaluation of step {line['step']}"
                troubles.append(f"{where}: its {odd[0]} is not a number")
            else:
                evaluations.append(line)
    else:
        troubles.append(
            "metrics.jsonl is missing, because the run stopped before its first evaluation"
        )
    try:
        summary = folder.summary()
        if isinstance(imported := summary.get("imported"), dict):
            missing = [str(name) for name in imported.get("missing") or ()]
            more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
            lacks = f"; not recorded by it: {', '.join(missing[:8])}{more}" if missing else ""
            troubles.append(f"imported from {imported.get('from', 'another trainer')}{lacks}")
    except RunError as error:
        troubles.append(str(error))
    return Record(steps, evaluations, config, summary, path, troubles)


def _sound(key: str, value: Any) -> bool:
    """Whether a value of a recipe has its key's type, where the core declares one. A later version
    may have added words."""
    if value is None or key not in KEYS:
        return not isinstance(value, int | float) or isinstance(value, bool) or is_number(value)
    return KEYS[key].fits(value) or (get_origin(KEYS[key].type) is Literal and type(value) is str)


def read_finished(path: Path, wanted: Callable[[str], bool] | None = None) -> Record | str:
    """Reads a finished run like `read_record`, or returns what is missing."""
    try:
        record = read_record(path, wanted)
        if damaged := [t for t in record.troubles if t.startswith("recipe.yaml: ignoring")]:
            return f"cannot be read ({damaged[0]})"
        if not record.summary and record.recipe and not (path / "summary.json").exists():
            last = [lines[-1]["step"] for lines in (record.steps, record.evaluations) if lines]
            step = max(last, default=0)
            return f"not finished (it is at step {step})"
        if "imported" in record.summary:
            return _compared_import(record)
        told = {"seed": record.seed, "eval.samples": record.recipe["eval.samples"]}
        told |= {name: record.summary[name] for name in ("task", "eval_before", "eval_after")}
        if record.learning_curve and None not in told.values():
            return record
        lack = next((f"there is no {k!r}" for k, v in told.items() if v is None),
                    "there is no evaluation")  # fmt: skip
    except OSError as error:
        return f"cannot be read ({error})"
    except (KeyError, TypeError) as error:
        lack = f"there is no {error}"
    return f"cannot be read ({[*record.troubles, lack][0]})"


def _compared_import(record: Record) -> Record | str:
    """A run of another trainer, scored by its training reward if it has no evaluation; otherwise,
    the missing data."""
    if not isinstance(record.recipe.get("seed"), int):
        return "its seed is unknown (repeat rlzoo import with --seed N --overwrite)"
    if not ("eval_after" in record.summary and len(record.learning_curve) > 0):
        record = replace(record, measure=TRAINING)
    return record if record.learning_curve else f"it has neither eval/score nor {REWARD}"


def failure(path: Path) -> str:
    """Why a sweep's run failed, or an empty string."""
    try:
        return str(read_json(path / "failed.json")["reason"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def flat_config(tree: Mapping[str, Any], name: str) -> Flat:
    """A whole recipe by dotted keys, with its name, and the names in each of its collections."""
    sets = {section: "+".join(tree.get(section) or {}) for section in COLLECTIONS}
    return flatten(tree) | {"recipe": name} | sets
