"""A trace as blocks: its tokens, one table with a row for each, a legend and the arithmetic."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rlzoo.format.text import printable
from rlzoo_lab.diagnose.trace.trace import TYPED, Derivation, Trace
from rlzoo_lab.view.blocks import Block, Column, Note, Table, Text, Tokens
from rlzoo_lab.view.numbers import aligned, number, option_text

# Batch column -> header, in the order of the table: whatever the estimator, and of each.
SHARED = {
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

ROWS = "t"  # the name of the table, in links
Place = tuple[int | None, str, str]  # of a column: its estimator, its batch column, its header


def blocks(traced: Trace, explain: bool) -> list[Block]:
    """Everything that `rlzoo trace` prints, with estimators side by side. explain: with the
    arithmetic."""
    out: list[Block] = [Text(f"{traced.source}, response {traced.row} of {traced.rows}", "title")]
    if traced.prompt is not None:
        told = "" if traced.answer is None else f"   answer {traced.answer}"
        told += "" if traced.score is None else f"   score {number(traced.score)}"
        out.append(Text(f"prompt {printable(traced.prompt)}{told}"))
    texts = [token.text for token in traced.tokens]
    names = [c.label if len(traced.credits) > 1 else "response" for c in traced.credits]
    shades = [c.columns["advantages"] for c in traced.credits]
    if any(texts):
        width = max(map(len, names), default=0)
        pairs = zip(names, shades, strict=True) if names else [("response", [None] * len(texts))]
        out += [Tokens(name.ljust(width), texts, x, ROWS) for name, x in pairs]
    places = side_by_side(traced)
    narrow = [(i, name, BROKEN.sub(r"-\n", head)) for i, name, head in places]
    out.append(replace(table(traced, places), narrow=table(traced, narrow, digits=3)))
    out += [Text(meaning, "faint") for meaning in legend(traced)]
    out += map(Note, traced.notes)
    for where, derivation in all_derivations(traced) if explain else ():
        out.append(Text("\n".join([f"{where}{derivation.formula}", *derivation.lines]), "code"))
    return out


def inputs(traced: Trace) -> list[Place]:
    """The columns that do not depend on the estimator, without those of a policy that has not
    changed since it sampled: there, each ratio is 1."""
    left_out = {"log_probs", "ratio"} if unchanged(traced) else set()
    names = {name: head for name, head in SHARED.items() if name not in left_out}
    return [(None, name, header) for name, header in names.items() if name in traced.columns]


def unchanged(traced: Trace) -> bool:
    """Whether the policy of a model's response is still the one that sampled it."""
    ratios = traced.columns.get("ratio") if traced.source != TYPED else None
    return ratios is not None and all(x is None or abs(x - 1) < NOISE for x in ratios)


def outputs(traced: Trace, i: int, above: str = "") -> list[Place]:
    """The columns of an estimator; advantages appear once if not whitened."""
    credit = traced.credits[i]
    headers = {name: header for name, header in OWN.items() if name in credit.columns}
    if not credit.whitened and "raw_advantages" in headers:
        headers["raw_advantages"] = headers.pop("advantages")
    found: list[Place] = [(i, name, above + header) for name, header in headers.items()]
    clips = credit.clipped is not None and not unchanged(traced)
    return [*found, *([(i, "clipped", f"{above}clipped")] if clips else [])]


def side_by_side(traced: Trace) -> list[Place]:
    """All columns; a delta that all estimators have in common is there once."""
    found, deltas = inputs(traced), [c.columns.get("delta") for c in traced.credits]
    known = [delta for delta in deltas if delta is not None]
    once = bool(known) and all(delta == known[0] for delta in known)
    if once:
        found.append((deltas.index(known[0]), "delta", "delta"))
    for i, credit in enumerate(traced.credits):
        above = credit.label.replace(" ", "\n") + "\n" if len(traced.credits) > 1 else ""
        found += [place for place in outputs(traced, i, above) if not (once and "delta" in place)]
    return found


NOISE = 1e-5

BROKEN = re.compile("(?<=log)-|(?<=advan)(?=tage)")  # where a heading may be broken


def table(traced: Trace, places: Sequence[Place], digits: int = 4) -> Table:
    """A row for each token, and one for what follows the last if there is a value of it."""
    ended = traced.bootstrap is not None and any(column == "values" for _, column, _ in places)
    n, end = len(traced.tokens), [""] if ended else []
    owners = {i for i, _, _ in places if i is not None}
    shades: Sequence[float | None] = ()
    if len(owners) == 1 and len(traced.credits) == 1:
        shades = [*traced.credits[0].columns["advantages"], *(None for _ in end)]
    columns = [
        Column("t", [*(str(token.t) for token in traced.tokens), *(str(n) for _ in end)]),
        Column("token", [*(token.text for token in traced.tokens), *("(end)" for _ in end)],
               left=True, shades=shades),
    ]  # fmt: skip
    for i, column, header in places:
        if i is not None and column == "clipped":
            columns.append(Column(header, [*(traced.credits[i].clipped or ()), *end], left=True))
            continue
        values = (traced.columns if i is None else traced.credits[i].columns)[column]
        if traced.source != TYPED:  # a model's float32: what is smaller is rounding
            values = [0.0 if x is not None and abs(x) < NOISE else x for x in values]
        last = [number(traced.bootstrap)] if end and column == "values" else end
        texts = aligned(
            [*(number(x, digits) for x in values), *last], max(map(len, header.split("\n")))
        )
        shades = [*values, *(None for _ in last)] if "advantages" in column else ()
        columns.append(Column(header, texts, shades=shades))
    faint = [i for i, token in enumerate(traced.tokens) if not token.action]
    return Table(columns, faint=[*faint, *(n for _ in end)], name=ROWS)


def legend(traced: Trace) -> list[str]:
    """One line of explanation for each column."""
    lines = ["log-prob: of the sampling policy, which is still the current one: each ratio is 1."]
    lines *= unchanged(traced)
    if "values" in traced.columns:
        lines.append(f"value: V(s_t), read before token t; {traced.ending}.")
    for credit in traced.credits:
        options = ", ".join(f"{k}={option_text(v)}" for k, v in credit.options.items())
        white = credit.whitened or "not whitened"
        if "policy_loss" in credit.columns:
            white = "the policy loss of each token, before averaging"
        lines.append(f"{credit.name}({options}): {white}.")
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
