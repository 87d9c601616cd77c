"""The result of a verb, as a mapping that displays itself: as in a terminal, or as HTML in a
notebook."""

import io
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from rlzoo.cli import described
from rlzoo.cli.verb import Result, work
from rlzoo.errors import UsageError, nearest
from rlzoo.format.text import printable
from rlzoo.plugin.permissions import allow_env
from rlzoo_lab.api.arguments import arguments_of
from rlzoo_lab.view.blocks import Note
from rlzoo_lab.view.declared import as_text
from rlzoo_lab.view.figure import drawn
from rlzoo_lab.view.html import framed, notebook
from rlzoo_lab.view.texts import text_of

WIDTH = 120  # characters, of a view
# Readable on white and on black: (normal, bright) in the order of ANSI.
_COLOURS = [(20, 20, 20), (205, 60, 50), (20, 140, 85), (170, 120, 0), (45, 115, 200),
            (170, 75, 150), (0, 140, 155), (140, 140, 140)]  # fmt: skip


def frame_of(rows: Iterable[Mapping[str, Any]]) -> Any:
    """The rows as a pandas DataFrame. Raises UsageError without pandas."""
    try:
        import pandas
    except ImportError:
        raise UsageError("frame needs pandas: pip install pandas") from None
    return pandas.DataFrame(list(rows))


class _Shown:
    """The display of a result. `status`: the exit status of the process, 0 if there is no
    problem."""

    def __init__(self, result: Result):
        super().__init__(result.document)  # type: ignore[call-arg]
        self._result = result

    def __reduce__(self) -> Any:  # a copy, or one that is pickled, is the plain document
        plain = dict if isinstance(self, dict) else list
        return plain, (plain(self),)  # type: ignore[call-overload]

    @property
    def status(self) -> int:
        return self._result.status

    def __repr__(self) -> str:
        console = self._printed()
        return console.export_text(styles=False).rstrip("\n")

    def frame(self) -> Any:
        """The results as a pandas DataFrame, a row for each. Raises UsageError if this verb has no
        such records, or without pandas."""
        return frame_of(self._shown("frame", "records"))

    def plot(self, name: str | None = None) -> Any:
        """A matplotlib Figure of the curve of that name; by default, the first. Raises UsageError
        if there is none."""
        curves = {curve.name: curve for curve in self._shown("plot", "curves")()}
        if name is not None and name not in curves:
            raise UsageError(f"plot: no curve {name!r}{nearest(name, curves)}")
        if not curves:
            raise UsageError("plot: this result has no curves")
        return drawn([curves[name or next(iter(curves))]])

    def latex(self) -> str:
        """The table of results in LaTeX, which `print` shows."""
        self._shown("latex", "blocks")
        shown: Any = self._result.view
        return text_of(shown, "latex")

    def _shown(self, method: str, what: str) -> Any:
        shown = getattr(self._result.view, what, ())
        if not shown:
            raise UsageError(f"{method}: this result has no {what}")
        return shown

    def _repr_html_(self) -> str:
        if page := getattr(self._result.view, "page", None):
            return framed(page())
        if blocks := getattr(self._result.view, "blocks", None):
            return notebook([*blocks, *map(Note, self._result.notes)])
        from rich.terminal_theme import TerminalTheme

        theme = TerminalTheme((255, 255, 255), (0, 0, 0), _COLOURS, _COLOURS)
        style = "white-space:pre;overflow-x:auto;line-height:1.3;font-family:monospace"
        form = f'<pre style="{style}">{{code}}</pre>'
        return self._printed().export_html(theme=theme, code_format=form, inline_styles=True)

    def _printed(self) -> Any:
        from rlzoo.format.console import SafeConsole

        console = SafeConsole(
            file=io.StringIO(), width=WIDTH, record=True, force_jupyter=False, force_terminal=False
        )
        for part in [*self._result.view(console), *self._result.notes]:
            if isinstance(part, str):
                console.print(printable(part), markup=False, highlight=False, soft_wrap=True)
            else:
                console.print(part)
        return console


class Document(_Shown, dict[str, Any]):
    """The JSON document of `--json` as a dict; printing it, or showing it in a notebook, gives the
    terminal output."""


class Rows(_Shown, list[Any]):
    """Like Document, for a verb whose document is a list."""


Found = Any  # a Document or Rows


def perform(
    verb: str, words: Iterable[Any], options: Mapping[str, Any], *, console: Any = None
) -> Found:
    """Run a verb with these words and options; writes the files that they name.

    words: as on the command line; paths and runs too.
    options: name -> value: None and False leave it out, True is an option without a value.
    console: where a verb prints its progress; by default, its own. Raises RlzooError with the
        message of the command line.
    """
    arguments = arguments_of(verb, [as_text(word) for word in words], options)
    arguments.console = console
    with allow_env(arguments.allow_env):
        result = work(import_module(described(arguments.command).module), arguments)
    return (Rows if isinstance(result.document, list) else Document)(result)
