"""The tab of a response: each token with its numbers, which a script shows and shades by."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlzoo.show.page import tag
from rlzoo.show.shade import BLUE, ORANGE
from rlzoo.show.text import printable
from rlzoo.tools.report.batches import Saved

BUDGET = 48_000  # tokens on a page
LONGEST = 2_000  # of a response

# key: (title, what it is, whether its colour says on which side of 0 it is)
SHADES: dict[str, tuple[str, str, bool]] = {
    "advantages": ("advantage", "what the loss gets, after whitening: blue is made likelier, orange "
                   "less likely", True),
    "raw_advantages": ("raw advantage", "what the estimator gave, before whitening", True),
    "rewards": ("reward", "scores, less the KL where it is in the reward", True),
    "values": ("value", "V(s_t), read before the token is chosen", False),
    "returns": ("return", "what the critic is to learn", False),
    "log_ratio": ("ratio", "probability after the update of this step over that before it: blue has "
                  "become likelier", True),
    "log_gap": ("KL", "log pi - log pi_ref, in nats: blue is likelier than under the reference",
                True),
    "entropy": ("entropy", "of the choice, in nats, after the update: strong where much was open",
                False),
    "mismatch": ("sampler gap", "log pi - log mu, in nats: policy against sampler, 0 where they "
                 "agree", True),
    "surprise": ("surprise", "-log pi of the token when it was drawn, in nats", False),
}  # fmt: skip

HOW = """No batch was kept, so no number of a token is known. Train with run.save_batches=2: the last
two batches stay in the run's folder, and this tab shows each token of them. `rlzoo trace RUN` draws a
fresh response from the last checkpoint, and shows its tokens now."""


def tokens_tab(saved: Sequence[Saved]) -> tuple[str, dict[str, Any]]:
    """(HTML, what its script shows)."""
    if not saved:
        return tag("p", HOW, "note"), {}
    data, cut, left = _data(saved)
    options = "".join(f'<option value="{key}">{SHADES[key][0]}</option>' for key in data["shades"])
    notes = []
    if left:
        notes.append(f"{left} responses are left out: a page has room for {BUDGET:,} tokens")
    if cut:
        notes.append(f"{cut} responses are cut after {LONGEST:,} tokens")
    if not any(batch.tokens for batch in saved):
        notes.append("this run kept no texts of tokens: each is its number in the vocabulary")
    if "entropy" not in data["shades"]:
        notes.append("this run kept neither ratio nor entropy: runs from now on do")
    note = tag("p", "; ".join(notes) + ".", "muted") if notes else ""
    up, down = (f"rgba({r},{g},{b},.6)" for r, g, b in (BLUE, ORANGE))
    return (
        "<noscript><p>Tokens are shown by a script, and scripts are off; "
        "<code>rlzoo trace RUN --html FILE</code> writes a page without.</p></noscript>"
        '<p class="controls"><label>step <select id="batch"></select></label>'
        '<label class="wide">response <select id="response"></select></label>'
        f'<label>shaded by <select id="shade">{options}</select></label></p>{note}'
        '<p class="muted" id="asked"></p>'
        '<p class="muted legend"><span id="least"></span>'
        f'<span class="ramp" id="ramp" data-up="{up}" data-down="{down}"></span>'
        '<span id="most"></span> <span id="means"></span></p>'
        '<div class="reading"><div><div class="tokens" id="tokens" tabindex="0" role="group" '
        'aria-label="tokens; arrow keys go from one to the next"></div>'
        '<svg id="profile" role="img" aria-label="the number along the response" '
        'viewBox="0 0 640 90" preserveAspectRatio="none"></svg></div>'
        '<aside id="numbers" aria-live="polite"></aside></div>'
    ), data


def _data(saved: Sequence[Saved]) -> tuple[dict[str, Any], int, int]:
    """(what the script shows, responses that are cut, responses left out)."""
    shades = {key for batch in saved for key in _columns(batch)}
    data: dict[str, Any] = {
        "shades": {k: list(v) for k, v in SHADES.items() if k in shades},
        "batches": [],
    }
    cut = left = 0
    for batch in reversed(saved):
        room, rows = BUDGET // len(saved), []
        columns = _columns(batch)
        # Groups with signal first; a page that is full leaves flat ones out.
        order = sorted(batch.groups(), key=batch.flat)
        for r in (r for rows_of in order for r in rows_of):
            length = batch.length(r)
            shown = min(length, LONGEST)
            if shown > room:
                left += 1
                continue
            room -= shown
            cut += shown < length
            rows.append(_row(batch, columns, r, shown, length))
        rows.sort(key=lambda found: found["row"])
        ids = {i for found in rows for i in found["ids"]}
        data["batches"].append({
            "step": batch.step, "rows": rows, "scales": _scales(batch, columns),
            "tokens": {i: batch.tokens.get(i, f"⟨{i}⟩") for i in sorted(ids)},
        })  # fmt: skip
    return data, cut, left


def _columns(batch: Saved) -> dict[str, Any]:
    """Arrays (B, T) by the keys of `SHADES`, as far as the batch has them."""
    there = batch.columns
    found = {key: there[key] for key in SHADES if key in there}

    def gap(key: str, a: str, b: str) -> None:
        if a in there and b in there:
            found[key] = there[a].astype(float) - there[b]

    gap("log_ratio", "log_probs", "old_log_probs")
    gap("log_gap", "old_log_probs", "ref_log_probs")
    gap("mismatch", "old_log_probs", "sampler_log_probs")
    if "old_log_probs" in there:
        found["surprise"] = -there["old_log_probs"]
    shape = there["response_mask"].shape
    return {key: found[key] for key in SHADES if key in found and found[key].shape == shape}


def _scales(batch: Saved, columns: Mapping[str, Any]) -> dict[str, list[float]]:
    """Where the colours of a column end: so that two of a hundred tokens are beyond."""
    chosen = batch.columns["response_mask"] > 0
    scales = {}
    for key, column in columns.items():
        values = column[chosen]
        values = values[np.isfinite(values)]
        if not len(values):
            scales[key] = [0.0, 0.0]
        elif SHADES[key][2]:
            size = np.abs(values)
            top = float(np.quantile(size[size > 0], 0.98)) if size.any() else 0.0
            scales[key] = [-_short(top), _short(top)]
        else:
            scales[key] = [_short(float(q)) for q in np.quantile(values, (0.02, 0.98))]
    return scales


def _row(
    batch: Saved, columns: Mapping[str, Any], r: int, shown: int, length: int
) -> dict[str, Any]:
    chosen = batch.columns["response_mask"][r, :shown] > 0
    numbers = {}
    for key, column in columns.items():
        values = [
            _short(float(v)) if c else None for v, c in zip(column[r, :shown], chosen, strict=True)
        ]
        one = {v for v in values if v is not None}
        numbers[key] = values if len(one) != 1 or None in values else one.pop()
    answer = batch.text("answers", r)
    return {
        "row": r, "group": int(batch.columns["group_ids"][r]), "length": length,
        "prompt": printable(batch.text("prompts", r) or "")[:4000],
        "answer": None if answer is None else printable(answer)[:400],
        "score": _short(batch.score(r)),
        "ids": batch.columns["response_ids"][r, :shown].tolist(), "numbers": numbers,
    }  # fmt: skip


def _short(x: float) -> float | None:
    """Four digits; none of what is not finite, which JSON has no word for."""
    if not math.isfinite(x):
        return None
    short = float(f"{x:.4g}")
    return int(short) if short == int(short) and abs(short) < 1e9 else short
