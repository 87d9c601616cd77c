"""Numeric: the last or boxed number of the response equals the answer's number."""

import math
import re
from fractions import Fraction
from typing import Annotated, Literal

import torch

from rlzoo import Range, hookimpl
from rlzoo_zoo.rewards.exact_match import accepted

# Not a part of `1.2.3`, nor the 1 of `1e9999`, whose digits do not count.
_UNSIGNED = (
    r"(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,3})?|\.\d+)"
    r"(?!\d|\.\d|[eE][-+]?\d)"
)
# A sign after a digit, a letter or a bracket is an operator; digits glued to letters are a name.
NUMBER = re.compile(
    rf"(?:(?<![\w)\]}}.^])(?P<sign>[-+])[$€£]?|[$€£]|(?<![\w.^]))"
    rf"(?P<top>{_UNSIGNED})(?:\s*/\s*(?P<bottom>{_UNSIGNED}))?"
)
LATEX_FRACTION = re.compile(r"(-?)\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
BRACE = re.compile(r"(\\f?box(?:ed)?\s*)?\{|\}")
LONGEST = 400  # characters of a number: what Python multiplies out in no time


def numeric(
    responses,
    answers,
    *,
    find: Literal["auto", "last", "boxed"] = "auto",
    tolerance: Annotated[float, Range(0)] = 0.0,
    relative: Annotated[float, Range(0)] = 0.0,
):
    r"""1 if the response's number equals the answer's, otherwise 0, (B,).

    The number is the last one in the last `\boxed{...}` (boxed), the last one in the response
    (last), or boxed if there is a box and last otherwise (auto). Numbers are parsed exactly, as
    fractions: `1,234.50`, `-3`, `1/2`, `\frac{1}{2}`, `2.5e3`; `$`, `%` and units are ignored. A
    number is correct within tolerance, or within relative * |answer|. An answer without a number is
    an error; any answer of a list is correct. It fails when the last number is not the result ("so
    42, as in step 3"), on decimal commas (`1,5` ends with 5) and on mixed fractions (`1 1/2` is
    1/2).
    Source: the final number of Cobbe et al. 2021 (GSM8K), arXiv:2110.14168.
    """
    rows = zip(responses, answers, strict=True)
    right = [any(equal(r, a, find, tolerance, relative) for a in accepted(each))
             for r, each in rows]  # fmt: skip
    return torch.tensor(right, dtype=torch.float32)  # (B,)


def equal(response: str, answer: str, find: str, tolerance: float, relative: float) -> bool:
    want = last_number(answer)
    if want is None:
        raise ValueError(f"the answer {answer!r} contains no number")
    box = None if find == "last" else last_box(response)
    if box is None and find == "boxed":
        return False
    got = last_number(response if box is None else box)
    if got is None:
        return False
    allowed = max(Fraction(tolerance), Fraction(relative) * abs(want))
    return abs(got - want) <= allowed


def last_number(text: str) -> Fraction | None:
    """The last number in a text, exactly; None where there is none."""
    text = text.replace("−", "-").replace("{,}", ",").replace("\\!", "").replace("\\,", "")
    text = LATEX_FRACTION.sub(r" \1\2/\3 ", text.replace("\\$", "$"))
    *_, found = (None, *NUMBER.finditer(text))
    if found is None or len(found[0]) > LONGEST:
        return None
    sign = -1 if found["sign"] == "-" else 1
    top, bottom = _exactly(found["top"]), _exactly(found["bottom"] or "1")
    return sign * top / bottom if bottom else None


def _exactly(digits: str) -> Fraction:
    return Fraction(digits.replace(",", ""))


def last_box(text: str) -> str | None:
    r"""The content of the last `\boxed{...}`, braces balanced; None where none is closed."""
    found, opened = None, []
    for brace in BRACE.finditer(text):
        if brace[0] != "}":
            opened.append(brace)
        elif opened and (begin := opened.pop())[1]:
            found = text[begin.end() : brace.start()]
    return found


def check(*, tolerance, relative, **_):
    if not math.isfinite(tolerance + relative):
        raise ValueError("tolerance and relative must be finite")


@hookimpl
def register_rewards(register):
    register(numeric, check=check)
