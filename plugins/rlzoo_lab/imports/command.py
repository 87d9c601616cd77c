"""`rlzoo import`: a run of another trainer as a run folder. No torch here."""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlzoo.cli.verb import Result
from rlzoo.errors import RlzooError, UsageError
from rlzoo_lab.imports.folder import convert, write
from rlzoo_lab.imports.sources import FORMATS, read_source
from rlzoo_lab.staged import check_free, staged
from rlzoo_lab.written import Written

SHOWN = 12  # missing metrics that are printed; provenance.json has all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", metavar="SOURCE", help="a trainer's output folder, or one file of metrics")
    add("--out", action=Written, folder=True, required=True, metavar="RUN",
        help="the run folder to write; must not exist")  # fmt: skip
    add("--from", dest="trainer", choices=FORMATS, help="default: detected from the contents")
    add("--eval", dest="evaluation", metavar="NAME",
        help="the evaluation metric that becomes eval/score, if there are several")  # fmt: skip
    add("--seed", type=int, metavar="N", help="the run's seed, if its files do not contain it")
    add("--tokenizer", type=Path, metavar="FOLDER",
        help="folder of a tokenizer, for the texts of tokens; default: one in SOURCE")  # fmt: skip
    add("--row", metavar="NAME", help="the name of its row in `rlzoo compare`")


def run(arguments: argparse.Namespace) -> Result:
    place, source = Path(arguments.out), Path(arguments.source)
    check_free(place, "--out")
    if arguments.seed is not None and arguments.seed < 0:
        raise UsageError(f"--seed: must be at least 0. Got {arguments.seed}")
    try:
        found, formats = read_source(source)
    except OSError as error:
        raise RlzooError(f"{source}: cannot be read: {error}") from None
    folder = arguments.tokenizer
    if folder is not None and not (folder / "tokenizer_config.json").is_file():
        raise UsageError(f"--tokenizer: {folder} has no tokenizer_config.json")
    imported = convert(found, formats, arguments.trainer, evaluation=arguments.evaluation,
                       seed=arguments.seed, row=arguments.row)  # fmt: skip
    with staged(place, "--out") as aside:
        summary = write(imported, aside, source, folder)
    document = {
        "path": str(place),
        "from": imported.trainer,
        "steps": len(imported.steps),
        "last_step": summary["steps"],
        "evaluations": len(imported.evaluations),
        "samples": len(imported.samples),
        "batches": summary["imported"]["batches"],
        "metrics": sorted({name for line in imported.steps.values() for name in line}),
        "derived": imported.derived,
        "recipe": imported.recipe,
        "files": [str(path) for path in imported.files],
        "missing": imported.missing,
    }
    return Result(document, lambda _: view(document), notes=imported.notes)


def view(d: Mapping[str, Any]) -> Iterator[str]:
    """The output without --json."""
    known = sum("/" not in n or not n.startswith(f"{d['from']}/") for n in d["metrics"])
    yield (
        f"{d['path']}: {d['steps']} steps, {d['evaluations']} evaluations and {d['samples']} "
        f"samples from {d['from']}, {len(d['files'])} file{'s' * (len(d['files']) != 1)}"
    )
    yield f"{known} metrics have a name in rlzoo; {len(d['metrics']) - known} keep their own names"
    if d["derived"]:
        yield f"computed from the responses: {', '.join(d['derived'])}"
    if d["batches"]:
        yield f"tokens of steps {', '.join(map(str, d['batches']))}: rlzoo trace {d['path']}"
    left = d["missing"]
    if left:
        more = f" and {len(left) - SHOWN} more (provenance.json)" if len(left) > SHOWN else ""
        yield f"missing: {', '.join(left[:SHOWN])}{more}"
    yield f"next: rlzoo doctor {d['path']}"
