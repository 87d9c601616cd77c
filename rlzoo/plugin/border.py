"""The border to plugins: an exception in a plugin becomes a one-line error that names the plugin.

This is the only place that catches every exception. Ctrl-C passes through, and so does a device's
out-of-memory error, which the core handles. sys.exit does not, because a component must not end a
run, nor fork the process.
"""

import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo.errors import ComponentError, RlzooError, out_of_memory, words_of
from rlzoo.plugin.component import Component

CORE = str(Path(__file__).resolve().parents[1])
SKIP = (CORE, "<", sysconfig.get_path("stdlib") + "/")


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


@contextmanager
def unchanged(watch: bool = True) -> Iterator[list[str]]:
    """The names of what the code inside changes for all of torch; afterwards it is as before."""
    changed: list[str] = []
    torch = sys.modules.get("torch")
    if torch is None or not watch:
        yield changed
        return
    modes = {"default_dtype": torch.get_default_dtype(), "grad_enabled": torch.is_grad_enabled()}
    places = (torch, torch.Tensor, torch.nn.functional)
    before = [dict(vars(place)) for place in places]
    try:
        yield changed
    finally:
        for place, old in zip(places, before, strict=True):
            for name, x in list(vars(place).items()):
                # Torch adds to itself as it imports more of itself.
                own = inspect.ismodule(x) or str(getattr(x, "__module__", "")).startswith("torch")
                if x is not old.get(name) and not own and not name.startswith("__"):
                    changed.append(f"{place.__name__}.{name}")
                    setattr(place, name, old[name]) if name in old else delattr(place, name)
        now = torch.get_default_dtype(), torch.is_grad_enabled()
        for (name, value), x in zip(modes.items(), now, strict=True):
            if x != value:
                changed.append(f"torch.set_{name}")
                getattr(torch, f"set_{name}")(value)


def told(error: BaseException, skipped: tuple[str, ...] = SKIP) -> str:
    """One line: the error, and the last place in the plugin's code that it passed through."""
    text = f"{type(error).__name__}: {' '.join(words_of(error).split()) or 'no message'}"
    if isinstance(error, SyntaxError):
        return text
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if not f.filename.startswith(skipped)
        and not ("site-packages" in f.filename or "importlib" in f.filename)
    ]
    return f"{text} (at {Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else text
