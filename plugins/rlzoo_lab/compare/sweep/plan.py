"""`rlzoo sweep`: swept keys are rows, `seed` is replication; a folder of runs.  No torch here.

    words -> rows (composed, validated, planned) -> missing runs -> workers -> compare

The folder is the only state: a run is finished if it has a summary.json, and partly finished if it
has checkpoints. The same command therefore continues with the missing runs, whichever process was
killed.
"""

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rlzoo.errors import RecipeError, warn
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.compose import Recipe, compose
from rlzoo.recipe.keys import KEYS, SECTIONS
from rlzoo.recipe.plan import Plan
from rlzoo.recipe.words import no_pair, split_values
from rlzoo.train.start import prepare
from rlzoo_lab.data.comparable import label
from rlzoo_lab.data.record import flat_config
from rlzoo_lab.data.variants import combinations, naming_row, spell_out


@dataclass(frozen=True)
class SweepRow:
    """A configuration: its values of the swept keys, its words, its recipe (also by dotted keys),
    and the metric by which its runs are compared."""

    label: str
    values: Mapping[str, Any]
    words: tuple[str, ...]
    recipe: Recipe
    flat: Mapping[str, Any]
    metric: str

    @property
    def slug(self) -> str:
        """The row's label as part of a folder's name."""
        return re.sub(r"[^\w.=+-]+", "_", self.label)


@dataclass(frozen=True)
class Job:
    """A run to do: its folder, the whole recipe, and the URL of the folder's store, if any.
    Executors read `name`, `path`, `device`, the `threads` and bytes of `memory` that it needs, its
    `steps`, and `store`: if there is one, `path` may be on a disk that other nodes do not see."""

    path: Path
    row: str
    recipe: Recipe
    store: str = ""

    name = property(attrgetter("path.name"))
    device = property(attrgetter("recipe.config.device"))
    threads = property(attrgetter("recipe.config.run.threads"))
    steps = property(attrgetter("recipe.config.train.steps"))

    @property
    def done(self) -> bool:
        return (self.path / "summary.json").is_file()

    @property
    def memory(self) -> float:
        from rlzoo.lm.loading import resolve_path

        model = resolve_path(self.recipe.config.model.path)
        weights = sum(f.stat().st_size for f in model.glob("*.safetensors"))
        # Actor, critic, reference, gradients, two Adam moments each, activations; and torch itself.
        return 600e6 + 24 * weights


@dataclass(frozen=True)
class Sweep:
    """Everything that a sweep will run, in a folder; `keys` are the swept keys except the seed."""

    path: Path
    words: tuple[str, ...]
    keys: tuple[str, ...]
    seeds: tuple[int, ...]
    rows: tuple[SweepRow, ...]
    store: str = ""  # a URL that all of it is kept at, too

    @cached_property
    def jobs(self) -> list[Job]:
        """Seed by seed, so that an interrupted sweep has paired runs."""
        jobs = []
        for seed, row in itertools.product(self.seeds, self.rows):
            path = self.path / f"{row.slug}--seed{seed}"
            store = self.store and f"{self.store.rstrip('/')}/{path.name}"
            jobs.append(Job(path, row.label, _placed(row, seed, path), store))
        return jobs


def _placed(row: SweepRow, seed: int, path: Path) -> Recipe:
    """The row's recipe with this seed, in this folder, on one thread unless it sets another number:
    results must not depend on how many runs are active."""
    tree: Any = OmegaConf.to_container(row.recipe.config)
    tree["seed"] = seed
    tree["run"] |= {"dir": str(path), "threads": tree["run"]["threads"] or 1}
    config = OmegaConf.create(tree)
    OmegaConf.set_readonly(config, True)
    return dataclasses.replace(row.recipe, config=config)


