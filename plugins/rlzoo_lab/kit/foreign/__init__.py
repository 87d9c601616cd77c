"""Functions of other libraries, and of files, as components that the kit and the oracle take.

May import `checks` and the layers below; a library is imported only if a command names it.

    adapt      a component of a function
    bench      made-up batches to call it on
    calls      functions that take more than columns
    find       a function by its name: verl:grpo, FILE.py:FUNCTION, PACKAGE.MODULE:FUNCTION
    judge      the checks
    libraries  a table for each library
    names      which column an argument is, by its name
"""

from collections.abc import Sequence

from rlzoo.errors import UsageError
from rlzoo.plugin.component import KINDS
from rlzoo_lab.data.words import read_options
from rlzoo_lab.kit.checks import CheckResult
from rlzoo_lab.kit.foreign.find import components, is_foreign
from rlzoo_lab.kit.foreign.judge import parametrize_with_checks, run_checks

Judged = tuple[str, str, str, list[CheckResult]]  # kind, name, place, results


def pairs(maps: Sequence[str]) -> dict[str, str]:
    """argument -> column, of the words THEIRS=OURS."""
    split = [pair.partition("=") for pair in maps]
    for theirs, equals, ours in split:
        if not (theirs and equals and ours):
            raise UsageError(f"--map must be THEIRS=OURS. Got {theirs}{equals}{ours}")
    return {theirs: ours for theirs, _, ours in split}


def check(name: str, words: Sequence[str], maps: Sequence[str]) -> list[Judged]:
    """What `rlzoo check` prints of a function: words are its options, maps THEIRS=OURS."""
    made, failed = components(name, read_options(list(words)), pairs(maps))
    judged = [(KINDS[c.kind].singular, c.name, c.file, run_checks(c)) for c in made]
    return judged + [("function", label, "", [CheckResult("not called", None, why)])
                     for label, why in failed]  # fmt: skip


__all__ = ["Judged", "check", "components", "is_foreign", "pairs", "parametrize_with_checks",
           "run_checks"]  # fmt: skip
