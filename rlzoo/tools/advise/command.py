"""`rlzoo advise`: which estimator and lambda to prefer, by a pilot.  No torch here."""

import argparse
from collections.abc import Mapping
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo.tools.verb import Result

MOST = 0.5  # of the budget, for a pilot


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", metavar="key=value")
    parser.add_argument(
        "--share", type=float, default=0.1, help="of the run's budget, for the pilot; 0.1"
    )


def run(arguments: argparse.Namespace) -> Result:
    if not 0 < arguments.share <= MOST:
        raise RlzooError(f"--share must lie in (0, {MOST}]. Got {arguments.share:g}")
    from rlzoo.tools.advise.pilot import advise  # torch

    document = advise(arguments.words, arguments.share)
    return Result(document, lambda console: view(document))


def view(document: Mapping[str, Any]) -> list[Any]:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    pilot = document["pilot"]
    head = (
        f"{document['task']} on {document['model']}, recipe {document['recipe']}: a pilot of "
        f"{pilot['steps']} steps, {pilot['rows']} responses, {pilot['tokens']:,} tokens, with "
        f"{pilot['estimator']}; mean score {pilot['score']:.3f}"
    )
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("estimator", style="bold", overflow="fold")
    for name in ("cos@batch", "behind", "best?", ""):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    rows = sorted(document["estimators"], key=lambda row: -row["cosine"])
    for row in rows:
        table.add_row(
            name_of(row),
            f"{row['cosine']:.2f}±{row['cosine_se']:.2f}",
            f"{row['behind']:.2f}±{row['behind_se']:.2f}" if row["behind"] else "-",
            f"{row['chance']:.0%}",
            "told apart" if row["told"] else "",
        )
    notes = [
        "cos@batch: of one batch's gradient with the true one, in the parameters, by pairs of "
        "independent parts; ± one standard error; best?: how often it would be the best",
        *(f"{name_of(r)}: gamma = {r['discount']:g}, and the yardstick is of gamma = 1"
          for r in rows if r["discount"] != 1),
        *(f"{row['estimator']}: left out: {row['reason']}" for row in document["left_out"]),
    ]  # fmt: skip
    return [
        Text(head),
        table,
        *map(Text, verdict(document)),
        *(Text(n, style="dim") for n in notes),
    ]


def verdict(document: Mapping[str, Any]) -> list[str]:
    """The advice, what it does not know, and what the critic knows."""
    best = document["estimators"][document["choice"]]
    like = [row for row in document["estimators"] if row is not best and not row["told"]]
    lines = [f"Prefer {name_of(best)}: {document['command']}"]
    if document["direction"] < 2:
        lines.append(
            "This pilot does not tell the true gradient from noise (|g|² is "
            f"{document['direction']:.1f} standard errors): the order above is a guess; "
            "raise --share or rollout.prompts."
        )
    if like:
        lines.append(f"Not told apart from it: {', '.join(map(name_of, like))}.")
    if document["critic"]:
        first, last = document["critic"][0], document["critic"][-1]
        lines.append(
            f"The critic explains {last:.0%} of the returns' variance at the pilot's end "
            f"({first:.0%} at its beginning): what leans on it is judged by that, and gains as it "
            "learns."
        )
    return lines


def name_of(row: Mapping[str, Any]) -> str:
    shown = {k: f"{v:g}" if isinstance(v, float) else v for k, v in row["shown"].items()}
    return " ".join([row["estimator"], *(f"{k}={v}" for k, v in shown.items())])
