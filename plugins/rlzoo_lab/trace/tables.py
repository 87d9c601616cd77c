"""A trace in the terminal: tables, a legend and the arithmetic."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlzoo.format.text import printable
from rlzoo_lab.trace.trace import Credit, Derivation, Numbers, Trace
from rlzoo_lab.view.numbers import aligned, number, option_text
from rlzoo_lab.view.shade import Colour, largest, shade

# Batch column -> header, in the order of the table: whatever the estimator, and of each.
SHARED = {
    "sampler_log_probs": "sampler\nlog-prob",
    "log_probs": "log-prob\nnow",
    "old_log_probs": "log-prob",
    "ref_log_probs": "ref\nlog-prob",
    "kl": "KL",
    "scores": "score",
    "rewards": "reward",
    "values": "value",
    "ratio": "ratio",
}

OWN = {
    "delta": "delta",
    "raw_advantages": "advantage\nraw",
    "advantages": "advantage",
    "returns": "return",
    "policy_loss": "policy\nloss",
}


def own_columns(credit: Credit) -> dict[str, str]:
    """Batch column -> header of an estimator's output; advantages appear once if not whitened."""
    headers = {name: header for name, header in OWN.items() if name in credit.columns}
    if not credit.whitened and "raw_advantages" in headers:
        headers["raw_advantages"] = headers.pop("advantages")
    return headers


def _styles(values: Numbers) -> list[Any]:
    from rich.style import Style

    def style(shaded: tuple[Colour, float] | None) -> Style:
        if shaded is None:
            return Style()
        colour, strength = shaded
        # Towards white where it is weak; black letters can be read on all of it.
        r, g, b = (round(255 - (0.15 + 0.85 * strength) * (255 - c)) for c in colour)
        return Style(color="black", bgcolor=f"rgb({r},{g},{b})")

    top = largest(values)
    return [style(shade(v, top)) for v in values]


@dataclass
class Shown:
    """A table column: a header, and a text and a style for each row."""

    header: str
    texts: list[str]
    styles: list[Any] | None = None


def _columns(traced: Trace) -> list[list[Shown]]:
    """Columns in the groups in which they are to stay together."""
    end = traced.bootstrap is not None
    blank = [""] if end else []

    def plain(header: str, values: Numbers, last: str | None = None) -> Shown:
        texts = [*map(number, values), *([last or ""] if end else [])]
        return Shown(header, aligned(texts, max(map(len, header.split("\n")))))

    shared = []
    for name, header in SHARED.items():
        if name in traced.columns:
            last = number(traced.bootstrap) if name == "values" else None
            shared.append(plain(header, traced.columns[name], last))
    deltas = [c.columns["delta"] for c in traced.credits if "delta" in c.columns]
    once = bool(deltas) and all(d == deltas[0] for d in deltas)
    if once:
        shared.append(plain("delta", deltas[0]))
    groups = [shared]
    for credit in traced.credits:
        above = credit.label.replace(" ", "\n") + "\n" if len(traced.credits) > 1 else ""
        group = []
        for name, header in own_columns(credit).items():
            if name == "delta" and once:
                continue
            column = plain(above + header, credit.columns[name])
            if "advantages" in name:
                column.styles = [*_styles(credit.columns[name]), *blank]
            group.append(column)
        if credit.clipped is not None:
            group.append(Shown(f"{above}clipped", [*credit.clipped, *blank]))
        groups.append(group)
    return groups


