"""The bias-variance frontier and the cosine against batch size, as PNG or SVG, or in a page."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo.show import page as html
from rlzoo.show.figure import SERIES, add_axes, add_legend, colour, new_figure, svg, write_figure
from rlzoo.show.page import row, tag
from rlzoo.tools.diagnose.tables import headline, name_of, two_digits, undiagnosable

# By critic.
MARKERS = {None: "o", "exact": "o", "noisy": "s", "zero": "^"}
LINES = {None: "-", "exact": "-", "noisy": "--", "zero": ":"}

FILLS = (None, "none", "left", "bottom")  # tell apart estimators of one colour

FLOOR = 1e-6  # where 0 stands on a logarithmic axis

CSS = "tbody td:nth-child(-n+2) { text-align: left }"


def write_plot(document: Mapping[str, Any], path: Path) -> None:
    """Both panels, light. Raises RlzooError where the file's name or folder will not do."""
    if path.suffix not in (".png", ".svg"):
        raise RlzooError(f"--plot: must end in .png or .svg. Got {path.name!r}")
    _writable(path, "--plot")
    write_figure(partial(draw, document), path)


def draw(document: Mapping[str, Any]) -> Any:
    """Both panels as a figure."""
    rows = document["estimators"]
    if not rows:
        raise RlzooError("--plot: there is nothing to draw: no estimator could be diagnosed")
    names = list(dict.fromkeys(map(name_of, rows)))
    panels = 2 if rows[0]["batches"] else 1
    figure = new_figure(12 if panels == 2 else 7.5, 5)
    bias = add_axes(figure, "bias²: b_perp²", "variance of A^", (1, panels, 1))
    bias.set(xscale="log", yscale="log")
    bias.set_title(f"bias and variance (left and below {FLOOR:.0e}: none)")
    if panels == 2:
        curves = add_axes(figure, "rows per batch", "E cos(g^, g*)", (1, 2, 2))
        curves.set(xscale="log", ylim=(-0.05, 1.03))
        curves.set_title("the gradient's direction against batch size")
    for estimate in rows:
        name, critic = name_of(estimate), estimate["critic"]
        i = names.index(name)
        style = {
            "color": colour(i), "marker": MARKERS[critic], "alpha": 0.85,
            "fillstyle": FILLS[i // len(SERIES) % len(FILLS)], "linestyle": LINES[critic],
        }  # fmt: skip
        place = [max(estimate[k], FLOOR) for k in ("b_perp2", "variance")]
        label = name if critic is None else f"{name}, {critic}"
        bias.plot(*place, **(style | {"linestyle": ""}), label=label, markersize=7)
        if panels == 2:
            sizes = sorted(map(int, estimate["batches"]))
            drawn = [estimate["batches"][str(size)] for size in sizes]
            errors = [1.96 * d["cosine_se"] for d in drawn]
            curves.errorbar(sizes, [d["cosine"] for d in drawn], errors, **style, lw=1.5,
                            markersize=4)  # fmt: skip
    add_legend(figure, bias, fontsize=8, ncols=1 + len(rows) // 26)
    return figure


def write_html(document: Mapping[str, Any], path: Path) -> None:
    """One page with everything in it. Raises RlzooError where its folder is none."""
    _writable(path, "--html")
    figure = svg(draw(document), "diagnose")
    blocks = [tag("p", headline(document)), _table(document)]
    blocks += [tag("p", line, "muted") for line in undiagnosable(document)]
    blocks.append(f"<figure>{figure}</figure>")
    path.write_text(html.page("Against the exact truth", blocks, CSS), encoding="utf-8")


def _writable(path: Path, option: str) -> None:
    if not path.parent.is_dir():
        raise RlzooError(f"{option}: no such folder: {path.parent}")


def _table(document: Mapping[str, Any]) -> str:
    rows = document["estimators"]
    sizes = list(rows[0]["batches"])
    heads = [
        "estimator",
        "critic",
        "b_perp²",
        "bias²",
        "variance",
        "MSE",
        "sign",
        "cos A^",
        "cos",
        "scale",
    ]
    heads += ["SNR", *(f"cos@{s}" for s in sizes), "gain", *(f"gain@{s}" for s in sizes), "how"]
    lines = []
    for r in rows:
        drawn = [r["batches"][s] for s in sizes]
        cells = [name_of(r), r["critic"] or "-", two_digits(r["b_perp2"], r["b_perp2_se"])]
        cells += [two_digits(r[k]) for k in ("bias2", "variance", "squared_error")]
        cells += [f"{r['sign']:.2f}", f"{r['own_cosine']:.3f}", f"{r['cosine']:.3f}"]
        cells += [two_digits(r["scale"])]
        cells += [two_digits(r["snr"]), *(f"{batch['cosine']:.2f}" for batch in drawn)]
        cells += [f"{r['gain']:.2f}", *(f"{batch['gain']:.2f}" for batch in drawn), r["method"]]
        lines.append(row(tag("td", cell) for cell in cells))
    return html.table([tag("th", head, "left" * (i < 2)) for i, head in enumerate(heads)], lines)
