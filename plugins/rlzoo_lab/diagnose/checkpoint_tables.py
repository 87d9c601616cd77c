"""Terminal output of `diagnose RUN --checkpoints`."""

from collections.abc import Mapping
from typing import Any

from rlzoo_lab.diagnose.critic_tables import cell_tables, share
from rlzoo_lab.diagnose.tables import (
    add_rows,
    cells,
    headline,
    make_table,
    notes_of,
    page,
    two_digits,
)


def checkpoint_tables(document: Mapping[str, Any], width: int) -> list[Any]:
    wide, padding = width >= 110, int(width >= 160)
    stages = document["checkpoints"]
    rows = [row for stage in stages for row in stage["estimators"]]
    tables = [_critics(stages, padding)]
    if critic := stages[-1]["own_critic"]:
        tables += [_returns(stages), *cell_tables(critic, f"step {stages[-1]['step']}", "V^π")]
    if rows:
        tables.append(_estimators(stages, *cells(rows, wide), padding))
    notes = [
        "KL: from the base model; inside: share of the unconstrained policy's responses that use "
        "only the allowed tokens; V: the critic's value; V^π: the true value, with states "
        "weighted by visits; RMSE: error of V; expl. var: 1 - Var(V^π - V) / Var(V^π); of G: the "
        "share of the variance of Monte Carlo returns G that V explains, as in "
        "critic/vf_explained_var; ceiling: the share that V^π would explain; slope: of V^π on V, "
        "1 if calibrated",
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
            critic.append(share(error["explained_variance"]))
        world = [f"{stage['expected_return']:.3f}", f"{stage['expected_length']:.2f}"]
        world += [two_digits(stage["kl"]), f"{stage['share']:.2f}"]
        table.add_row(str(stage["step"]), *world, *critic)
    return table


def _returns(stages: list[dict[str, Any]]) -> Any:
    """The share of Monte Carlo returns' variance that V explains, and that V^π would."""
    table = make_table(["step", "of G", "ceiling", "share", "slope"])
    for stage in stages:
        if error := stage["own_critic"]:
            of, most, slope = error["of_returns"], error["ceiling"], error["slope"]
            part = share(of / most) if most > 1e-9 else "-"
            last = "-" if slope is None else share(slope)
            table.add_row(str(stage["step"]), share(of), share(most), part, last)
    return table


def _estimators(stages: list[dict[str, Any]], heads: list[str], cells_of: Any, padding: int) -> Any:
    table = make_table(["step", "estimator", "critic", *heads], padding=padding)
    for stage in stages:
        add_rows(table, stage["estimators"], cells_of, (str(stage["step"]),))
        table.add_section()
    return table
