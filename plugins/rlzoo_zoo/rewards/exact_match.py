"""Exact match: the response equals the answer exactly."""

import unicodedata
from numbers import Number
from typing import Literal

import torch

from rlzoo import component


@component("reward")
def exact_match(
    responses,
    answers,
    *,
    strip: bool = True,
    casefold: bool = False,
    spaces: bool = False,
    unicode: Literal["none", "NFC", "NFKC"] = "NFC",
):
    """1 if the whole response equals the answer after the chosen normalization, otherwise 0, (B,).

    strip: ignore white space at both ends; casefold: ignore case; spaces: treat any run of white
    space as one space; unicode: ignore how characters are composed (NFC), or also treat look-alikes
    such as `２` and `2` as equal (NFKC). An answer may be a text, a number or a bool, converted by
    `str`, or a list of these, any of which is correct. It fails on any text around the answer, and
    on `42.0` for 42; see `numeric`.
    Source: the exact match of Rajpurkar et al. 2016 (SQuAD), arXiv:1606.05250, but without removing
    articles and punctuation.
    """

    def norm(text):
        return normal(text, strip, casefold, spaces, unicode)

    rows = zip(responses, answers, strict=True)
    return torch.tensor([float(norm(r) in map(norm, accepted(a))) for r, a in rows])  # (B,)


def normal(text, strip, casefold, spaces, unicode):
    text = text if unicode == "none" else unicodedata.normalize(unicode, text)
    text = text.casefold() if casefold else text
    text = " ".join(text.split()) if spaces else text
    return text.strip() if strip else text


def accepted(answer) -> list[str]:
    """The texts that are right, one or several; raises ValueError on an invalid answer."""
    several = answer if isinstance(answer, (list, tuple)) else [answer]
    if not several or not all(isinstance(a, (str, Number)) for a in several):
        raise ValueError(f"an answer must be a string, a number or a list of these. Got {answer!r}")
    return [str(a) for a in several]
