"""What the terminal shows of `diagnose RUN --checkpoints`."""

from collections.abc import Mapping
from typing import Any

from rlzoo.tools.diagnose.tables import (
    cells,
    headline,
    make_table,
    name_of,
    notes_of,
    page,
    two_digits,
)


def checkpoint_tables(document: Mapping[str, Any], width: int) -> list[Any]:
    wide, padding = width >= 110, int(width >= 160)
    stages = document["checkpoints"]
    rows = [row for stage in stages for row in stage["estimators"]]
    tables = [_critics(stages, padding)]
    if rows:
        tables.append(_estimators(stages, *cells(rows, wide), padding))
    notes = [
        "KL: from the base model; inside: share of the policy's responses that lie in the allowed "
        "tokens when it is not held to them; V: the critic's, V^π: the truth, states as often as "
        "visited; RMSE: of V; expl. var: 1 - Var(V^π - V) / Var(V^π)",
        *document["notes"],
        *notes_of(document, rows, wide),
    ]
    return page(f"{document['run']}: {headline(document)}", tables, notes)


def _critics(stages: list[dict[str, Any]], padding: int) -> Any:
    heads = ["J", "length", "KL", "inside", "mean V", "mean V^π", "sd V^π", "RMSE", "expl. var"]
    table = make_table(["step", *heads], padding=padding)
    for stage in stages:
        critic = ["-"] * 5
        if error := stage["own_critic"]:
            critic = [two_digits(error[k]) for k in ("mean", "mean_exact", "sd_exact", "rmse")]
            critic.append(f"{round(error['explained_variance'], 2) + 0.0:.2f}")
        world = [f"{stage['expected_return']:.3f}", f"{stage['expected_length']:.2f}"]
        world += [two_digits(stage["kl"]), f"{stage['share']:.2f}"]
        table.add_row(str(stage["step"]), *world, *critic)
    return table


def _estimators(stages: list[dict[str, Any]], heads: list[str], cells_of: Any, padding: int) -> Any:
    table = make_table(["step", "estimator", "critic", *heads], padding=padding)
    for stage in stages:
        before = None
        for row in stage["estimators"]:
            name = name_of(row)
            table.add_row(
                str(stage["step"]) if before is None else "",
                "" if name == before else name,
                row["critic"] or "-",
                *cells_of(row),
            )
            before = name
        table.add_section()
    return table
