"""Exact match: the response is the answer, to the letter."""

import unicodedata
from numbers import Number
from typing import Literal

import torch

from rlzoo import hookimpl


def exact_match(
    responses,
    answers,
    *,
    strip: bool = True,
    casefold: bool = False,
    spaces: bool = False,
    unicode: Literal["none", "NFC", "NFKC"] = "NFC",
):
    """1 where the whole response equals the answer after the declared normalisation, else 0, (B,).

    strip: white space at both ends does not count; casefold: nor does case; spaces: any run of
    white space counts as one space; unicode: equal characters are equal however they are composed
    (NFC), or look-alikes such as `２` and `2` too (NFKC). An answer may be a text, a number or a
    bool, read as `str` writes it, or a list of those: then any of them is right. Breaks on
    any text around the answer, and on `42.0` for 42: see `numeric`.
    Source: the exact match of Rajpurkar et al. 2016 (SQuAD), arXiv:1606.05250, without its
    dropping of articles and punctuation.
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
        raise ValueError(f"an answer is a text, a number or a list of those. Got {answer!r}")
    return [str(a) for a in several]


@hookimpl
def register_rewards(register):
    register(exact_match)
