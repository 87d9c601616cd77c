"""`rlzoo import`: a run of another trainer as a run folder. No torch here."""

import argparse
import itertools
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rlzoo.cli.verb import Result
from rlzoo.errors import RlzooError, UsageError, nearest
from rlzoo.recipe.keys import KEYS
from rlzoo.recipe.words import read_value, split_values
from rlzoo.runs.disk import read_json
from rlzoo_lab.data.staged import check_free, staged
from rlzoo_lab.imports.folder import UNKNOWN, convert, write
from rlzoo_lab.imports.names import recipe_names
from rlzoo_lab.imports.sources import FORMATS, read_source
from rlzoo_lab.view.written import Written

OWN = ("recipe.yaml", "metrics.jsonl", "provenance.json")  # of a run of rlzoo
SHOWN = 12  # missing metrics that are printed; provenance.json has all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", metavar="SOURCE", help="a trainer's output folder, or one file of metrics")
    add("--out", action=Written, folder=True, required=True, metavar="RUN",
        help="the run folder to write")  # fmt: skip
    add("--overwrite", action="store_true", help="replace RUN, if it is an imported run")
    add("--from", dest="trainer", choices=FORMATS, help="default: detected from the contents")
    add(
        "--run",
        metavar="NAME",
        help="the run to read, if SOURCE has several; '*': all are parts of one",
    )
    add("--step", metavar="NAME", help="the column or key with the step; default: detected")
    add("--reward", metavar="NAME",
        help="the metric that becomes reward/mean, if it is not detected")  # fmt: skip
    add("--eval", dest="evaluation", metavar="NAME",
        help="the evaluation metric that becomes eval/score, if there are several")  # fmt: skip
    add("--seed", type=int, metavar="N", help="the run's seed, if its files do not contain it")
    add("--set", dest="given", action="append", default=[], metavar="KEY=VALUE",
        help="a recipe key that the files do not contain; repeatable")  # fmt: skip
    add("--row", metavar="NAME", help="the name of its row in `rlzoo compare`")


def run(arguments: argparse.Namespace) -> Result:
    place, source = Path(arguments.out), Path(arguments.source)
    if all((source / name).is_file() for name in OWN):
        raise UsageError(
            f"SOURCE: {source} is a run of rlzoo, which needs no import: rlzoo doctor {source}"
        )
    replaced = _imported(place)
    if replaced and not arguments.overwrite:
        raise UsageError(
            f"--out: {place} is an imported run; --overwrite replaces it", kind="taken"
        )
    if not replaced:
        check_free(place, "--out")
    elif source.resolve().is_relative_to(place.resolve()):
        raise UsageError(f"SOURCE: {source} is in {place}, which --overwrite replaces")
    if arguments.seed is not None and arguments.seed < 0:
        raise UsageError(f"--seed: must be at least 0. Got {arguments.seed}")
    given = settings(arguments.given)
    given |= {} if arguments.seed is None else {"seed": arguments.seed}
    given |= {"imported.name": arguments.row} if arguments.row else {}
    try:
        found = read_source(source, arguments.step or "", arguments.run)
    except OSError as error:
        raise RlzooError(f"{source}: cannot be read: {error}") from None
    imported = convert(found, arguments.trainer, given, evaluation=arguments.evaluation,
                       reward=arguments.reward)  # fmt: skip
    away = _set_aside(place) if replaced else nullcontext()
    with away, staged(place, "--out") as aside:
        summary = write(imported, aside, source)
    document = {
        "path": str(place),
        "from": imported.trainer,
        "steps": len(imported.steps),
        "last_step": summary["steps"],
        "evaluations": len(imported.evaluations),
        "samples": len(imported.samples),
        "metrics": sorted({name for line in imported.steps.values() for name in line}),
        "derived": imported.derived,
        "recipe": imported.recipe,
        "files": [str(path) for path in imported.files],
        "missing": imported.missing,
    }
    return Result(document, lambda _: view(document), notes=imported.notes)


def settings(words: list[str]) -> dict[str, Any]:
    """KEY=VALUE,... of --set as recipe keys; raises UsageError or RecipeError, with the key."""
    out = {}
    for word in itertools.chain.from_iterable(map(split_values, words)):
        key, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"--set: expected KEY=VALUE, got {word!r}")
        if key not in (known := KEYS.keys() | recipe_names()):
            raise UsageError(f"--set: there is no key {key!r}{nearest(key, known)}", key=key,
                             kind="unknown-key")  # fmt: skip
        value = read_value(key, text)
        try:
            out[key] = KEYS[key].check(value) if key in KEYS else value
        except ValueError as error:
            raise UsageError(f"--set: {key}: {error}", key=key, kind="type") from None
    return out


@contextmanager
def _set_aside(place: Path) -> Iterator[None]:
    """Without the run at `place`, which is back there if the block fails."""
    old = place.with_name(f".{place.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    place.rename(old)
    try:
        yield
    except BaseException:
        old.rename(place)
        raise
    shutil.rmtree(old)


def _imported(place: Path) -> bool:
    """Whether a folder is a run that `rlzoo import` wrote."""
    try:
        return "imported" in read_json(place / "summary.json")
    except (OSError, ValueError, TypeError):
        return False


def view(d: Mapping[str, Any]) -> Iterator[str]:
    """The output without --json."""
    whose = f"{UNKNOWN} (--from NAME sets it)" if d["from"] == "csv" else d["from"]
    own = sum(n.startswith(f"{d['from']}/") for n in d["metrics"])
    yield (
        f"{d['path']}: {d['steps']} steps, {d['evaluations']} evaluations and {d['samples']} "
        f"samples from {whose}, {len(d['files'])} file{'s' * (len(d['files']) != 1)}"
    )
    yield f"metrics with a name in rlzoo: {len(d['metrics']) - own}; with only their own: {own}"
    if d["derived"]:
        yield f"computed from the responses: {', '.join(d['derived'])}"
    left = d["missing"]
    if left:
        more = f" and {len(left) - SHOWN} more (provenance.json)" if len(left) > SHOWN else ""
        first, keys, others = ", ".join(left[:SHOWN]).partition("recipe key ")
        yield f"missing: {first}{keys}{others.replace(keys, '') if keys else ''}{more}"
    yield f"next: rlzoo doctor {d['path']}"
