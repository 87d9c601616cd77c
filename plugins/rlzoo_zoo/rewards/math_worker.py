"""The process in which the reward `math_verify` does its mathematics: a job per line of stdin, a
verdict per line of stdout. It imports no torch, and ends itself where a job takes too much."""

import json
import os
import re
import resource
import signal
import sys
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from typing import Any

from rlzoo_zoo.numbers import DENIED, ascii_digits, last, last_box, only, plain, same
from rlzoo_zoo.rewards.math_text import (
    INTERVAL,
    formula,
    interval,
    parts_in,
    parts_of,
    readable,
)

MEMORY = 4 * 2**30  # bytes of address space


def serve(judge: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer jobs until stdin ends. `judge` has its libraries imported: memory is limited here.

    It starts with signals blocked (`worker.signals_blocked`); its own limits end it.
    """
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries' output is not a verdict
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        # Seconds of CPU: a busy machine, or a run that is stopped for a while, changes no score.
        # The process has no handler for this signal, which ends it whatever it computes.
        signal.setitimer(signal.ITIMER_PROF, job["timeout"])
        reply = judge(job)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(reply), file=out, flush=True)


def judge(job: dict[str, Any]) -> dict[str, Any]:
    """The verdict on a response; where that is None, whether all answers can be read."""
    for answer in job["answers"]:
        parts, ordered = parts_of(answer)
        for part in parts:
            if not gold(part):
                return {"error": f"the answer {answer!r} cannot be read as mathematics"}
        if job["response"] is not None and right(parts, ordered, job["response"]):
            return {"right": True}
    return {"right": job["response"] is None}


def right(parts: list[str], ordered: bool, response: str) -> bool:
    """Whether a response gives all parts of an answer."""
    if len(parts) == 1:
        return equal(parts[0], response)
    given = parts_in(response, len(parts))
    if given is None:
        return False
    results = [f"${part.strip().strip('$')}$" for part in given]
    orders = [results] if ordered or len(parts) > 4 else map(list, permutations(results))
    return any(all(map(equal, parts, order)) for order in orders)


def equal(answer: str, response: str) -> bool:
    """Whether a response has a part of an answer as its result, first by the rules that math-verify
    lacks."""
    from math_verify import parse, verify

    box = last_box(response)
    result = ascii_digits(response if box is None else box)
    if RATIO.fullmatch(ratio := ascii_digits(answer).strip()):
        given = [found[0] for found in RATIO.finditer(result)]
        return bool(given) and same_ratio(ratio, given[-1])
    if INTERVAL.fullmatch(formula(answer)) and (means := interval(result.replace("$", ""))):
        response = f"${means}$"
    found = parse(readable(response), parsing_timeout=None)
    if verify(gold(answer), found, timeout_seconds=None):
        return True
    want, got = only(plain(answer)), last(response) if box is None else only(plain(box))
    if want and got and got.other is not None and same(got, want, Fraction(0)):
        return True  # `60 million` for 60, `12.5 percent` for 12.5
    letter = LETTER.fullmatch(answer.strip())
    return letter is not None and letter[1] == chosen(result)


def gold(answer: str) -> list[Any]:
    """An answer as math-verify reads it; empty where it cannot."""
    from math_verify import parse

    text = formula(answer)
    bare = not any(mark in text for mark in ("$", "\\boxed", "\\(", "\\["))
    return parse(f"${text}$" if bare else text, parsing_timeout=None)


# A ratio or a time, or a date, which the library would calculate.
RATIO = re.compile(
    r"(?<![\d:])\d+(?:\s?:\s?\d+)+(?![\d:])"
    r"|\b(?:\d{4}([-/])\d{1,2}\1\d{1,2}|\d{1,2}([-/])\d{1,2}\2\d{4})\b"
)
LETTER = re.compile(r"\\?(?:text(?:bf)?\{)?\(?([A-J])\)?\}?")
CHOICE = re.compile(r"(?<![A-Za-z'])\(?([A-J])(?![A-Za-z']|\s[a-z])")


def same_ratio(one: str, other: str) -> bool:
    """Whether two ratios are equal; those that may be times (`10:30`) and dates must have equal
    parts."""
    (a, *rest), (b, *others) = (list(map(int, re.findall(r"\d+", x))) for x in (one, other))
    fixed = ":" not in one or re.fullmatch(r"(?:[01]?\d|2[0-3])(?::[0-5]\d)+", one)
    if fixed or len(rest) != len(others):
        return [a, *rest] == [b, *others]
    return all(a * y == b * x for x, y in zip(rest, others, strict=True))


def chosen(text: str) -> str | None:
    """The option that a text names last."""
    found = [m[1] for m in CHOICE.finditer(text) if not DENIED.search(text[: m.start()])]
    return found[-1] if found else None


if __name__ == "__main__":
    import math_verify  # noqa: F401  (before memory is limited)

    serve(judge)