def plan_sweep(
    words: list[str], zoo: Zoo, folder: str | None = None, store: str | None = None
) -> Sweep:
    """Compose and plan every row; raises RecipeError, which names the invalid row."""
    words, choices = _choices(words, zoo)
    seeds = _seeds(choices.pop("seed", []))
    swept = [k for k, values in choices.items() if len(values) > 1]
    rows: dict[str, SweepRow] = {}
    idle: dict[str, RecipeError] = {}
    for combination in list(combinations(choices, zoo)):  # their faults first
        chosen = " ".join(f"{k}={combination[k]}" for k in swept if k in combination)
        with naming_row(chosen):
            plan = _effective(combination, zoo, idle)
            recipe, row_words = plan.recipe, [f"{k}={v}" for k, v in combination.items()]
            for warning in plan.warnings:
                warn(warning)
        metric = "accuracy" if plan.abilities.is_correct else "score"
        tree: Any = OmegaConf.to_container(recipe.config)
        flat = flat_config(tree, recipe.name)
        values = {n: flat[n] for k in swept if k in combination and (n := _full(k)) in flat}
        rows.setdefault(
            repr(sorted((k, v) for k, v in flat.items() if k != "recipe")),
            SweepRow(label(values) or recipe.name, values, tuple(row_words), recipe, flat, metric),
        )
    taken = {word.partition("=")[0] for row in rows.values() for word in row.words}
    for key, error in idle.items():
        if key not in taken:
            raise error
    slugs = sorted(row.slug for row in rows.values())
    for one, other in itertools.pairwise(slugs):
        if one == other:
            raise RecipeError(f"two rows would write to the same folder, {one}--seed...")
    first = next(iter(rows.values())).recipe
    # The same words, in any order, are the same sweep.
    digest = hashlib.sha256("\n".join(sorted(words)).encode()).hexdigest()[:8]
    usual = f"runs/sweep-{first.name}-{first.config.task.name}-{digest}"
    return Sweep(
        Path(folder or usual),
        tuple(words),
        tuple(_full(k) for k in swept),
        seeds or (first.config.seed,),
        tuple(rows.values()),
        store or "",
    )


def _effective(row: dict[str, str], zoo: Zoo, idle: dict[str, RecipeError]) -> Plan:
    """The plan of a row; `row` loses, and `idle` gains, the keys that have no effect in it."""
    while True:
        try:
            return prepare(compose([f"{k}={v}" for k, v in row.items()], zoo), zoo)
        except RecipeError as error:
            keys = [k for k in row if _full(k) == error.key and error.kind == "no-effect"]
            if not keys:
                raise
            idle[keys[0]] = error
            del row[keys[0]]


def _choices(words: list[str], zoo: Zoo) -> tuple[list[str], dict[str, list[str]]]:
    """The words in full, and the values of each key."""
    words = spell_out(words, zoo)
    choices: dict[str, list[str]] = {}
    for word in words:
        key, eq, value = word.partition("=")
        if not eq:
            raise no_pair(word, words)
        key = key.strip()
        if key in choices:
            raise RecipeError(f"{key} is given twice; list its values once: {key}=A,B")
        if key == "run.dir":
            raise RecipeError(
                "run.dir: a sweep chooses the folders of its runs; use --dir DIR for the sweep"
            )
        choices[key] = list(dict.fromkeys(split_values(value)))
    return words, choices


MOST_TRIED = 32


def try_words(words: list[str], zoo: Zoo) -> None:
    """Raise errors in the words of the first rows; faster than a plan."""
    _, choices = _choices(words, zoo)
    _seeds(choices.pop("seed", []))
    for row in itertools.islice(combinations(choices, zoo), MOST_TRIED):
        compose([f"{k}={v}" for k, v in row.items()], zoo)


def _seeds(words: list[str]) -> tuple[int, ...]:
    """`0`, `3`, `0..19` (both ends included)."""
    seeds: list[int] = []
    for word in words:
        ends = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", word)
        if not ends or (ends[2] and int(ends[2]) < int(ends[1])):
            raise RecipeError(f"seed (command line): {KEYS['seed'].type_text}, or a range 0..19. "
                              f"Got {word!r}")  # fmt: skip
        seeds += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return tuple(dict.fromkeys(seeds))


def _full(key: str) -> str:
    return f"{key}.name" if key in SECTIONS or key == "model" else key
