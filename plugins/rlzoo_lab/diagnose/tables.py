"""`diagnose` as blocks, and the format of its numbers."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlzoo_lab.view.blocks import Block, Column, Curve, Series, Table, Text, column
from rlzoo_lab.view.numbers import NONE, option_text


def two_digits(x: float) -> str:
    if abs(x) < 1e-12:
        return "0"
    short = f"{x:.2g}" if 0.001 <= abs(x) < 1000 else f"{x:.1e}"
    return short.replace("e-0", "e-").replace("e+0", "e+")


def estimators(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> Table:
    """A row for each estimator and critic, with the estimator's name once."""
    names = [name_of(row) for row in rows]
    once = ["" if i and names[i - 1] == name else name for i, name in enumerate(names)]
    linked = any("batches" in row for row in rows)
    return Table([Column("estimator", once), *columns], linked=linked)


def name_of(row: Mapping[str, Any]) -> str:
    shown = (f"{k}={option_text(v)}" for k, v in row["shown"].items())
    return " ".join([row["estimator"], *shown])


def headline(document: Mapping[str, Any]) -> str:
    """The world in a line; for several policies, without the numbers that differ between them."""
    w = document["world"]
    ends = "EOS included" if w["eos"] else "no EOS"
    facts = [
        f"{w['name']}: |V| = {w['vocabulary']} ({ends}), T = {w['horizon']}: {w['states']:,} "
        f"states, {w['episodes']:,} episodes"
    ]
    if "expected_return" in w:
        facts.append(f"J = {w['expected_return']:.3f}, mean length {w['expected_length']:.2f}")
    facts.append(f"groups of {w['samples']}")
    if w["prompts"] > 1:
        facts.append(f"{w['prompts']} prompts")
    if w["cut"]:
        facts.append(f"rows truncated at {w['cut']}")
    if w.get("kl_coef"):
        facts.append(f"KL {w['kl']:.3f} nats, coefficient {w['kl_coef']}")
    return "; ".join(facts)


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """The numeric columns, the most telling first."""
    middle = middle_of(rows)

    def of(head: str, key: str, form: Callable[[float], str] = two_digits) -> Column:
        return column(head, (row[key] for row in rows), form)

    def drawn(head: str, size: str, key: str) -> Column:
        return column(head, (row["batches"][size][key] for row in rows), "{:.2f}".format)

    cosines = {s: drawn(f"cos@{s}", s, "cosine") for s in (rows[0]["batches"] if rows else ())}
    return [
        of("b_perp²", "b_perp2"),
        of("var/s²", "relative_variance"),
        of("sign", "sign", "{:.2f}".format),
        of("cos A^", "own_cosine", "{:.3f}".format),
        of("cos", "cosine", "{:.3f}".format),
        *([cosines.pop(middle), drawn(f"gain@{middle}", middle, "gain")] if middle else []),
        *([] if middle else [of("gain", "gain", "{:.2f}".format)]),
        of("bias²", "bias2"),
        of("scale", "scale"),
        of("SNR", "snr"),
        *cosines.values(),
    ]


def blocks(document: Mapping[str, Any]) -> list[Block]:
    rows = document["estimators"]
    critics = Column("critic", [row["critic"] or NONE for row in rows], left=True)
    table = estimators(rows, [critics, *columns_of(rows)])
    notes = notes_of(document, rows)
    said = [Text(verdict(rows), "strong")] if len(rows) > 1 else []
    return [Text(headline(document)), table, *said, *(Text(note, "faint") for note in notes)]


def verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """The estimator whose batches point closest to the true gradient, for each critic; those
    without a critic take part in each comparison."""
    size = middle_of(rows)

    def pointing(row: Mapping[str, Any]) -> tuple[float, float]:
        drawn = row["batches"][size] if size else row
        return drawn["cosine"], drawn.get("cosine_se") or 0.0

    rows = [row for row in rows if pointing(row)[0] is not None]  # others cannot be enumerated
    if not rows:
        return "No expected gradient can be enumerated."
    parts = []
    for critic in list(dict.fromkeys(row["critic"] for row in rows if row["critic"])) or [None]:
        field = sorted((r for r in rows if r["critic"] in (critic, None)), key=pointing)
        best, se = pointing(field[-1])
        level = [
            name_of(row) for row in field[:-1]
            if best - pointing(row)[0] <= 2 * math.hypot(se, pointing(row)[1]) + 1e-9
        ]  # fmt: skip
        ties = f", level with {', '.join(level)}" if level else ""
        parts.append(f"{f'{critic} critic: ' * bool(critic)}{name_of(field[-1])}, {best:.2f}{ties}")
    where = f"a batch of {size} rows" if size else "the expected gradient"
    return f"Highest cosine with the true gradient, in {where}: {'; '.join(parts)}."


def middle_of(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The batch size near 64, which a narrow table shows; None without batches."""
    sizes = list(rows[0]["batches"]) if rows else []
    return min(sizes, key=lambda size: abs(int(size) - 64)) if sizes else None


def curves(document: Mapping[str, Any]) -> list[Block]:
    """The cosine of a batch's gradient with the true one, by the batch's size."""
    series = []
    for i, row in enumerate(document["estimators"]):
        sizes = sorted(map(int, row["batches"])) if "batches" in row else []
        y = [row["batches"][str(size)]["cosine"] for size in sizes]
        name = ", ".join([name_of(row), *filter(None, [row["critic"]])]) if sizes else ""
        series.append(Series(name, [math.log2(size) for size in sizes], y, colour=i, row=i))
    caption = "Cosine of a batch's gradient with the true one, by its size."
    return [Curve("cosine", series, "log2 of the rows in a batch", "cos", caption)]


def notes_of(document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Notes below the table of `rows`."""
    notes = []
    if drawn := dict.fromkeys(row["estimator"] for row in rows if row["cosine"] is None):
        notes.append(f"{', '.join(drawn)}: depends on more rows than can be enumerated, so it is "
                     "measured only in batches")  # fmt: skip
    errors = [drawn["cosine_se"] for row in rows for drawn in row["batches"].values()]
    if errors:
        notes.append(
            "cos@B, gain@B: sampled batches of B rows, the same for all estimators; standard "
            f"error of cos@B at most {max(errors):.2g}"
        )
    if rows:
        true = sorted(f"{row['true_gain']:.2f}" for row in rows)
        gains = dict.fromkeys([true[0], true[-1]])
        notes.append(
            "b_perp²: squared bias that reaches the gradient; var/s²: variance of A^ at a token "
            "over its squared scale; sign: share of A with the right sign, weighted by its size"
        )
        notes.append(
            f"gain: increase of J from a step with KL {document['world']['step_kl']}, as a share "
            f"of the natural gradient's; that of the true gradient is {' to '.join(gains)}"
        )
    notes += _losses(rows)
    if document["left_out"]:
        what = ", ".join(document["left_out"])
        notes.append(f"the recipe's gradient is shown without {what}")
    notes += undiagnosable(document)
    if "seconds" in document:
        notes.append(f"{document['seconds']:.1f} s")
    return notes


def _losses(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Notes on the gradient behind the cosine and on the return behind the truth."""
    how = {"none": "not whitened", "batch": "whitened over the batch", "group": "within groups"}
    losses = dict.fromkeys(
        f"{row['policy_loss']}, {row['aggregation']}, {how[row['whiten']]}" for row in rows
    )
    notes = [
        "cos A^: only the estimator, with equal token weights; cos, cos@B, gain@B: the gradient of "
        f"the recipe's loss at ratio 1: {' or '.join(losses)}"
    ]
    discounts = {f"{name_of(row)}: gamma = {row['gamma']:g}" for row in rows if row["gamma"] != 1}
    if discounts:
        notes.append(
            f"{'; '.join(sorted(discounts))}; the truth uses gamma = 1, the undiscounted return"
        )
    return notes


def undiagnosable(document: Mapping[str, Any]) -> list[str]:
    return [
        f"{row['estimator']}: cannot be diagnosed, because it needs {', '.join(row['needs'])}"
        for row in document["not_diagnosable"]
    ]
