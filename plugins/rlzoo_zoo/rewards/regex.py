"""Regular expression: the response matches a pattern, which may include the answer."""

import re
import subprocess
import sys
import time
from functools import lru_cache
from typing import Annotated, Any, Literal

import torch

from rlzoo import Range, RlzooError, component
from rlzoo.errors import in_short
from rlzoo_zoo.rewards.exact_match import accepted
from rlzoo_zoo.rewards.worker import signals_blocked

ANSWER = "{answer}"
DEEPEST = 100  # brackets in each other
PATIENCE = 5.0  # seconds for a pattern to be read
# Words of a pattern, escaped ones first, since these are literals.
_WORDS = re.compile(r"\\.|(\()(\?(?:R|\d|&|P>))?|(\))|\{(\d*)(?:,(\d*))?\}", re.DOTALL)
_COMPILE = """
import resource, sys, regex
resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))
regex.compile(sys.stdin.buffer.read().decode(errors="surrogatepass"), int(sys.argv[1]))
"""


def check(*, pattern, ignorecase, dotall, **_):
    if not pattern:
        raise ValueError("pattern is missing")
    compile_pattern(pattern.replace(ANSWER, "answer"), ignorecase, dotall)


@component("reward", check=check)
def regex(
    responses,
    answers,
    *,
    pattern: Annotated[str, "{answer} in it is replaced by the answer, literally"] = "",
    match: Literal["search", "full"] = "search",
    ignorecase: bool = False,
    dotall: bool = False,
    timeout: Annotated[float, Range(0, closed="neither"), "CPU seconds for one response"] = 1.0,
):
    r"""1 if the response contains the pattern (search) or matches it entirely (full), otherwise 0,
    (B,).

    It uses Python's syntax, without recursive patterns. `{answer}` is replaced by the row's escaped
    answer, so that `<answer>\s*{answer}\s*</answer>` requires the correct answer in this place;
    without it, the answers are not used and only the format is rewarded. ignorecase and dotall (`.`
    also matches line ends) are as in Python. It fails on patterns that backtrack excessively, such
    as `(a+)+b`: a response on which the search takes longer than `timeout` scores 0, so scores then
    depend on the machine and its load.
    Source: the format reward of DeepSeek-AI 2025 (R1), arXiv:2501.12948.
    """
    if not pattern:
        raise RlzooError("rewards.regex.pattern is missing")
    rows = zip(responses, answers, strict=True)
    scores = [
        any(found(pattern.replace(ANSWER, re.escape(a)), r, match, ignorecase, dotall, timeout)
            for a in (accepted(each) if ANSWER in pattern else [""]))
        for r, each in rows
    ]  # fmt: skip
    return torch.tensor(scores, dtype=torch.float32)  # (B,)


def found(pattern, text, match="search", ignorecase=False, dotall=False, timeout=1.0, at=0) -> Any:
    """The match object, or None: no match from `at` on, or none within `timeout` seconds of CPU."""
    compiled = compile_pattern(pattern, ignorecase, dotall)
    try:
        return (compiled.fullmatch if match == "full" else compiled.search)(
            text, pos=at, timeout=timeout
        )
    except (TimeoutError, MemoryError):  # the latter where what it would go back to is too much
        return None


def extract(pattern, text):
    """The first group of the last match, or all of it where there is no group; None without."""
    last = None
    at, end = 0, time.process_time() + 1.0  # seconds for all of them
    while at <= len(text) and (left := end - time.process_time()) > 0:
        if not (match := found(pattern, text, at=at, timeout=left)):
            break
        last, at = match, max(match.end(), match.start() + 1)
    if last is None:
        return None
    group = last[1] if last.re.groups else last[0]
    return None if group is None else group.strip()


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str, ignorecase: bool = False, dotall: bool = False) -> Any:
    """Raises ValueError, with the place of the fault, where it is not a pattern."""
    import regex as library  # what transformers uses; unlike the standard one it can be stopped

    flags = (library.IGNORECASE if ignorecase else 0) | (library.DOTALL if dotall else 0)
    try:
        _refuse_endless(pattern, int(flags))
        return library.compile(pattern, flags)
    except (library.error, RecursionError, OverflowError) as error:
        said = "brackets are nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"not a pattern: {in_short(pattern)}: {said}") from None


def _refuse_endless(pattern: str, flags: int) -> None:
    """Raise ValueError where compiling has no end: repeats in each other are written out."""
    depth, times = 0, 1
    for word in _WORDS.finditer(pattern):
        depth += bool(word[1]) - bool(word[3])
        if word[2]:
            raise ValueError(f"not a pattern: {in_short(pattern)}: {word[0]} is recursive")
        if depth > DEEPEST:
            raise RecursionError
        times *= max(1, int((word[5] or word[4] or "0")[:9]))
    if times > 100_000:  # or one after the other, which takes no time: another process tries
        command = [sys.executable, "-P", "-c", _COMPILE, str(flags)]
        data = pattern.encode(errors="surrogatepass")
        try:
            with signals_blocked():
                ended = subprocess.run(command, input=data, timeout=PATIENCE, capture_output=True)
            endless = ended.returncode < 0 or b"MemoryError" in ended.stderr
        except subprocess.TimeoutExpired:
            endless = True
        if endless:
            raise ValueError(
                f"not a pattern: {in_short(pattern)}: its nested repeats need more than "
                f"{PATIENCE:g} s or 4 GB to compile"
            )
