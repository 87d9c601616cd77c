"""`rlzoo advise`: recommends an estimator and lambda after a pilot. No torch here."""

import argparse
from collections.abc import Mapping
from typing import Any

from rlzoo.cli.verb import WORDS_HELP, Result
from rlzoo.errors import RlzooError

TOLD = 1.96  # standard errors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", metavar="key=value", help=WORDS_HELP)


def run(arguments: argparse.Namespace) -> Result:
    if not 0 < arguments.share <= 1:
        raise RlzooError(f"--share must be in (0, 1]. Got {arguments.share:g}")
    from rlzoo_lab.advise.pilot import advise  # torch

    document = advise(arguments.words, arguments.share)
    return Result(document, lambda console: view(document))


def view(document: Mapping[str, Any]) -> list[Any]:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    head = (
        f"{document['task']} on {document['model']}, recipe {document['recipe']}: pilot of "
        f"{document['steps']} steps, {document['tokens']:,} tokens, trained with "
        f"{document['trained_with']}; its rewards resemble those of the world {document['world']}"
    )
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("estimator", style="bold", overflow="fold")
    for name in ("world", "pilot", "both", "behind"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = sorted(document["estimators"], key=lambda row: -row["both"])
    for row in rows:
        pilot = f"{row['pilot']:.2f}±{row['pilot_se']:.2f}" if row["pilot_se"] < 1 else "-"
        behind = f"{rows[0]['both'] - row['both']:.2f}±{row['behind_se']:.2f}"
        cells = [f"{row['world']:.2f}", pilot, f"{row['both']:.2f}", behind]
        table.add_row(row["name"], *cells[:-1], "-" if row is rows[0] else cells[-1])
    notes = [
        "mean cosine of a batch's gradient with the true one, at equal tokens: in an artificial "
        "world with similar rewards, in the pilot, and from both combined; ± one standard error",
        *(f"{r['name']}: the true gradient uses gamma = 1" for r in rows if r["gamma"] != 1),
        *(f"not evaluated: {line}" for line in document["left_out"]),
    ]
    faint = (Text(note, style="dim") for note in notes)
    return [Text(head), table, *map(Text, verdict(document, rows)), *faint]


def verdict(document: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> list[str]:
    """The advice, what is uncertain, and how good the critic is."""
    best, *others = rows
    lines = [f"Prefer {best['name']}: {document['command']}"]
    like = [r["name"] for r in others if best["both"] - r["both"] <= TOLD * r["behind_se"]]
    if like:
        lines.append(f"Not distinguishable from it: {', '.join(like)}.")
    if document["direction"] < 2:
        lines.append(
            "The pilot is too short to determine the direction of the true gradient "
            f"({document['direction']:.1f} standard errors), so the advice comes mostly from the "
            "artificial world."
        )
    if document["critic"]:
        first, last = document["critic"][0], document["critic"][-1]
        lines.append(
            f"The critic explains {last:.0%} of the returns' variance ({first:.0%} in the first "
            "step), and the critic of the artificial world is equally good. Estimators that "
            "depend on the critic improve as it learns."
        )
    return lines
