"""The border to plugins: an exception in a plugin becomes a one-line error that names the plugin.

This is the only place that catches every exception. Ctrl-C passes through, and so does a device's
out-of-memory error, which the core handles. sys.exit does not, because a component must not end a
run, nor change the process's folder, fork it or lower its recursion limit.
"""

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlzoo.errors import ComponentError, RlzooError, out_of_memory, words_of
from rlzoo.plugin.component import Component

CORE = str(Path(__file__).resolve().parents[1])

Process = tuple[int, str | None, int]  # id, current folder, recursion limit


@dataclass(frozen=True)
class Bound:
    """A component with its options from the recipe; raises ComponentError for other options."""

    component: Component
    options: Mapping[str, Any]  # checked, and complete
    called: str = ""  # as the recipe has it, where that is longer: `distribution/name`
    name: str = field(init=False)
    needs: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        checked = self.component.check_options(self.options)
        ordered = {name: checked[name] for name in {**self.options, **checked}}
        component = self.component.resolved(checked)
        self.__dict__.update(
            options=ordered,
            component=component,
            name=self.called or component.name,
            needs=component.needs,
        )

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
    """Undoes what the code changed for the whole process, and then raises ComponentError. A
    KeyboardInterrupt gets a note with its place."""
    before, changed = this_process(), ""
    try:
        yield
    except KeyboardInterrupt as stopped:
        if not hasattr(stopped, "__notes__"):
            stopped.add_note(f"in {label}")
        raise
    finally:
        changed = "" if this_process() == before else put_back(label, before)
    if changed:
        raise ComponentError(f"{label} changed {changed} for the whole process")


def this_process() -> Process:
    """What `put_back` puts back."""
    try:
        here = os.getcwd()
    except OSError:  # the folder is gone
        here = None
    return os.getpid(), here, sys.getrecursionlimit()


def put_back(label: str, before: Process) -> str:
    """Undo what a plugin's code has changed since; returns a description. A copy of the process
    made with os.fork ends here, because two would train in one folder."""
    number, here, limit = before
    now = this_process()
    if now[0] != number:
        told = f"rlzoo: {label} copied the process with os.fork; rlzoo ended the copy\n"
        with suppress(OSError):
            os.write(2, told.encode())
        os._exit(1)
    changed = []
    if here is not None and now[1] != here:
        os.chdir(here)
        changed.append(f"the current folder (to {now[1]})")
    if now[2] < limit:
        sys.setrecursionlimit(limit)
        changed.append(f"the recursion limit (to {now[2]})")
    return " and ".join(changed)


def told(error: BaseException) -> str:
    """One line: the error, and the last place in the plugin's code that it passed through."""
    text = f"{type(error).__name__}: {' '.join(words_of(error).split()) or 'no message'}"
    if isinstance(error, SyntaxError):
        return text
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_a_plugins(f.filename)]
    return f"{text} (at {Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else text


def _is_a_plugins(file: str) -> bool:
    library = "site-packages" in file or "importlib" in file or file.startswith("<")
    return not library and not file.startswith(CORE)
