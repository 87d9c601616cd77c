"""The border to plugins: an exception in a plugin becomes a one-line error that names the plugin.

The one place where anything may be caught. A Ctrl-C goes through, and so does a device's lack of
memory, which the core mends; sys.exit does not: a component ends no run. Nor does one move the
process elsewhere, double it, or leave it too little stack.
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
    """A component with the options that the recipe gives it; raises ComponentError for others."""

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
        """Its discount: the option that it declares as such, else 1."""
        name = self.component.discount
        return 1.0 if name is None else float(self.options[name])

    def __call__(self, columns: Mapping[str, Any] | None = None) -> Any:
        """Raises ComponentError, whatever the component raises."""
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
    """What a plugin's code changes for the whole process is changed back: then raises
    ComponentError. A KeyboardInterrupt gets a note of where it came."""
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
        raise ComponentError(f"{label} changed {changed} of the whole process")


def this_process() -> Process:
    """What `put_back` puts back."""
    try:
        here = os.getcwd()
    except OSError:  # the folder is gone
        here = None
    return os.getpid(), here, sys.getrecursionlimit()


def put_back(label: str, before: Process) -> str:
    """Put back what a plugin's code has changed since; what that was, in words. A copy of the
    process that it left behind by os.fork ends here: two would train in one folder."""
    number, here, limit = before
    now = this_process()
    if now[0] != number:
        told = f"rlzoo: {label} copied the process with os.fork; the copy is ended\n"
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
    """One line: the error, and the last place of the plugin's own that it passed through."""
    text = f"{type(error).__name__}: {' '.join(words_of(error).split()) or 'no message'}"
    if isinstance(error, SyntaxError):
        return text
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_a_plugins(f.filename)]
    return f"{text} (at {Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else text


def _is_a_plugins(file: str) -> bool:
    library = "site-packages" in file or "importlib" in file or file.startswith("<")
    return not library and not file.startswith(CORE)
