"""One style for figures, by matplotlib, in the light theme.

matplotlib is optional and slow to load: only functions import it.
"""

import io
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rlzoo.errors import need
from rlzoo.runs.disk import write_atomically
from rlzoo_lab.view.blocks import Curve, Series
from rlzoo_lab.view.numbers import brief

# name -> (light, dark)
INK = {
    "ink": ("#1f2430", "#e6e8ee"),
    "faint": ("#d9dce3", "#363c4a"),
    "muted": ("#646b7a", "#9aa2b3"),
}

# Okabe and Ito's colours, which colour-blind readers can distinguish, lifted for dark pages.
SERIES = (
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff8f4a"),
    ("#009e73", "#3ad6a6"),
    ("#b4458c", "#e79ac8"),
    ("#a07800", "#f0c443"),
    ("#5a5f6b", "#b9bfcc"),
    ("#6a3d9a", "#b79be0"),
    ("#8c2d04", "#e0845c"),
)

COLOURS = INK | {f"c{i}": pair for i, pair in enumerate(SERIES)}

DASHES = ("-", "--", ":", "-.")


def ink(name: str) -> str:
    """A colour to draw with: ink, faint or muted, c0 to c7."""
    return COLOURS[name][0]


def colour(i: int) -> str:
    """The colour of the i-th series; they come again after eight."""
    return ink(f"c{i % len(SERIES)}")


def line(i: int) -> dict[str, Any]:
    """Colour and dashes of the i-th series: 32 that differ."""
    return {"color": colour(i), "linestyle": DASHES[i // len(SERIES) % len(DASHES)]}


def new_figure(width: float = 9.0, height: float = 4.0) -> Any:
    """An empty figure, in inches; raises RlzooError if matplotlib is not installed."""
    need("matplotlib", "figures")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def add_axes(figure: Any, xlabel: str, ylabel: str, place: tuple[int, int, int] = (1, 1, 1)) -> Any:
    """Axes at a place of a grid: (rows, columns, index from 1)."""
    axes = figure.add_subplot(*place)
    axes.set_xlabel(xlabel, color=ink("muted"))
    axes.set_ylabel(ylabel, color=ink("muted"))
    axes.title.set_color(ink("ink"))
    axes.patch.set_visible(False)
    figure.patch.set_visible(False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(ink("muted"))
    axes.tick_params(colors=ink("muted"), which="both", length=3)
    axes.grid(color=ink("faint"), linewidth=0.7)
    axes.set_axisbelow(True)
    return axes


def add_legend(figure: Any, axes: Any, **more: Any) -> None:
    """A legend next to the axes, where there is more than one name."""
    handles, names = axes.get_legend_handles_labels()
    if len(names) > 1:
        figure.legend(handles, names, loc="outside right upper", frameon=False,
                      labelcolor=ink("ink"), **({"handlelength": 1.6} | more))  # fmt: skip


def write_figure(draw: Callable[[], Any], *paths: Path) -> None:
    """Write the figure as SVG or PNG files, by their names, in the light theme on white."""
    figure = on_white(draw())
    for path in paths:
        write_atomically(path, _save(figure, path.suffix[1:], path.stem))


def write_curves(curves: Iterable[Curve], folder: Path) -> None:
    """Each curve as NAME.svg and NAME.png, with its caption."""
    folder.mkdir(parents=True, exist_ok=True)
    for curve in curves:
        write_figure(
            partial(drawn, [curve]), *(folder / f"{curve.name}.{x}" for x in ("svg", "png"))
        )


def drawn(curves: Sequence[Curve], width: float = 8.0) -> Any:
    """Curves, one below the other, as a figure that a notebook shows with any backend."""
    rows = [0.6 + 0.32 * len(c.places) if c.across else 3.0 for c in curves]
    figure = new_figure(width, 0.6 + sum(rows))
    for i, curve in enumerate(curves):
        names = (curve.y, "") if curve.across else (curve.x, curve.y)
        axes = add_axes(figure, *names, (len(curves), 1, i + 1))
        for one in curve.series:
            _draw(axes, one, curve.across)
        if curve.caption:
            axes.set_title(curve.caption, fontsize=8, loc="left", wrap=True)
        if curve.places:
            at = range(len(curve.places))
            (axes.set_yticks if curve.across else axes.set_xticks)(at, curve.places)
            if curve.across:
                axes.set_ylim(len(curve.places) - 0.5, -0.5)
        else:
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.xaxis.set_major_formatter(lambda x, _: brief(x))
        add_legend(figure, axes)
    on_white(figure)
    figure._repr_png_ = lambda: _save(figure, "png", "", 90)  # a screen, where dots are dear
    return figure


def _draw(axes: Any, one: Series, across: bool) -> None:
    look = line(one.colour)
    banded = one.low is not None and one.high is not None
    if one.form == "dots":
        ends = zip(one.x, one.low or (), one.high or (), strict=True) if banded else ()
        for x, low, high in ends:
            at, ends_of = (x, x), (low, high)
            axes.plot(*((ends_of, at) if across else (at, ends_of)), color=look["color"],
                      linewidth=2.2)  # fmt: skip
        points = (one.y, one.x) if across else (one.x, one.y)
        edge = {"markeredgecolor": "white", "markeredgewidth": 0 if banded else 0.8}
        axes.plot(*points, "o", color=look["color"], markersize=7 if banded else 4.5, **edge,
                  label=one.name)  # fmt: skip
        return
    if banded:
        axes.fill_between(one.x, one.low, one.high, color=look["color"], alpha=0.15, linewidth=0)
    thin = one.form == "thin"
    axes.plot(one.x, one.y, **look, label=one.name, linewidth=0.7 if thin else 1.8,
              alpha=0.45 if thin else 1)  # fmt: skip


def on_white(figure: Any) -> Any:
    """The figure on white, wherever it is shown."""
    figure.patch.set(visible=True, facecolor="white")
    return figure


def _save(figure: Any, kind: str, name: str, dpi: int = 160) -> bytes:
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format=kind, dpi=dpi,
                       metadata={"Date": None} if kind == "svg" else None)  # fmt: skip
    return buffer.getvalue()
