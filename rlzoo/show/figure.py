import io
import re
from contextvars import ContextVar
from typing import Any

# name -> (placeholder in the drawing, light, dark)
INK = {
    "ink": ("#010101", "#1f2430", "#e6e8ee"),
    "faint": ("#020202", "#d9dce3", "#363c4a"),
    "muted": ("#030303", "#646b7a", "#9aa2b3"),
}

# Okabe and Ito's colours, which the colour-blind tell apart, lifted for dark pages.
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

COLOURS = INK | {f"c{i}": (f"#0a0a{i:02x}", light, dark) for i, (light, dark) in enumerate(SERIES)}

DASHES = ("-", "--", ":", "-.")


_theme = ContextVar("_theme", default=0)  # 0: placeholders, 1: the light theme's colours


def _ink(name: str) -> str:
    return COLOURS[name][_theme.get()]


def _series(i: int) -> dict[str, Any]:
    return {"color": _ink(f"c{i % len(SERIES)}"), "linestyle": DASHES[i // len(SERIES) % 4]}


def css(dark: bool) -> str:
    """The variables' values."""
    return " ".join(f"--{name}: {pair[2 if dark else 1]};" for name, pair in COLOURS.items())


# ---------------------------------------------------------------- drawing


def _figure(width: float = 9.0, height: float = 4.0) -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _axes(figure: Any, xlabel: str, ylabel: str) -> Any:
    axes = figure.add_subplot()
    axes.set_xlabel(xlabel, color=_ink("muted"))
    axes.set_ylabel(ylabel, color=_ink("muted"))
    axes.patch.set_visible(False)
    figure.patch.set_visible(False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(_ink("muted"))
    axes.tick_params(colors=_ink("muted"), length=3)
    axes.grid(color=_ink("faint"), linewidth=0.7)
    axes.set_axisbelow(True)
    return axes


def _legend(figure: Any, axes: Any) -> None:
    handles, names = axes.get_legend_handles_labels()
    if len(names) > 1:
        figure.legend(handles, names, loc="outside right upper", frameon=False,
                      labelcolor=_ink("ink"), handlelength=1.6)  # fmt: skip


def svg(figure: Any, name: str) -> str:
    """For a page: colours as CSS variables, ids of its own, scaled by its box."""
    drawn = _save(figure, "svg", name)
    for variable, (placeholder, _, _) in COLOURS.items():
        drawn = drawn.replace(placeholder, f"var(--{variable})")
    prefix = re.sub(r"\W", "-", name)
    drawn = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{prefix}-", drawn)
    drawn = drawn[drawn.index("<svg") :]
    return re.sub(r' (width|height)="[\d.]+pt"', "", drawn, count=2)


def _save(figure: Any, kind: str, name: str) -> Any:
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format=kind, dpi=160,
                       metadata={"Date": None} if kind == "svg" else None)  # fmt: skip
    return buffer.getvalue().decode() if kind == "svg" else buffer.getvalue()
