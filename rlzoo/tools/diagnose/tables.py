from collections.abc import Callable, Mapping, Sequence
from typing import Any

# ---------------------------------------------------------------- tables


def number(x: float, se: float = 0.0) -> str:
    """Two digits; a standard error beside it where there is one."""
    if se >= 1e-12:
        return f"{_short(x, 2)}±{_short(se, 1)}"
    return "0" if abs(x) < 1e-12 else _short(x, 2)


def _short(x: float, digits: int) -> str:
    text = f"{x:.{digits}g}" if 0.001 <= abs(x) < 1000 else f"{x:.{digits - 1}e}"
    return text.replace("e-0", "e-").replace("e+0", "e+")


def name_of(row: Mapping[str, Any]) -> str:
    shown = {k: f"{v:g}" if isinstance(v, float) else v for k, v in row["shown"].items()}
    return " ".join([row["estimator"], *(f"{k}={v}" for k, v in shown.items())])


def headline(document: Mapping[str, Any]) -> str:
    w = document["world"]
    ends = "EOS included" if w["eos"] else "no EOS"
    text = (
        f"{w['name']}: |V| = {w['vocabulary']} ({ends}), T = {w['horizon']}: {w['states']:,} "
        f"states, {w['episodes']:,} episodes; J = {w['expected_return']:.3f}, mean length "
        f"{w['expected_length']:.2f}; groups of {w['samples']}"
    )
    if w["prompts"] > 1:
        text += f"; {w['prompts']} prompts"
    if w["cut"]:
        text += f"; rows cut at {w['cut']}"
    if w["kl_coef"]:
        text += f"; KL {w['kl']:.3f} nats, coefficient {w['kl_coef']}"
    if "tokens" in w:
        text += f"; tokens {w['tokens']}"
    return text


def cells(
    rows: Sequence[Mapping[str, Any]], wide: bool
) -> tuple[list[str], Callable[[Mapping[str, Any]], list[str]]]:
    """Heads of the numbers' columns, and a row's cells."""
    sizes = list(rows[0]["batches"]) if rows else []
    middle = min(sizes, key=lambda size: abs(int(size) - 64)) if sizes else None
    shown = sizes if wide else [s for s in sizes if s == middle]
    in_parameters = bool(rows) and "parameters" in rows[0]
    heads = ["b_perp²", *(["bias²"] if wide else []), "var", *(["MSE"] if wide else [])]
    heads += ["sign", "cos", "scale", *(["SNR"] if wide else [])]
    heads += ["cos θ"] if in_parameters else []
    heads += [f"cos@{size}" for size in shown]
    heads += ["gain"] if wide or not middle else []
    heads += [f"gain@{middle}"] if middle else []

    def of(row: Mapping[str, Any]) -> list[str]:
        found = [number(row["b_perp2"], row["b_perp2_se"])]
        found += [number(row["bias2"])] if wide else []
        found += [number(row["variance"])]
        found += [number(row["squared_error"])] if wide else []
        found += [f"{row['sign']:.2f}", _cosine(row["cosine"], row["cosine_se"])]
        found += [number(row["scale"])]
        found += [number(row["snr"])] if wide else []
        found += [_cosine(row["parameters"]["cosine"], 0)] if in_parameters else []
        found += [f"{row['batches'][size]['cosine']:.2f}" for size in shown]
        found += [f"{row['gain']:.2f}"] if wide or not middle else []
        found += [f"{row['batches'][middle]['gain']:.2f}"] if middle else []
        return found

    return heads, of


def tables(document: Mapping[str, Any], width: int) -> list[Any]:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = document["estimators"]
    wide = width >= 110
    heads, cells_of = cells(rows, wide)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1 if width >= 160 else 0, 0, 0), pad_edge=False)
    table.add_column("estimator", overflow="fold", style="bold", min_width=10)
    table.add_column("critic", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    before = None
    for row in rows:
        name = name_of(row)
        table.add_row("" if name == before else name, row["critic"] or "-", *cells_of(row))
        before = name
    notes = notes_of(document, rows, wide)
    return [Text(headline(document)), table, *(Text(note, style="dim") for note in notes)]


def notes_of(
    document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], wide: bool
) -> list[str]:
    """What stands below the numbers of `rows`."""
    notes = []
    sampled = [row for row in rows if row["method"] != "exact"]
    if sampled:
        methods = dict.fromkeys(f"{row['estimator']}: {row['method']}" for row in sampled)
        notes.append(f"± one standard error; {'; '.join(methods)}; the others are exact")
    errors = [drawn["cosine_se"] for row in rows for drawn in row["batches"].values()]
    if errors:
        notes.append(
            f"cos@B, gain@B: drawn batches of B rows, the same for all; standard error of cos@B "
            f"at most {max(errors):.2g}. gain: of J, in a step of KL "
            f"{document['world']['step_kl']}, as a share of the true gradient's"
        )
    notes += [
        f"{row['estimator']}: not diagnosable: needs {', '.join(row['needs'])}"
        for row in document["not_diagnosable"]
    ]
    if not wide:
        notes.append("bias², MSE, SNR, other batch sizes: in a terminal of 110 columns, or --json")
    if "seconds" in document:
        notes.append(f"{document['seconds']:.1f} s")
    return notes


def _cosine(x: float, se: float) -> str:
    return f"{x:.3f}±{se:.0e}".replace("e-0", "e-") if se >= 5e-4 else f"{x:.3f}"
