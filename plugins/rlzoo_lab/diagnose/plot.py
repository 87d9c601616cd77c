"""The bias-variance frontier and the cosine against batch size, as PNG, SVG or a page."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo.runs.disk import write_atomically
from rlzoo_lab.diagnose.tables import headline, name_of, notes_of, two_digits
from rlzoo_lab.view import page as html
from rlzoo_lab.view.figure import (
    SERIES,
    add_axes,
    add_legend,
    colour,
    new_figure,
    of_row,
    svg,
    write_figure,
)
from rlzoo_lab.view.page import tag

# By critic.
MARKERS = {None: "o", "exact": "o", "noisy": "s", "zero": "^"}
LINES = {None: "-", "exact": "-", "noisy": "--", "zero": ":"}

FILLS = (None, "none", "left", "bottom")  # distinguish estimators of one colour

FLOOR = 1e-6  # where 0 is drawn on a logarithmic axis

CSS = """
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left }
th, td { padding: .35rem .55rem } td:first-child { white-space: normal; min-width: 8rem }
@media screen and (max-width: 40rem) { figure svg { min-width: 44rem } }
"""

# As docs/diagnose.md has them.
MEANINGS = (
    ("b_perp²", "the square of the bias that affects the gradient. Ideal: 0"),
    ("bias²",
        "the square of b = E[A^ given state and token] - A; a baseline counts as bias here, but "
        "is harmless"),
    ("variance", "how much A^ varies for the same token in the same state. Ideal: small"),
    ("MSE", "bias² plus variance"),
    ("sign",
        "how often A^ minus its mean in the state has the sign of A, weighted by |A|. Ideal: 1"),
    ("cos A^",
        "cosine of the estimator's expected gradient, with equal token weights, with the true "
        "gradient. Ideal: 1"),
    ("cos",
        "the same for the recipe's gradient, which uses its aggregation and whitening. Ideal: 1"),
    ("scale",
        "length of the estimator's expected gradient along the true one, divided by the length of "
        "the true one; the learning rate can compensate for it"),
    ("SNR",
        "signal-to-noise ratio of one row's gradient: the squared length of its mean divided by "
        "its variance. Ideal: large"),
    ("cos@B", "mean cosine of the recipe's gradient from B rows with the true one. Ideal: 1"),
    ("gain",
        "how much a step along the gradient adds to J, as a share of a step along the natural "
        "gradient; gain@B: the same for the gradient of a batch of B rows, which combines bias "
        "and variance in one number"),
    ("critic", "exact: the true V; noisy: V plus a fixed error for each state; zero: 0 everywhere"),
)  # fmt: skip

CAPTION = """Left: bias against variance, with a mark for each estimator and critic. Right: cosine
of a batch's gradient with the true one, against the batch size in rows."""

ABOUT = (
    "Each mark is an estimator with one critic. For bias and variance, lower and further left is "
    "better; for the gradient's direction, higher is better. A^ is the estimator's advantage of a "
    "token; A is the true one, Q - V of the current policy. Means weight tokens by how often the "
    "policy visits them."
)


def write_plot(document: Mapping[str, Any], path: Path) -> None:
    """Both panels in the light theme."""
    write_figure(partial(draw, document), path)


