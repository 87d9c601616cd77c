"""Terminal output of `diagnose RUN --branches`."""

from collections.abc import Mapping, Sequence
from typing import Any

from rlzoo.format.text import readable
from rlzoo_lab.diagnose.tables import dim, make_table, name_of, page, two_digits, with_error

SHOWN = 12  # states in the table; all are in the document


def branch_tables(document: Mapping[str, Any], width: int) -> list[Any]:
    states, tokens, quality = document["states"], document["tokens"], document["reference"]
    k = document["branches"]
    head = (
        f"{document['run']}, {document['source']}: {document['rows']} new responses to "
        f"{document['task']}, mean score {document['mean_score']:.3f}; {len(states)} states of "
        f"{document['prompts']} prompts, {k} branches from each state and from the state after it"
    )
    spent = f"tokens drawn: {tokens['batch']:,} batch, {tokens['branches']:,} branches"
    if tokens["columns"]:
        spent += f", {tokens['columns']:,} for the estimators' own columns"
    notes = [f"{spent}; {tokens['all']:,} in total"]
    kind = "Wilson's" if document["binary"] else "normal"
    notes.append(f"V^: mean score of {k} branches, 95 % interval ({kind}); A^ = r + V^(s') - V^(s)")
    if len(states) > SHOWN:
        notes.append(f"{SHOWN} of {len(states)} states are shown; --json prints all")
    critic = document["critic"]
    if critic:
        notes.append(
            f"critic: V - V^ is {with_error(critic, 'bias')} on average, MSE against the true V "
            f"{with_error(critic, 'squared_error')}; {critic['inside']} of {len(states)} inside "
            "the interval"
        )
        notes.append(
            "share of the variance of returns G explained by V: "
            f"{with_error(critic, 'explained_variance')}; by the true V: "
            f"{with_error(critic, 'ceiling')}; by a line in t: {with_error(critic, 'by_position')}"
        )
    after = [
        "bias: mean of a - A^; corr: correlation with A^; sign: agreement of signs, weighted by "
        f"|A^|; MSE: against the truth, from two halves of {k // 2} branches; ±: one standard "
        "error, with the states of a prompt grouped",
        f"truth: E[A²] = {two_digits(quality['truth'], quality['truth_se'] or 0)}, the MSE of an "
        f"estimator that returns 0; noise of A^: {two_digits(quality['noise'])}",
    ]
    best = quality["best_correlation"] or 0.0
    after[-1] += f"; so corr can reach about {best:.2f}"
    if quality["truth"] < 2 * (quality["truth_se"] or 0.0):
        after.append("A may be 0 here; ignore corr and sign, or use more branches")
    kl = "KL is not part of the target: the estimators also see only scores"
    if document["kl_in_training"]:
        kl += " (the run has KL in its reward, so its critic was trained with it)"
    after.append(kl)
    after += [
        f"{r['estimator']}: not evaluated: {r['reason']}" for r in document["not_diagnosable"]
    ]
    above = page(head, [_state_table(document, width)], notes)
    return [*above, _estimator_table(document), *dim(after)]


def _state_table(document: Mapping[str, Any], width: int) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    wide = width >= 110
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("prompt", max_width=36 if wide else 14, no_wrap=True, overflow="ellipsis")
    table.add_column("so far", max_width=36 if wide else 10, no_wrap=True, overflow="ellipsis")
    table.add_column("token", max_width=12, no_wrap=True, overflow="ellipsis", style="bold")
    heads = ["t", "V^", "95 %", "V", *(["r", "V^(s')", "95 % after"] if wide else []), "A^"]
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    states = document["states"]
    step = max(1.0, len(states) / SHOWN)
    for i in range(min(SHOWN, len(states))):
        s = states[int(i * step)]
        cells = [str(s["position"]), f"{s['value']:.2f}", _range(s["interval"])]
        cells.append("-" if s["critic"] is None else f"{s['critic']:.2f}")
        if wide:
            cells += [f"{s['reward']:.2f}", f"{s['value_after']:.2f}"]
            cells.append("end" if s["ended"] else _range(s["interval_after"]))
        cells.append(f"{s['advantage']:+.2f}")
        table.add_row(
            Text(readable(s["prompt"], "")),
            Text(readable(s["before"], "")),
            Text(s["token"]),
            *cells,
        )
    return table


def _range(interval: Sequence[float]) -> str:
    return f"[{interval[0]:.2f}, {interval[1]:.2f}]"


def _estimator_table(document: Mapping[str, Any]) -> Any:
    table = make_table(["estimator", "bias", "95 %", "corr", "sign", "MSE"])
    for row in document["estimators"]:
        interval = row["bias_interval"]
        between = f"[{two_digits(interval[0])}, {two_digits(interval[1])}]" if interval else "-"
        cells = [with_error(row, key) for key in ("correlation", "agreement", "squared_error")]
        table.add_row(name_of(row), with_error(row, "bias"), between, *cells)
    return table
