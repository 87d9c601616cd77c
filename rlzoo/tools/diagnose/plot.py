"""The bias-variance frontier and the cosine against batch size, as PNG or SVG, or in a page.

matplotlib is optional, and imported only here, inside functions.
"""

import html
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo.tools.diagnose.tables import headline, name_of, number

MARKERS = {None: "o", "exact": "o", "noisy": "s", "zero": "^"}

LINES = {None: "-", "exact": "-", "noisy": "--", "zero": ":"}

LIGHT = {"text": "#1c1c1c", "page": "#ffffff", "grid": "#d8d8d8"}

DARK = {"text": "#e8e8e8", "page": "#16181c", "grid": "#3a3d44"}

FLOOR = 1e-6  # where 0 stands on a logarithmic axis


def write_plot(document: Mapping[str, Any], path: Path) -> None:
    if path.suffix not in (".png", ".svg"):
        raise RlzooError(f"--plot: must end in .png or .svg. Got {path.name!r}")
    _writable(path, "--plot")
    path.write_bytes(draw(document, path.suffix[1:], LIGHT))


def draw(document: Mapping[str, Any], kind: str, colours: Mapping[str, str]) -> bytes:
    """Both panels as the bytes of a picture."""
    try:
        from matplotlib import colormaps
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise RlzooError("--plot and --html draw with matplotlib: pip install matplotlib") from None
    rows = document["estimators"]
    if not rows:
        raise RlzooError("--plot: there is nothing to draw: no estimator could be diagnosed")
    names = list(dict.fromkeys(map(name_of, rows)))
    palette = colormaps["tab20" if len(names) > 10 else "tab10"]
    colour = {name: palette(i % palette.N) for i, name in enumerate(names)}
    has_batches = bool(rows[0]["batches"])
    figure = Figure(figsize=(12 if has_batches else 7.5, 5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.patch.set_facecolor(colours["page"])
    panels = figure.subplots(1, 2 if has_batches else 1, squeeze=False)[0]
    bias, curves = panels[0], panels[-1]
    for row in rows:
        name, critic = name_of(row), row["critic"]
        label = name if critic is None else f"{name}, {critic}"
        bias.plot(
            max(row["b_perp2"], FLOOR),
            max(row["variance"], FLOOR),
            MARKERS[critic],
            color=colour[name],
            label=label,
            markersize=7,
            alpha=0.85,
        )
        if has_batches:
            sizes = sorted(map(int, row["batches"]))
            cosines = [row["batches"][str(s)]["cosine"] for s in sizes]
            errors = [1.96 * row["batches"][str(s)]["cosine_se"] for s in sizes]
            curves.errorbar(
                sizes, cosines, errors, color=colour[name], linestyle=LINES[critic], lw=1.5
            )
    bias.set(xscale="log", yscale="log", xlabel="bias²: b_perp²", ylabel="variance of A^")
    bias.set_title(f"bias and variance (left and below {FLOOR:.0e}: none)")
    if has_batches:
        curves.set(
            xscale="log", xlabel="rows per batch", ylabel="E cos(g^, g*)", ylim=(-0.05, 1.03)
        )
        curves.set_title("the gradient's direction against batch size")
    for panel in panels:
        panel.set_facecolor(colours["page"])
        panel.grid(color=colours["grid"], lw=0.6)
        panel.tick_params(colors=colours["text"], which="both")
        for part in (panel.title, panel.xaxis.label, panel.yaxis.label):
            part.set_color(colours["text"])
        for spine in panel.spines.values():
            spine.set_color(colours["grid"])
    figure.legend(
        *bias.get_legend_handles_labels(),
        loc="outside right upper",
        fontsize=8,
        frameon=False,
        labelcolor=colours["text"],
        ncols=1 + len(rows) // 26,
    )
    out = io.BytesIO()
    figure.savefig(out, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return out.getvalue()


def write_html(document: Mapping[str, Any], path: Path) -> None:
    """One page with everything in it, light or dark as the reader's system is."""
    _writable(path, "--html")
    light, dark = (_svg(draw(document, "svg", c)) for c in (LIGHT, DARK))
    page = _PAGE.format(
        head=html.escape(headline(document)), table=_table(document), light=light, dark=dark,
        notes="".join(
            f"<p>{html.escape(row['estimator'])}: not diagnosable: needs "
            f"{html.escape(', '.join(row['needs']))}</p>"
            for row in document["not_diagnosable"]
        ),
    )  # fmt: skip
    path.write_text(page, encoding="utf-8")


def _writable(path: Path, option: str) -> None:
    if not path.parent.is_dir():
        raise RlzooError(f"{option}: no such folder: {path.parent}")


def _svg(picture: bytes) -> str:
    text = picture.decode()
    return text[text.index("<svg") :]


def _table(document: Mapping[str, Any]) -> str:
    rows = document["estimators"]
    sizes = list(rows[0]["batches"])
    heads = ["estimator", "critic", "b_perp²", "bias²", "variance", "MSE", "sign", "cos", "scale"]
    heads += ["SNR", *(f"cos@{s}" for s in sizes), "gain", *(f"gain@{s}" for s in sizes), "how"]
    lines = ["<tr>" + "".join(f"<th>{h}</th>" for h in heads) + "</tr>"]
    for row in rows:
        cells = [name_of(row), row["critic"] or "-", number(row["b_perp2"], row["b_perp2_se"])]
        cells += [number(row[k]) for k in ("bias2", "variance", "squared_error")]
        cells += [f"{row['sign']:.2f}", f"{row['cosine']:.3f}", number(row["scale"])]
        cells += [number(row["snr"]), *(f"{row['batches'][s]['cosine']:.2f}" for s in sizes)]
        cells += [f"{row['gain']:.2f}", *(f"{row['batches'][s]['gain']:.2f}" for s in sizes)]
        cells += [row["method"]]
        lines.append("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in cells) + "</tr>")
    return "\n".join(lines)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>rlzoo diagnose</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem;
  color: #1c1c1c; background: #fff }}
.wide {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
th, td {{ padding: .2rem .6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid #8884 }}
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) {{ text-align: left }}
svg {{ max-width: 100%; height: auto }}
.dark {{ display: none }}
@media (prefers-color-scheme: dark) {{
  body {{ color: #e8e8e8; background: #16181c }}
  .dark {{ display: block }} .light {{ display: none }}
}}
</style></head><body>
<h1>Against the exact truth</h1><p>{head}</p>
<div class="wide"><table>{table}</table></div>
{notes}
<div class="light">{light}</div><div class="dark">{dark}</div>
</body></html>
"""
