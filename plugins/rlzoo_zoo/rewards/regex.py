"""Regular expression: the response has a form, or holds the answer in one."""

from functools import lru_cache
from typing import Annotated, Any, Literal

import torch

from rlzoo import Range, RlzooError, hookimpl
from rlzoo_zoo.rewards.exact_match import accepted

ANSWER = "{answer}"


def regex(
    responses,
    answers,
    *,
    pattern: Annotated[str, "{answer} in it stands for the answer, letter by letter"] = "",
    match: Literal["search", "full"] = "search",
    ignorecase: bool = False,
    dotall: bool = False,
    timeout: Annotated[float, Range(0, closed="neither"), "seconds for one response"] = 1.0,
):
    r"""1 where the pattern is found in the response (search) or is all of it (full), else 0, (B,).

    Python's syntax. `{answer}` is replaced by the row's answer, its own signs escaped, so that
    `<answer>\s*{answer}\s*</answer>` asks for the right answer in its place; without it the answers
    are not looked at, and a mere format is paid. ignorecase, and dotall (`.` takes line ends, too),
    as in Python. Breaks on patterns that backtrack without end, such as `(a+)+b`: a response on
    which the search takes longer than `timeout` scores 0, so then scores depend on the machine.
    Source: the format reward of DeepSeek-AI 2025 (R1), arXiv:2501.12948.
    """
    if not pattern:
        raise RlzooError("rewards.regex.pattern is missing")
    rows = zip(responses, answers, strict=True)
    scores = [
        any(found(pattern.replace(ANSWER, literal(a)), r, match, ignorecase, dotall, timeout)
            for a in (accepted(each) if ANSWER in pattern else [""]))
        for r, each in rows
    ]  # fmt: skip
    return torch.tensor(scores, dtype=torch.float32)  # (B,)


def found(pattern, text, match="search", ignorecase=False, dotall=False, timeout=1.0, at=0) -> Any:
    """The match object, or None: no match from `at` on, or none within `timeout` seconds."""
    compiled = compile_pattern(pattern, ignorecase, dotall)
    try:
        return (compiled.fullmatch if match == "full" else compiled.search)(
            text, pos=at, timeout=timeout
        )
    except TimeoutError:
        return None


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str, ignorecase: bool = False, dotall: bool = False) -> Any:
    """Raises ValueError, with the place of the fault, where it is no pattern."""
    import regex as library  # what transformers uses; unlike the standard one it can be stopped

    flags = (library.IGNORECASE if ignorecase else 0) | (library.DOTALL if dotall else 0)
    try:
        return library.compile(pattern, flags)
    except library.error as error:
        raise ValueError(f"not a pattern: {pattern!r}: {error}") from None


def literal(text: str) -> str:
    import regex as library

    return library.escape(text)


def check(*, pattern, ignorecase, dotall, **_):
    if not pattern:
        raise ValueError("pattern is missing")
    compile_pattern(pattern.replace(ANSWER, "answer"), ignorecase, dotall)


@hookimpl
def register_rewards(register):
    register(regex, check=check)
