"""A trace as one self-contained page; each token is shaded by its advantage.

Hovering over a token shows its row. For advantages computed by `gae`, a slider recomputes them at
another lambda.
"""

from typing import Any

from rlzoo_lab.trace.tables import ROWS, all_derivations, inputs, outputs, page_blocks
from rlzoo_lab.trace.trace import Derivation, Trace
from rlzoo_lab.view import page as html
from rlzoo_lab.view.blocks import Text, Tokens
from rlzoo_lab.view.html import parts

MOVED = ("advantage", "return")  # columns that the slider recomputes


def page(traced: Trace) -> str:
    """The whole document."""
    shown = page_blocks(traced)
    owners = iter([_owner(traced, derivation) for _, derivation in all_derivations(traced)])
    movable, out = {}, []
    for block, part in zip(shown[1:], parts(shown[1:]), strict=True):
        out.append(part)
        if isinstance(block, Tokens) and traced.credits:
            name = block.table.removeprefix(ROWS)
            if (numbers := _movable(traced, int(name))) is not None:
                movable[name] = numbers
                out.append(html.lambda_slider(name, numbers["lam"]))
        elif isinstance(block, Text) and block.kind == "code":
            out[-1] = part.replace("<pre", f'<pre data-of="{next(owners)}"', 1)
    out += [html.ROW_OF, html.data_block("data", movable)]
    touch, css = html.touch()
    own, script = html.beside(__file__, "page.css", "page.js")
    title = f"{traced.source}, response {traced.row} of {traced.rows}"
    return html.page(title, out, f"{css}\n{own}", script=f"{touch}\n{script}")


def _owner(traced: Trace, derivation: Derivation) -> str:
    """The place of the estimator whose lambda these lines depend on, if there is one."""
    for i, credit in enumerate(traced.credits):
        if derivation.column in MOVED and any(derivation is d for d in credit.derivations):
            return str(i)
    return ""


def _movable(traced: Trace, i: int) -> dict[str, Any] | None:
    """The numbers of which `gae` makes its advantages at any lambda, and the cells that hold them
    in the table; None for another estimator, or where a number is missing.

    depends: cells of what follows from them over the whole batch, which the page cannot recompute.
    """
    credit, names = traced.credits[i], ("rewards", "values")
    if credit.name != "gae" or traced.bootstrap is None or not set(names) <= set(traced.columns):
        return None
    before = 2 + (len(inputs(traced)) if len(traced.credits) == 1 else 0)
    cells = {name: before + at for at, (_, name, _) in enumerate(outputs(traced, i))}
    columns = {"advantage": cells["raw_advantages"]}
    if "returns" in cells:
        columns["return"] = cells["returns"]
    return {
        **{name: [x or 0.0 for x in traced.columns[name]] for name in names},
        "mask": [int(token.action) for token in traced.tokens],
        "end": traced.bootstrap, "gamma": credit.options["gamma"], "lam": credit.options["lam"],
        "columns": columns,
        "depends": [cells[name] for name in ("advantages", "policy_loss") if name in cells],
    }  # fmt: skip