def _table(traced: Trace, columns: Sequence[Shown]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("t", justify="right", vertical="bottom", no_wrap=True)
    table.add_column("token", overflow="fold", max_width=24)
    for column in columns:
        table.add_column(Text(column.header, justify="right"), no_wrap=True)
    marks: list[Any] = [""] * len(traced.tokens)
    if len(traced.credits) == 1:
        marks = _styles(traced.credits[0].columns["advantages"])
    for i, (token, mark) in enumerate(zip(traced.tokens, marks, strict=True)):
        cells = [Text(c.texts[i], style=c.styles[i] if c.styles else "") for c in columns]
        style = "" if token.action else "dim"
        table.add_row(str(token.t), Text(token.text, style=mark), *cells, style=style)
    if traced.bootstrap is not None:
        last = [Text(c.texts[-1]) for c in columns]
        table.add_row(str(len(traced.tokens)), "(end)", *last, style="dim")
    return table


def tables(traced: Trace, console: Any) -> Iterator[Any]:
    """The fewest tables that show all columns in the console's width."""
    from rich.measure import Measurement

    def fits(columns: Sequence[Shown]) -> bool:
        table = _table(traced, columns)
        free = console.options.update(max_width=100_000)
        return Measurement.get(console, free, table).maximum <= console.width

    page: list[Shown] = []
    for group in _columns(traced):
        together = fits([*page, *group]) or fits(group)
        for columns in [group] if together else [[column] for column in group]:
            if page and not fits([*page, *columns]):
                yield _table(traced, page)
                page = []
            page = [*page, *columns]
    if page or not traced.columns:
        yield _table(traced, page)


def trace_view(traced: Trace, console: Any, *, explain: bool) -> Iterator[Any]:
    """A trace as terminal output."""
    from rich.text import Text

    def line(*pieces: Any) -> Any:
        return Text.assemble(*pieces, overflow="fold")

    yield line((traced.source, "bold"), f", response {traced.row} of {traced.rows}")
    if traced.prompt is not None:
        answer = "" if traced.answer is None else f"   answer {traced.answer}"
        scored = "" if traced.score is None else f"   score {number(traced.score)}"
        yield line(("prompt ", "dim"), printable(traced.prompt), (answer + scored, "dim"))
    if traced.response is not None:
        yield line(("text ", "dim"), printable(traced.response))
    width = max((len(c.label) for c in traced.credits), default=0)
    for credit in traced.credits if any(t.text for t in traced.tokens) else ():
        name = f"{credit.label:<{width}} " if len(traced.credits) > 1 else "response "
        styles = _styles(credit.columns["advantages"])
        texts = (t.text for t in traced.tokens)
        yield line((name, "dim"), *zip(texts, styles, strict=True))
    if not traced.credits:
        yield line(("response ", "dim"), *(t.text for t in traced.tokens))
    yield from tables(traced, console)
    for meaning in legend(traced):
        yield line((meaning, "dim"))
    for note in traced.notes:
        yield line((note, "yellow"))
    if explain:
        for where, derivation in all_derivations(traced):
            yield line()
            yield line((where, "bold"), derivation.formula)
            for step in derivation.lines:
                for i, piece in enumerate(Text(step).wrap(console, max(20, console.width - 6))):
                    piece.rstrip()
                    yield line("      " if i else "  ", piece)


def legend(traced: Trace) -> list[str]:
    """One line of explanation for each column."""
    lines = []
    if "values" in traced.columns:
        lines.append(f"value: V(s_t), read before token t; {traced.ending}.")
    for credit in traced.credits:
        options = ", ".join(f"{k}={option_text(v)}" for k, v in credit.options.items())
        white = credit.whitened or "not whitened"
        if "policy_loss" in credit.columns:
            white = "the policy loss of each token, before averaging"
        told = f"{credit.name}({options}): {white}."
        lines.append(told if credit.summary else f"advantage: as {credit.name} recorded it.")
    return lines


def all_derivations(traced: Trace) -> Iterator[tuple[str, Derivation]]:
    """(heading, derivation) pairs, those shared by all estimators first."""
    first, *others = [credit.derivations for credit in traced.credits] or [[]]
    common = [d for d in first if all(d in derivations for derivations in others)]
    for derivation in [*traced.derivations, *common]:
        yield f"{derivation.column}: ", derivation
    for credit in traced.credits:
        name = f"{credit.label}, " if len(traced.credits) > 1 else ""
        for derivation in credit.derivations:
            if derivation not in common:
                yield f"{name}{derivation.column}: ", derivation
