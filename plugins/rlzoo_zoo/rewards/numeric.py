"""Numeric: the last or boxed number of the response equals the answer's number."""

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Literal

import torch

from rlzoo import Range, component
from rlzoo_zoo.numbers import Number, last, last_box, last_number, numbers, only, plain, same
from rlzoo_zoo.rewards.exact_match import accepted

MARKED = re.compile(r"####[ \t]*(.*)")
TWO = re.compile(r"(?<![\d ,.'])[1-9]\d*,(?!\d{3}(?!\d))\d+(?![,.\d])")  # a comma, decimal or not
BOUND = re.compile(r"[<>≤≥±]|\\(?:pm|[lg](?:t|eq?|eqslant))(?![a-z])")
LIST = re.compile(r"\s*(?:[,;]\s*)?(?:and\b|or\b|[,;])\s*\$?\s*")


def check(*, tolerance, relative, **_):
    if not math.isfinite(tolerance + relative):
        raise ValueError("tolerance and relative must be finite")


@component("reward", check=check)
def numeric(
    responses,
    answers,
    *,
    find: Literal["auto", "last", "boxed"] = "auto",
    tolerance: Annotated[float, Range(0)] = 0.0,
    relative: Annotated[float, Range(0)] = 0.0,
):
    r"""1 if the response's number equals the answer's, otherwise 0, (B,).

    The number is the one in the last `\boxed{...}` (boxed), the last one in the response (last), or
    that of a box, of a last line `#### N`, or the last one (auto). `rlzoo_zoo.numbers` has the
    rules: in sentences of any language, with any digits, signs and separators, exactly, as
    fractions; units are ignored, `50%` is 50 or 0.5, `1,5` is 1.5, `1 1/2` is 1.5, `18, not 16` is
    18. Expressions (`3\pi`), times and a box with several numbers or a bound do not count. A number
    is correct within tolerance, or within relative * |answer|. An answer that is not one number, or
    may be two (`1,5`), is an error; any answer of a list is correct. It fails when the last number
    is not the result ("so 42 eggs in 3 boxes").
    Source: the final number of Cobbe et al. 2021 (GSM8K), arXiv:2110.14168.
    """
    rows = zip(responses, answers, strict=True)
    right = [any(equal(r, a, find, tolerance, relative) for a in accepted(each))
             for r, each in rows]  # fmt: skip
    return torch.tensor(right, dtype=torch.float32)  # (B,)


def equal(response: str, answer: str, find: str, tolerance: float, relative: float) -> bool:
    want = key(answer)
    if want is None:
        raise ValueError(fault(answer))
    got = result(response, find)
    if got is None:
        return False
    assert want.value is not None
    return same(got, want, max(Fraction(tolerance), Fraction(relative) * abs(want.value)))


def result(response: str, find: str) -> Number | None:
    """The number that a response gives as its result."""
    box = None if find == "last" else last_box(response)
    if box is not None:
        return alone(box)
    if find == "boxed":
        return None
    marked = MARKED.findall(response) if find == "auto" else []
    return (only(plain(marked[-1])) if marked else None) or last(response)


def alone(text: str) -> Number | None:
    """The last number of a box, unless it is the last of a list."""
    text = plain(text)
    found = [number for number in numbers(text) if not number.denied]
    listed = len(found) > 1 and LIST.fullmatch(text[found[-2].end : found[-1].start])
    return found[-1] if found and not listed and not BOUND.search(text) else None


@lru_cache(4096)
def key(answer: str) -> Number | None:
    """The number of an answer; None where it is not one, or may be two."""
    text = given(answer)
    return None if TWO.search(text) else only(plain(text))


def given(answer: str) -> str:
    """The part of an answer that has its number: its last box or `#### N`, if it has one."""
    box = last_box(answer)
    return [answer, *MARKED.findall(answer)][-1] if box is None else box


def fault(answer: str) -> str | None:
    """Why an answer cannot be judged by its number; None where it can."""
    if key(answer) is not None:
        return None
    if TWO.search(text := given(answer)):
        one = text.strip().replace(",", ".")
        return f"the answer {answer!r} may be one number or two; write {one!r} or use math"
    if last_number(answer) is None:
        return f"the answer {answer!r} contains no number"
    return f"the answer {answer!r} is not one number; use math for expressions and lists"
