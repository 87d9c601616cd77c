"""Every fault a user can mend, and the nearest right word."""

import difflib
from collections.abc import Iterable


class RlzooError(Exception):
    """An error a user can mend: one line that names the place."""


class BenchError(RlzooError):
    """A benchmark that was asked for and cannot be."""


class CheckpointError(RlzooError):
    """No checkpoint could be read."""


def nearest(word: str, words: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the most similar of `words`, or an empty string."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def first_line(error: BaseException) -> str:
    """The first line of what an error says; its class's name where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class ComponentError(RlzooError):
    """A component that breaks its contract, or was called outside it."""


class DataError(RlzooError):
    """Data that is not there, or cannot be read."""


class EvalError(RlzooError):
    """An evaluation that cannot be made, and what would make it possible."""


class ExportError(RlzooError):
    """An export that cannot be made, and what would make it possible."""


class FitError(RlzooError):
    """An argument of a training command that cannot work."""


class RewardError(RlzooError):
    """A task or reward that raised, or returned NaN: shows the prompt and the response."""


class ModelError(RlzooError):
    """A model folder that is none, or a tokenizer that lacks what is needed."""


class RankError(RlzooError):
    """Ranks that do not belong together, or one that was lost."""


class RecipeError(RlzooError):
    """A fault in a recipe or on the command line."""


class UnknownName(RlzooError, KeyError):
    """No component of that name, or two plugins that both claim it."""

    __str__ = Exception.__str__  # KeyError would print the message in quotes


class RewardModelError(RlzooError):
    """A folder that holds no reward model."""


class CompareError(RlzooError):
    """Runs that cannot be compared, or a row that is none."""


class RunError(RlzooError):
    """A run folder that exists already, or is none."""


class SweepError(RlzooError):
    """A sweep folder that is taken, or holds another sweep."""


class AllFailed(RlzooError):
    """No run of a sweep came through."""


class DiskFull(RlzooError):
    """A worker found no space left."""


class TraceError(RlzooError):
    """A trace that cannot be made, and what would make it possible."""


class ConversationError(RlzooError):
    """A task whose `respond` or `state_keys` breaks its contract, or a text that has no tokens."""
