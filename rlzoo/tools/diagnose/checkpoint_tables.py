from collections.abc import Mapping
from typing import Any

from rlzoo.tools.diagnose.tables import cells, headline, name_of, notes_of, number

# ---------------------------------------------------------------- tables


def checkpoint_tables(document: Mapping[str, Any], width: int) -> list[Any]:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    wide = width >= 110
    stages = document["checkpoints"]
    rows = [row for stage in stages for row in stage["estimators"]]

    def table(*names: str) -> Table:
        made = Table(box=box.SIMPLE_HEAD, padding=(0, int(width >= 160), 0, 0), pad_edge=False)
        made.add_column("step", justify="right", no_wrap=True)
        for name in names:
            made.add_column(name, overflow="fold", style="bold" if name == names[0] else "")
        return made

    last = stages[-1]
    critics = table()
    heads = ["J", "length", "KL", "inside", "mean V", "mean V^π", "sd V^π", "RMSE", "expl. var"]
    for head in heads:
        critics.add_column(head, justify="right", no_wrap=True)
    for stage in stages:
        own = stage["own_critic"]
        told = ["-"] * 5
        if own:
            told = [number(own[k]) for k in ("mean", "mean_exact", "sd_exact", "rmse")]
            told.append(f"{round(own['explained_variance'], 2) + 0.0:.2f}")
        critics.add_row(
            str(stage["step"]), f"{stage['expected_return']:.3f}",
            f"{stage['expected_length']:.2f}", number(stage["kl"]), f"{stage['share']:.2f}", *told,
        )  # fmt: skip
    numbers, cells_of = cells(rows, wide)
    main = table("estimator")
    main.add_column("critic", no_wrap=True)
    for head in numbers:
        main.add_column(head, justify="right", no_wrap=True)
    for stage in stages:
        before = None
        for row in stage["estimators"]:
            name = name_of(row)
            main.add_row(
                str(stage["step"]) if before is None else "",
                "" if name == before else name,
                row["critic"] or "-",
                *cells_of(row),
            )
            before = name
        if stage is not last:
            main.add_section()
    notes = [
        "KL: from the base model; inside: share of the policy's responses that lie in the allowed "
        "tokens when it is not held to them; V: the critic's, V^π: the truth, states as often as "
        "visited; RMSE: of V; expl. var: 1 - Var(V^π - V) / Var(V^π)",
        *document["notes"],
    ]
    parts: list[Any] = [Text(_headline(document)), critics]
    if rows:
        parts.append(main)
    notes += notes_of(document, rows, wide)
    return [*parts, *(Text(note, style="dim") for note in notes)]


def _headline(document: Mapping[str, Any]) -> str:
    """As for one world, without what changes from checkpoint to checkpoint."""
    whole = headline({"world": {
        **document["world"], "expected_return": 0.0, "expected_length": 0.0, "kl": 0.0,
        "kl_coef": 0.0,
    }})  # fmt: skip
    return f"{document['run']}: {whole.replace('; J = 0.000, mean length 0.00', '')}"
