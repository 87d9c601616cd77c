"""The tab of a response: a script shows each token's numbers and shades the tokens by one of
them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlzoo.format.text import printable
from rlzoo_lab.doctor.report.batches import Saved
from rlzoo_lab.view.numbers import BLUE, ORANGE
from rlzoo_lab.view.page import tag

BUDGET = 32_000  # tokens on a page
LONGEST = 2_000  # of a response

# key: (title, what it is, whether its colour shows its sign)
SHADES: dict[str, tuple[str, str, bool]] = {
    "advantages": ("advantage",
        "the advantage that the loss uses, after whitening: blue tokens become more likely, "
        "orange ones less likely", True),
    "raw_advantages": ("raw advantage", "the estimator's advantage, before whitening", True),
    "rewards": ("reward", "the score, minus KL if it is in the reward", True),
    "values": ("value", "V(s_t), computed before the token is chosen", False),
    "returns": ("return", "the critic's target", False),
    "log_ratio": ("ratio",
        "probability after this step's update divided by that before it: blue tokens have become "
        "more likely", True),
    "log_gap": ("KL",
        "log pi - log pi_ref, in nats: blue tokens are more likely than under the reference",
                True),
    "entropy": ("entropy",
        "entropy of the policy at this token, in nats, after the update: strongly shaded "
        "where the policy was uncertain",
                False),
    "old_entropy": ("entropy before",
        "entropy of the policy at this token, in nats, before the update: strong where the policy "
        "was uncertain",
                False),
    "mismatch": ("sampler gap",
        "log pi - log mu, in nats: the policy minus the sampler; 0 if they agree", True),
    "surprise": ("surprise", "-log pi of the token when it was sampled, in nats", False),
}  # fmt: skip

HOW = """No batch was saved, so this tab cannot show tokens. With run.save_batches=1, rlzoo saves
the last one and shows its tokens here. `rlzoo trace RUN` samples a new response from the last
checkpoint and shows its tokens."""


def tokens_tab(shown: Sequence[Mapping[str, Any]], how: str = HOW) -> tuple[str, dict[str, Any]]:
    """(HTML, the data for its script). shown: the output of `shown_tokens` for each saved batch.
    how: what makes such batches."""
    if not shown:
        return tag("p", how, "note"), {}
    shades = {
        key: list(told) for key, told in SHADES.items() if any(key in s["scales"] for s in shown)
    }
    data = {"shades": shades, "batches": shown}
    options = "".join(f'<option value="{key}">{SHADES[key][0]}</option>' for key in shades)
    notes = []
    if left := sum(s["left"] for s in shown):
        notes.append(
            f"{left} responses are not shown, because a page shows at most {BUDGET:,} tokens"
        )
    if cut := sum(s["cut"] for s in shown):
        notes.append(f"{cut} responses are shown only up to {LONGEST:,} tokens")
    note = tag("p", "; ".join(notes) + ".", "muted") if notes else ""
    up, down = (f"rgba({r},{g},{b},.6)" for r, g, b in (BLUE, ORANGE))
    return (
        "<noscript><p>This tab needs JavaScript, which is disabled; "
        "<code>rlzoo trace RUN --html FILE</code> writes a page without scripts.</p></noscript>"
        '<p class="controls"><label>step <select id="batch"></select></label>'
        '<label class="wide">response <select id="response"></select></label>'
        f'<label>shaded by <select id="shade">{options}</select></label></p>'
        f"{note}"
        '<p class="muted" id="asked"></p>'
        '<p class="muted legend"><span id="least"></span>'
        f'<span class="ramp" id="ramp" data-up="{up}" data-down="{down}"></span>'
        '<span id="most"></span> <span id="means"></span></p>'
        '<div class="reading"><div><div class="tokens" id="tokens" tabindex="0" role="group" '
        'aria-label="tokens; use the arrow keys to move between them"></div>'
        '<h3>All responses to this prompt</h3><div id="others"></div></div>'
        '<aside id="numbers" aria-live="polite"></aside></div>'
    ), data


def shown_tokens(batch: Saved, room: int) -> dict[str, Any]:
    """The data of a batch for the script: responses of at most `room` tokens in total, those of
    groups with signal first."""
    picked, cut = [], 0
    order = sorted(batch.groups(), key=batch.flat)
    for row in (row for rows in order for row in rows):
        length = min(batch.length(row), LONGEST)
        if length <= room:
            room -= length
            cut += length < batch.length(row)
            picked.append(row)
    picked.sort()
    wide = {name: x for name, x in batch.columns.items() if x.ndim == 2}
    columns = _columns({name: x[picked, :LONGEST] for name, x in wide.items()})
    rows = [_row(batch, columns, at, row) for at, row in enumerate(picked)]
    ids = sorted({i for row in rows for i in row["ids"]})
    chosen = batch.columns["response_mask"][picked, :LONGEST] > 0
    return {
        "step": batch.step, "rows": rows, "left": batch.rows - len(rows), "cut": cut,
        "scales": {key: _scale(column[chosen], SHADES[key][2]) for key, column in columns.items()},
        "tokens": {i: printable(batch.tokens.get(i, f"⟨{i}⟩")) for i in ids},
    }  # fmt: skip


def _columns(there: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays (R, T) by the keys of `SHADES`, if the batch has the columns for them."""
    found = dict(there)

    def gap(key: str, a: str, b: str) -> None:
        if a in there and b in there:
            found[key] = there[a].astype(float) - there[b]

    gap("log_ratio", "log_probs", "old_log_probs")
    gap("log_gap", "old_log_probs", "ref_log_probs")
    gap("mismatch", "old_log_probs", "sampler_log_probs")
    for name in ("sampler_log_probs", "old_log_probs"):
        if name in there:
            found["surprise"] = -there[name]
    return {key: found[key] for key in SHADES if key in found}


def _scale(values: Any, signed: bool) -> list[float | None]:
    """The limit of a column's colours, which 2 % of the tokens exceed."""
    values = values[np.isfinite(values)]
    if signed:
        values = np.abs(values[values != 0])
    if not len(values):
        return [0, 0]
    low, high = map(float, np.quantile(values, (0.02, 0.98)))
    return [_short(-high if signed else low), _short(high)]


def _row(batch: Saved, columns: Mapping[str, Any], at: int, row: int) -> dict[str, Any]:
    length = batch.length(row)
    chosen = batch.columns["response_mask"][row, : min(length, LONGEST)] > 0
    numbers: dict[str, Any] = {}
    for key, column in columns.items():
        values = [
            _short(v) if c else None
            for v, c in zip(column[at].tolist(), chosen.tolist(), strict=False)
        ]
        alike = values and values[0] is not None and values.count(values[0]) == len(values)
        numbers[key] = values[0] if alike else values
    answer = batch.text("answers", row)
    return {
        "row": row, "group": int(batch.columns["group_ids"][row]), "length": length,
        "prompt": printable(batch.text("prompts", row) or "")[:4000],
        "answer": None if answer is None else printable(answer)[:400],
        "score": _short(batch.score(row)), "numbers": numbers,
        "ids": batch.columns["response_ids"][row, : len(chosen)].tolist(),
    }  # fmt: skip


def _short(x: float, digits: int = 3) -> float | None:
    """As many digits as a page has room for; None for values that JSON cannot express."""
    if not math.isfinite(x):
        return None
    short = float(f"{x:.{digits}g}")
    return int(short) if short == round(short) and abs(short) < 1e9 else short
