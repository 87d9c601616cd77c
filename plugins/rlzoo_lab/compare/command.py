"""`rlzoo compare`: compares runs, with intervals and a verdict.  No torch here."""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from rlzoo.cli.verb import Result
from rlzoo.runs.disk import write_atomically
from rlzoo_lab import stats
from rlzoo_lab.compare.comparison import Comparison, Pair, compare
from rlzoo_lab.compare.curves import curves
from rlzoo_lab.compare.factors import TwoWay, main_effects, two_way
from rlzoo_lab.compare.measures import area, greedy, kl_spent, mean_of, reach
from rlzoo_lab.compare.tables import blocks, page_blocks
from rlzoo_lab.compare.verdict import method, verdict
from rlzoo_lab.view.declared import add_declared
from rlzoo_lab.view.figure import write_curves
from rlzoo_lab.view.html import page
from rlzoo_lab.view.texts import Shown, text_of
from rlzoo_lab.view.written import PRINTED, Written


def document(c: Comparison) -> dict[str, Any]:
    """The comparison as JSON."""

    def paired(p: Pair) -> dict[str, Any]:
        return {
            "difference": p.contrast.mean,
            "interval": p.contrast.interval,
            "p": p.contrast.p,
            "shown": p.shown,
            "claimed": p.claimed,
            "seeds": p.contrast.n,
            "improvement": p.improvement,
            "detectable": c.detectable(p),
            "detectable_interval": c.shows(p),
            "unpaired": p.unpaired,
            "p_sign_flip": p.signs.p,
            "p_holm": p.p_signs,
            "widest": p.signs.widest,
            "widest_level": p.signs.level,
            "these_runs": p.runs and {"difference": p.runs[0], "interval": p.runs[1]},
            "sampling_share": p.sampling,
        }

    rows = []
    for row in c.rows:
        against = c.pair(row, c.reference)
        rows.append(
            {
                "row": row.label,
                "values": dict(row.values),
                "seeds": row.seeds,
                "scores": row.scores,
                "mean": fmean(row.scores),
                "mean_interval": stats.t_interval(row.scores),
                "iqm": stats.iqm(row.scores),
                "interval": stats.iqm_interval(row.scores),
                "against_reference": paired(against) if against else None,
                "improvement_interval": (
                    stats.improvement_interval(row.scores, c.reference.scores) if against else None
                ),
                "area": area(row),
                "threshold": None if c.threshold is None else vars(reach(row, c.threshold)),
                "kl": kl_spent(row),
                "length": mean_of(row, lambda r: r.length),
                "tokens": mean_of(row, lambda r: r.summary.get("tokens")),
                "seconds": mean_of(row, lambda r: r.summary.get("seconds")),
                "greedy": mean_of(row, greedy),
                "lost": row.lost,
                "split": row.split,
                "runs": [str(row.runs[s].path) for s in row.seeds],
            }
        )
    return {
        "title": c.title,
        "metric": c.metric,
        "on_one_scale": not c.named,
        "reference": c.reference.label,
        "threshold": c.threshold,
        "rows": rows,
        "pairs": [{"a": p.a.label, "b": p.b.label, **paired(p)} for p in c.pairs],
        "main_effects": [
            {
                "key": e.key,
                "a": e.a,
                "b": e.b,
                "rows": e.rows,
                "difference": e.contrast.mean,
                "interval": e.contrast.interval,
                "p": e.contrast.p,
                "seeds": e.contrast.n,
            }
            for e in main_effects(c)
        ],
        "verdict": verdict(c),
        "method": method(c),
        "notes": c.notes,
        "skipped": c.gathered.skipped,
        "failed": c.gathered.failed,
    }


FORMS = {"markdown": "the results as Markdown", "csv": "a comma-separated line for each row",
         "latex": "the table of results in LaTeX"}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("paths", nargs="+", metavar="RUN_OR_SWEEP")
    for form, what in FORMS.items():
        add(f"--{form}", nargs="?", const=PRINTED, action=Written, metavar="FILE",
            help=f"write {what}; without FILE, print it")  # fmt: skip
    add("--html", action=Written, metavar="FILE", help="write a page with curves")
    add("--plots", action=Written, folder=True, figures=True, metavar="DIR",
        help="write the curves as SVG and PNG")  # fmt: skip
    add_declared(parser, "rlzoo_lab.api.verbs:compare")


def run(arguments: argparse.Namespace) -> Result:
    c = compare(
        arguments.paths,
        reference=arguments.reference,
        threshold=arguments.threshold,
        force=arguments.force,
        metric=arguments.metric,
    )
    c.axis = arguments.x
    return result_of(c, arguments)


def result_of(c: Comparison, arguments: argparse.Namespace) -> Result:
    """A comparison as a document, as terminal output and as files."""
    tables = [two_way(c, key) for key in arguments.by]
    made = document(c) | {"two_way": [two_way_document(t) for t in tables]}
    shown = Shown(blocks(c, tables, arguments.details), frame(made), partial(curves, c))
    asked = {form: getattr(arguments, form) for form in FORMS}
    texts = [text_of(shown, form) for form, place in asked.items() if place == PRINTED]
    files: dict[str, Callable[[Path], Any]] = {
        form: partial(_write, shown, form) for form, place in asked.items() if place != PRINTED
    }
    files["html"] = partial(write_page, c, tables=tables)
    files["plots"] = lambda folder: write_curves(shown.curves(), folder)
    return Result(made, (lambda _: texts) if texts else shown, files=files)


def write_page(c: Comparison, path: Path, tables: Sequence[TwoWay] = ()) -> None:
    """Write the page of a comparison."""
    title = c.title.partition("; NOT ON ONE SCALE: ")[0]
    write_atomically(path, page(title, page_blocks(c, tables)).encode())


def _write(shown: Shown, form: str, path: Path) -> None:
    write_atomically(path, f"{text_of(shown, form)}\n".encode())


def frame(made: dict[str, Any]) -> list[dict[str, Any]]:
    """A flat record for each row of the document, for pandas.DataFrame. Empty cells are None;
    `difference` is this row minus the reference."""
    records = []
    for row in made["rows"]:
        pair = row["against_reference"] or {}
        low, high = row["mean_interval"] or (None, None)
        at, to = pair.get("interval") or (None, None)
        records.append(
            {"row": row["row"], **row["values"], "metric": made["metric"],
             "seeds": len(row["seeds"]), "mean": row["mean"], "low": low, "high": high,
             "difference": pair.get("difference"), "difference_low": at, "difference_high": to,
             "p": pair.get("p"), "claimed": pair.get("claimed"), "tokens": row["tokens"],
             "area": row["area"], "kl": row["kl"]}
        )  # fmt: skip
    names = dict.fromkeys(k for record in records for k in record)
    return [{name: record.get(name) for name in names} for record in records]


def two_way_document(t: TwoWay) -> dict[str, Any]:
    cells = [
        {"row": name, "column": column, "iqm": stats.iqm(row.scores),
         "interval": stats.iqm_interval(row.scores), "seeds": len(row.seeds)}
        for (name, column), row in t.cells.items()
    ]  # fmt: skip
    return {"key": t.key, "rows": t.rows, "columns": t.columns, "cells": cells}
