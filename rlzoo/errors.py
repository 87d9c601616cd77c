"""The errors that a user can fix, with their exit statuses, and helpers for their messages."""

import difflib
import errno
import os
import sys
import traceback
import warnings
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path


class RlzooError(Exception):
    """An error that the user can fix, in one line that names the place.

    status: the process's exit status: 2 if nothing was done, 1 if work had started.
    key: the recipe key, option or file concerned, if known.
    kind: what is wrong, as a word that stays the same if the message changes: "unknown-key",
        "wrong-type", "out-of-range", "unmet-need", "unknown-component", "taken", "not-found",
        "plugin-fault", ...
    """

    status = 2

    def __init__(self, *said: object, key: str | None = None, kind: str | None = None):
        super().__init__(*(in_line(part) if isinstance(part, str) else part for part in said))
        self.key, self.kind = key, kind

    def _render_traceback_(self) -> list[str]:
        """IPython shows only this line, below the traceback of a plugin's error."""
        cause = traceback.format_exception(self.__cause__) if self.__cause__ else []
        return [*cause, f"{type(self).__name__}: {self}"]


class UsageError(RlzooError):
    """A command cannot do what was requested; the message names the remedy."""


class RecipeError(RlzooError):
    """An error in a recipe or on the command line."""

    @classmethod
    def at(cls, key: str, origin: str, text: str, kind: str | None = None) -> "RecipeError":
        """`key (where it was set): text`"""
        return cls(f"{key} ({origin}): {text}", key=key, kind=kind)


class UnknownName(RlzooError, KeyError):
    """There is no component of that name, or two plugins both claim it."""

    __str__ = Exception.__str__  # KeyError would print the message in quotes


class ComponentError(RlzooError):
    """A component broke its contract, raised an error, or was called incorrectly."""

    status = 1


class ConversationError(RlzooError):
    """A task's `respond` or `state_keys` broke its contract, or a text has no tokens."""


class DataError(RlzooError):
    """Data is missing or cannot be read."""


class NotCached(DataError):
    """Data from a hub is not on this machine and cannot be fetched now."""


class ModelError(RlzooError):
    """A folder does not contain a model or a reward model, or a tokenizer is unsuitable."""


class RunError(RlzooError):
    """A run folder is in use or invalid, or ranks do not belong together."""


class StoreError(RlzooError):
    """A store's URL cannot be reached, read or written."""


class CheckpointError(RlzooError):
    """No checkpoint could be read."""


class Unfinished(RlzooError):
    """Work was interrupted; the message names the command that continues it."""

    status = 1


class Stopped(KeyboardInterrupt):
    """A signal ended the work: training after a checkpoint, anything else immediately.

    status: an exit status of 128 + the signal's number, as in a shell.
    """

    def __init__(self, text: str, number: int):
        super().__init__(text)
        self.status = 128 + number


class Warned(UserWarning):
    """A warning of rlzoo's, which the command line shows as one."""


def warn(text: str) -> None:
    """A `Warned` that names the line outside rlzoo from which it was called."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("rlzoo"):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, Warned, stacklevel=level)


def nearest(word: str, words: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the same word in another case, up to three with this prefix, or the
    most similar of `words`; otherwise an empty string."""
    known = list(words)
    close = [w for w in known if w.lower() == word.lower()][:1]
    if not close and len(word) > 1:
        close = [w for w in known if w.lower().startswith(word.lower())][:3]
    close = close or [w for w in known if sorted(w) == sorted(word)][:1]  # letters swapped
    close = close or difflib.get_close_matches(word, known, n=1, cutoff=0.61)
    *first, last = map(repr, close or [""])
    return f"; did you mean {', '.join(first)}{' or ' * bool(first)}{last}?" if close else ""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, two after a colon, or its class's name."""
    first, *rest = words_of(error).strip().splitlines() or [type(error).__name__]
    return " ".join([first, *(line.strip() for line in rest[: first.endswith(":")])])


def need(module: str, what: str) -> None:
    """Raise RlzooError, which names the extra, if a module that `what` needs is not installed."""
    if find_spec(module) is None:
        raise RlzooError(f"{what}: needs {module}: pip install 'rlzoo-llm[lab]'")


def in_short(value: object, most: int = 60) -> str:
    """`repr(value)`, shortened."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


LONGEST = 1000  # characters of a line for a reader


def in_line(text: str) -> str:
    """A message, cut in the middle if it is long, as one with a long value is."""
    most = LONGEST
    return text if len(text) <= most else f"{text[: 2 * most // 3]}[...]{text[-most // 3 :]}"


def words_of(error: BaseException) -> str:
    """`str(error)`; empty if the error's own `__str__` raises."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # a plugin's class may raise anything
        return ""


def typed_path(text: str) -> Path:
    """A typed path, with `~` expanded if possible. Raises RlzooError if no file
    can have that name."""
    path = os.path.expanduser(text)
    try:
        os.stat(path)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise RlzooError(
                f"{text[:40]}...: a file name cannot have {len(text)} characters"
            ) from None
    except ValueError:
        raise RlzooError(f"{text!r}: a file name cannot contain a zero byte") from None
    return Path(path)


def of_the_machine(error: BaseException) -> str | None:
    """The machine's refusal (a full disk, memory, a folder that may not be written) in one
    line with the path where that is known; None for an error of another kind."""
    if disk_is_full(error):  # a component's own line names it
        line = str(error) if isinstance(error, RlzooError) else "no space left on device"
    elif isinstance(error, MemoryError) or out_of_memory(error):
        line = f"not enough memory ({first_line(error)})"
    elif isinstance(error, OSError):
        line = error.strerror or first_line(error)
    else:
        return None
    path = getattr(error, "filename", None)
    return f"{path}: {line}" if path is not None else line


def disk_is_full(error: BaseException) -> bool:
    """Whether an error of the system, of safetensors or of a component means a full disk."""
    if isinstance(error, ComponentError) and error.__cause__:
        error = error.__cause__
    numbers = (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "errno", None) in numbers or "No space left on device" in words_of(error)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means that a GPU's or the machine's memory ran out. Imports no torch."""
    known = any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
    return known or (isinstance(error, RuntimeError) and "can't allocate memory" in words_of(error))
