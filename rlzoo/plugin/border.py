"""The border to plugins: an exception in a plugin becomes a one-line error that names the plugin.

This is the only place that catches every exception. Ctrl-C passes through, and so does a device's
out-of-memory error, which the core handles. sys.exit does not, because a component must not end a
run, nor fork the process.
"""

import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo.errors import ComponentError, RlzooError, out_of_memory, words_of
from rlzoo.plugin.component import Component

CORE = str(Path(__file__).resolve().parents[1])


@dataclass(frozen=True)
class Bound:
    """A component with its options from the recipe: `Bound.of` makes one.

    options: checked, and complete. needs: its own, and those of its parts. name: as the recipe has
    it, which may be longer than the component's (`distribution/name`).
    """

    component: Component
    options: Mapping[str, Any]
    needs: tuple[str, ...]
    name: str

    @classmethod
    def of(cls, component: Component, options: Mapping[str, Any]) -> "Bound":
        """With defaults for other options. Raises ComponentError for those that there are not."""
        checked = component.check_options(options)
        ordered = {name: checked[name] for name in {**options, **checked}}
        return cls(component, ordered, component.needs_with(checked), component.name)

    @property
    def gamma(self) -> float:
        """The option that the component declares as its discount, otherwise 1."""
        marked = (name for name, option in self.component.options.items() if option.discount)
        return float(self.options.get(next(marked, ""), 1.0))

    def __call__(self, columns: Mapping[str, Any] | None = None) -> Any:
        """Call the component; any exception in it becomes a ComponentError."""
        from rlzoo.plugin.call import call  # here, not above: it imports torch

        with border(self.component.label):
            return call(self.component, columns or {}, self.options)


def needs_of(method: Callable[..., object]) -> tuple[str, ...]:
    """The columns that a bound method (a task's `score`) needs."""
    return tuple(inspect.signature(method).parameters)


@contextmanager
def border(label: str) -> Iterator[None]:
    """Around a call of a plugin's code; `label` names it. Raises ComponentError."""
    with watched(label):
        try:
            yield
        except (RlzooError, KeyboardInterrupt):
            raise
        except BaseException as error:
            if out_of_memory(error):
                raise
            raise ComponentError(f"{label} raised {told(error)}") from error


@contextmanager
def watched(label: str) -> Iterator[None]:
    """Ends a copy of the process that the code made with os.fork, because two would train in one
    folder. A KeyboardInterrupt gets a note with its place."""
    process = os.getpid()
    try:
        yield
    except KeyboardInterrupt as stopped:
        if not hasattr(stopped, "__notes__"):
            stopped.add_note(f"in {label}")
        raise
    finally:
        if os.getpid() != process:
            line = f"rlzoo: {label} copied the process with os.fork; rlzoo ended the copy\n"
            with suppress(OSError):
                os.write(2, line.encode())
            os._exit(1)


def told(error: BaseException) -> str:
    """One line: the error, and the last place in the plugin's code that it passed through."""
    text = f"{type(error).__name__}: {' '.join(words_of(error).split()) or 'no message'}"
    if isinstance(error, SyntaxError):
        return text
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if not f.filename.startswith((CORE, "<"))
        and not ("site-packages" in f.filename or "importlib" in f.filename)
    ]
    return f"{text} (at {Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else text