def draw(document: Mapping[str, Any]) -> Any:
    rows = document["estimators"]
    if not rows:
        raise RlzooError("--plot: no estimator could be diagnosed, so there is nothing to plot")
    names = list(dict.fromkeys(map(name_of, rows)))
    panels = 2 if rows[0]["batches"] else 1
    figure = new_figure(12 if panels == 2 else 7.5, 5)
    bias = add_axes(figure, "bias²: b_perp²", "variance of A^", (1, panels, 1))
    bias.set(xscale="log", yscale="log")
    bias.set_title("bias and variance; overlapping marks are shifted right", fontsize=10)
    if panels == 2:
        curves = add_axes(figure, "rows per batch", "E cos(g^, g*)", (1, 2, 2))
        curves.set(xscale="log", ylim=(-0.05, 1.03))
        curves.set_title("the gradient's direction against batch size", fontsize=10)
    points = [[max(estimate[k], FLOOR) for k in ("b_perp2", "variance")] for estimate in rows]
    beside = _beside(points)
    bias.set(xlim=_limits([x for x, _ in points]), ylim=_limits([y for _, y in points]))
    for n, estimate in enumerate(rows):
        name, critic = name_of(estimate), estimate["critic"]
        i = names.index(name)
        style = {
            "color": colour(i), "marker": MARKERS[critic], "alpha": 0.85,
            "fillstyle": FILLS[i // len(SERIES) % len(FILLS)], "linestyle": LINES[critic],
        }  # fmt: skip
        label = name if critic is None else f"{name}, {critic}"
        marks = bias.plot(*points[n], **(style | {"linestyle": ""}), label=label, markersize=7,
                          transform=_shifted(bias, beside[n]))  # fmt: skip
        if panels == 2:
            sizes = sorted(map(int, estimate["batches"]))
            drawn = [estimate["batches"][str(size)] for size in sizes]
            errors = [1.96 * d["cosine_se"] for d in drawn]
            near = [size * 1.03 ** (n - (len(rows) - 1) / 2) for size in sizes]
            curve = curves.errorbar(near, [d["cosine"] for d in drawn], errors, **style, lw=1.5,
                                    markersize=4)  # fmt: skip
            marks += curve.get_children()
        of_row(marks, n)
    for k, axis in enumerate((bias.xaxis, bias.yaxis)):
        if any(point[k] == FLOOR for point in points):
            axis.set_major_formatter(_power)
    add_legend(figure, bias, fontsize=8, ncols=1 + len(rows) // 26)
    return figure


def _beside(points: Sequence[Sequence[float]]) -> list[int]:
    """For each point the number of earlier points that its mark would hide."""
    logs = [[math.log10(x) for x in point] for point in points]
    near = [0.02 * (max(axis) - min(axis)) + 1e-9 for axis in zip(*logs, strict=True)]

    def hides(a: Sequence[float], b: Sequence[float]) -> bool:
        return all(abs(x - y) <= gap for x, y, gap in zip(a, b, near, strict=True))

    return [sum(hides(p, q) for q in logs[:i]) for i, p in enumerate(logs)]


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """The ends of a logarithmic axis, which a shifted marker does not set."""
    low, high = math.log10(min(values)), math.log10(max(values))
    room = 0.1 * (high - low) or 0.5
    return 10 ** (low - room), 10 ** (high + room)


def _shifted(axes: Any, places: int) -> Any:
    """The axes' transform, shifted by `places` markers to the right."""
    from matplotlib.transforms import ScaledTranslation

    return axes.transData + ScaledTranslation(places * 9 / 72, 0, axes.figure.dpi_scale_trans)


def _power(value: float, _: Any) -> str:
    if math.isclose(value, FLOOR):
        return "none"
    return f"$10^{{{math.log10(value):.0f}}}$"


def write_html(document: Mapping[str, Any], path: Path) -> None:
    rows = document["estimators"]
    picture = html.figure(svg(draw(document), "diagnose"), CAPTION)
    blocks = [tag("p", headline(document), "muted"), tag("p", html.LINKED, "muted screen"), picture]
    blocks += [tag("p", ABOUT), "<h2>What the columns mean</h2>", html.terms(MEANINGS)]
    blocks += ["<h2>Bias and variance</h2>", _scalars(rows)]
    if rows and rows[0]["batches"]:
        blocks += ["<h2>In batches of B rows</h2>", _by_size(rows)]
    blocks += [tag("p", note, "muted") for note in notes_of(document, rows, wide=True)]
    blocks.append(html.ROW_OF)
    script, css = html.touch()
    text = html.page(
        "Compared with the exact truth", blocks, css + CSS, script=script + "linkRows();"
    )
    write_atomically(path, text.encode())


def _scalars(rows: Sequence[Mapping[str, Any]]) -> str:
    """Each estimator's numbers that do not depend on the batch."""
    heads = ["estimator", "critic", "b_perp²", "bias²", "variance", "MSE", "sign", "cos A^", "cos",
             "scale", "SNR", "gain"]  # fmt: skip
    lines = []
    for r in rows:
        cells = [*_who(r), two_digits(r["b_perp2"], r["b_perp2_se"])]
        cells += [two_digits(r[k]) for k in ("bias2", "variance", "squared_error")]
        cells += [f"{r['sign']:.2f}", f"{r['own_cosine']:.3f}", f"{r['cosine']:.3f}"]
        cells += [two_digits(r["scale"]), two_digits(r["snr"]), f"{r['gain']:.2f}"]
        lines.append(cells)
    return html.text_table(heads, lines)


def _by_size(rows: Sequence[Mapping[str, Any]]) -> str:
    """The quality of a batch's gradient, by its size."""
    sizes = list(rows[0]["batches"])
    heads = ["estimator", "critic", *(f"{what}@{s}" for what in ("cos", "gain") for s in sizes)]
    pairs = [(s, k) for k in ("cosine", "gain") for s in sizes]
    lines = ([*_who(r), *(f"{r['batches'][s][k]:.2f}" for s, k in pairs)] for r in rows)
    return html.text_table(heads, lines)


def _who(r: Mapping[str, Any]) -> list[str]:
    return [name_of(r), r["critic"] or "-"]
