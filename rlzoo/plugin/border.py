"""The border to plugins: whatever a stranger's code raises is an error of that plugin, on one line.

The one place where anything may be caught. A Ctrl-C goes through, and so do a lack of memory, which
the core mends, and a full disk; sys.exit does not: a component ends no run.
"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlzoo.errors import ComponentError, RlzooError, disk_is_full, words_of

CORE = str(Path(__file__).resolve().parents[1])


@contextmanager
def border(label: str) -> Iterator[None]:
    """Around a call of a plugin's code; `label` names it. Raises ComponentError."""
    try:
        yield
    except (RlzooError, KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        if out_of_memory(error) or disk_is_full(error):
            raise
        raise ComponentError(f"{label} raised {told(error)}") from error


def out_of_memory(error: BaseException) -> bool:
    """As torch says it, of a GPU or of the machine. torch need not be imported for this."""
    known = any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
    return known or (isinstance(error, RuntimeError) and "can't allocate memory" in words_of(error))


def told(error: BaseException) -> str:
    """One line: the error, and the last place of the plugin's own that it passed through."""
    text = " ".join(words_of(error).split()) or "no message"
    text = f"{type(error).__name__}: {text}"
    if isinstance(error, SyntaxError):
        return text
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_a_plugins(f.filename)]
    return f"{text} (at {Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else text


def _is_a_plugins(file: str) -> bool:
    library = "site-packages" in file or "importlib" in file or file.startswith("<")
    return not library and not file.startswith(CORE)
